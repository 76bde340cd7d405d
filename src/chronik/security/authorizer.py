"""Authorization as in Kafka's StandardAuthorizer: super users, then ACLs, with a cache of decisions.

A node has an authorizer if `authorizer.class.name` is set; without one, every request is authorized.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from chronik.ip_addresses import normalize_host
from chronik.limits import CACHED_DECISION_NAME_CHARACTERS_MAX, CACHED_DECISIONS_MAX
from chronik.metadata.delta import Delta
from chronik.principals import Principal
from chronik.protocol.permissions import OPERATIONS_BY_RESOURCE_TYPE, AclOperation, AclResourceType, to_bit_field
from chronik.security.acl_index import AclIndex
from chronik.security.acls import AclPermission

_ANY_NAME: Final = "hardcode"
"""The resource name that Kafka checks when it asks whether an operation is allowed on any resource."""

_DecisionKey = tuple[Principal, str, int, str | None]
"""Cache key: principal, host, operation and resource type, name. Operation and type are combined into one number
because hashing an enum is slow, and there is a lookup for every partition."""


class Authorizer:
    """The authorizer of a node, with a cache of its decisions."""

    def __init__(self, super_users: Iterable[Principal] = (), *, everyone_if_no_acl: bool = False) -> None:
        self._super_users = frozenset(super_users)
        self._everyone_if_no_acl = everyone_if_no_acl
        self._index = AclIndex()
        self._decisions: dict[_DecisionKey, bool] = {}
        self.delayed_fetches: dict[Any, None] = {}
        """Waiting requests to wake when ACLs change, because they may no longer be authorized."""

    def apply_delta(self, delta: Delta) -> None:
        """Apply the ACL changes of a metadata delta."""
        if not delta.acls:
            return
        for change in delta.acls:
            if change.old is None and change.new is not None:
                self._index.add(change.new)
            elif change.old is not None and change.new is None:
                self._index.remove(change.old)
        self._decisions.clear()
        for watcher in list(self.delayed_fetches):
            watcher.wake()

    def is_authorized(
        self, principal: Principal, host: str, operation: AclOperation, resource_type: AclResourceType, name: str
    ) -> bool:
        """Return whether the principal may perform the operation on the resource."""
        key = (principal, host, operation << 4 | resource_type, name)
        decision_found = self._decisions.get(key)
        if decision_found is None:
            decision_found = self._decide(principal, host, operation, resource_type, name)
            if len(name) <= CACHED_DECISION_NAME_CHARACTERS_MAX:
                self._cache(key, decision_found)
        return decision_found

    def is_authorized_for_any(
        self, principal: Principal, host: str, operation: AclOperation, resource_type: AclResourceType
    ) -> bool:
        """Return whether the principal may perform the operation on at least one resource of the type."""
        key = (principal, host, operation << 4 | resource_type, None)
        decision_found = self._decisions.get(key)
        if decision_found is None:
            decision_found = self._decide(
                principal, host, operation, resource_type, _ANY_NAME
            ) or self._index.allows_any_resource(str(principal), normalize_host(host), operation, resource_type)
            self._cache(key, decision_found)
        return decision_found

    def authorized_operations(self, principal: Principal, host: str, resource_type: AclResourceType, name: str) -> int:
        """Return the authorized operations on a resource as a bit field, as in Kafka's responses."""
        return to_bit_field(
            operation
            for operation in OPERATIONS_BY_RESOURCE_TYPE[resource_type]
            if self.is_authorized(principal, host, operation, resource_type, name)
        )

    def _decide(
        self, principal: Principal, host: str, operation: AclOperation, resource_type: AclResourceType, name: str
    ) -> bool:
        if principal in self._super_users:
            return True
        permission = self._index.decide(str(principal), normalize_host(host), operation, resource_type, name)
        return self._everyone_if_no_acl if permission is None else permission is AclPermission.ALLOW

    def _cache(self, key: _DecisionKey, decision: bool) -> None:
        if len(self._decisions) >= CACHED_DECISIONS_MAX:
            self._decisions.clear()
        self._decisions[key] = decision


def create_authorizer(broker_config: Callable[[str], str]) -> Authorizer | None:
    """Return the authorizer that the (validated) broker configs define, or None."""
    if not broker_config("authorizer.class.name"):
        return None
    names = filter(None, map(str.strip, broker_config("super.users").split(";")))
    everyone = broker_config("allow.everyone.if.no.acl.found").strip().lower() == "true"
    return Authorizer(map(Principal.parse, names), everyone_if_no_acl=everyone)

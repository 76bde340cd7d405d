"""Who may do what: decided by super users, then ACLs, as Kafka's StandardAuthorizer does, and remembered until ACLs
change. A node has one if `authorizer.class.name` says so; without it everybody may do everything."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from chronik.addresses import normalized
from chronik.limits import DECISION_NAME_CHARACTERS_MAX, DECISIONS_KEPT_MAX
from chronik.metadata.delta import Delta
from chronik.principals import Principal
from chronik.protocol.permissions import OPERATIONS_ON, Operation, ResourceType, bits_of
from chronik.security.acl_index import AclIndex
from chronik.security.acls import Permission

_SOME_NAME: Final = "hardcode"
"""What Kafka asks about when it wants to know whether something is allowed whatever it is called."""

_Question = tuple[Principal, str, int, str | None]
"""Who, from where, what with which type, and its name. The two in the middle are one number: an enum takes long to
hash, and this is asked for every partition."""


class Authorizer:
    def __init__(self, super_users: Iterable[Principal] = (), *, everyone_if_no_acl: bool = False) -> None:
        self._super_users = frozenset(super_users)
        self._everyone_if_no_acl = everyone_if_no_acl
        self._index = AclIndex()
        self._decisions: dict[_Question, bool] = {}
        self.watchers: dict[Any, None] = {}
        """Those to wake when ACLs have changed: whatever was allowed, and must look again whether it still is."""

    def follow(self, delta: Delta) -> None:
        if not delta.acls:
            return
        for change in delta.acls:
            if change.old is None and change.new is not None:
                self._index.add(change.new)
            elif change.old is not None and change.new is None:
                self._index.remove(change.old)
        self._decisions.clear()
        for waiting in list(self.watchers):
            waiting.wake()

    def allows(
        self, principal: Principal, host: str, operation: Operation, resource_type: ResourceType, name: str
    ) -> bool:
        key = (principal, host, operation << 4 | resource_type, name)
        known = self._decisions.get(key)
        if known is None:
            known = self._decide(principal, host, operation, resource_type, name)
            if len(name) <= DECISION_NAME_CHARACTERS_MAX:
                self._keep(key, known)
        return known

    def allows_one(self, principal: Principal, host: str, operation: Operation, resource_type: ResourceType) -> bool:
        """Whether there may be a resource of the type with which it is allowed."""
        key = (principal, host, operation << 4 | resource_type, None)
        known = self._decisions.get(key)
        if known is None:
            known = self._decide(principal, host, operation, resource_type, _SOME_NAME) or self._index.allows_one(
                str(principal), normalized(host), operation, resource_type
            )
            self._keep(key, known)
        return known

    def operations(self, principal: Principal, host: str, resource_type: ResourceType, name: str) -> int:
        """Returns the operations that are allowed, as the bits in which answers list them."""
        return bits_of(
            operation
            for operation in OPERATIONS_ON[resource_type]
            if self.allows(principal, host, operation, resource_type, name)
        )

    def _decide(
        self, principal: Principal, host: str, operation: Operation, resource_type: ResourceType, name: str
    ) -> bool:
        if principal in self._super_users:
            return True
        said = self._index.decide(str(principal), normalized(host), operation, resource_type, name)
        return self._everyone_if_no_acl if said is None else said is Permission.ALLOW

    def _keep(self, key: _Question, decision: bool) -> None:
        if len(self._decisions) >= DECISIONS_KEPT_MAX:
            self._decisions.clear()
        self._decisions[key] = decision


def authorizer_of(broker_config: Callable[[str], str]) -> Authorizer | None:
    """Returns the one that a broker's configs, which were checked, ask for."""
    if not broker_config("authorizer.class.name"):
        return None
    named = filter(None, map(str.strip, broker_config("super.users").split(";")))
    everyone = broker_config("allow.everyone.if.no.acl.found").strip().lower() == "true"
    return Authorizer(map(Principal.parse, named), everyone_if_no_acl=everyone)

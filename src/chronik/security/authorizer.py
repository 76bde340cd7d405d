"""Authorization as in Kafka's StandardAuthorizer: super users, then ACLs, with a cache of decisions.

A node has an authorizer if `authorizer.class.name` is set; without one, every request is authorized.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from chronik.ip_addresses import normalize_host
from chronik.limits import CACHED_DECISION_NAME_CHARACTERS_MAX, CACHED_DECISIONS_MAX
from chronik.metadata.delta import Delta
from chronik.metadata.records import Acl
from chronik.principals import Principal
from chronik.protocol.permissions import (
    OPERATIONS_BY_RESOURCE_TYPE,
    AclOperation,
    AclResourceType,
    encode_operations_as_bit_field,
)
from chronik.security.acls import ALL_USERS, WILDCARD, AclPermission, PatternType, get_acl_permission

AclsByPrincipal = dict[str, dict[Acl, None]]
"""The ACLs of one resource pattern, by the principal to which they apply."""

_ANY_NAME: Final = "hardcode"
"""Placeholder resource name that Kafka uses to check whether an operation is allowed on any resource."""

_DecisionKey = tuple[Principal, str, int, str | None]
"""Key of a cached authorization decision: principal, host, operation with resource type, and resource name. Operation
and type are combined in one number, because hashing an enum is slow."""


class AclIndex:
    """An index of ACLs by resource pattern. The time of a lookup does not grow with the number of ACLs."""

    def __init__(self) -> None:
        self._patterns: dict[tuple[int, int, str], AclsByPrincipal] = {}
        """ACLs by resource type, pattern type and name."""
        self._prefix_lengths: dict[int, Counter[int]] = {}
        """Number of prefixed patterns of each length, by resource type. A lookup tries only prefixes with these
        lengths."""
        self._by_principal: dict[tuple[int, str], dict[Acl, None]] = {}
        self._type_counts: Counter[int] = Counter()
        """Number of ACLs by resource type."""
        self._deny_counts: Counter[tuple[int, str, int]] = Counter()
        """Number of DENY ACLs by resource type, principal and operation."""

    def add(self, acl: Acl) -> None:
        key = (acl.resource_type, acl.pattern_type, acl.name)
        if key not in self._patterns:
            self._patterns[key] = {}
            if acl.pattern_type == PatternType.PREFIXED:
                self._prefix_lengths.setdefault(acl.resource_type, Counter())[len(acl.name)] += 1
        self._patterns[key].setdefault(acl.principal, {})[acl] = None
        self._by_principal.setdefault((acl.resource_type, acl.principal), {})[acl] = None
        self._type_counts[acl.resource_type] += 1
        if acl.permission == AclPermission.DENY:
            self._deny_counts[acl.resource_type, acl.principal, acl.operation] += 1

    def remove(self, acl: Acl) -> None:
        key, principal_key = (acl.resource_type, acl.pattern_type, acl.name), (acl.resource_type, acl.principal)
        rules = self._patterns[key]
        del rules[acl.principal][acl], self._by_principal[principal_key][acl]
        if not self._by_principal[principal_key]:
            del self._by_principal[principal_key]
        self._type_counts[acl.resource_type] -= 1
        if acl.permission == AclPermission.DENY:
            deny_key = acl.resource_type, acl.principal, acl.operation
            self._deny_counts[deny_key] -= 1
            if not self._deny_counts[deny_key]:
                del self._deny_counts[deny_key]
        if not rules[acl.principal]:
            del rules[acl.principal]
        if not rules:
            del self._patterns[key]
            if acl.pattern_type == PatternType.PREFIXED:
                lengths = self._prefix_lengths[acl.resource_type]
                lengths[len(acl.name)] -= 1
                if not lengths[len(acl.name)]:
                    del lengths[len(acl.name)]

    def find_permission(
        self, principal: str, host: str, operation: int, resource_type: int, name: str
    ) -> AclPermission | None:
        """Return the permission for an operation on a resource, or None if no ACL applies to the resource.

        If ACLs apply to the resource but none to the principal, the result is DENY.
        """
        is_allowed = has_acl = False
        for rules in self._iter_matching_acls(resource_type, name):
            has_acl = True
            for name_of_principal in (principal, ALL_USERS):
                for acl in rules.get(name_of_principal, ()):
                    permission = get_acl_permission(acl, host, operation)
                    if permission == AclPermission.DENY:
                        return AclPermission.DENY
                    is_allowed = is_allowed or permission == AclPermission.ALLOW
        if not has_acl:
            return None
        return AclPermission.ALLOW if is_allowed else AclPermission.DENY

    def allows_any_resource(self, principal: str, host: str, operation: int, resource_type: int) -> bool:
        """Return whether ACLs may allow the operation on at least one resource of the type (KIP-679).

        As in Kafka, only ACLs for this operation or for ALL are considered.
        """
        allowed: list[Acl] = []
        denied: set[tuple[int, str]] = set()
        for name_of_principal in (principal, ALL_USERS):
            for acl in self._by_principal.get((resource_type, name_of_principal), ()):
                if acl.operation not in (AclOperation.ALL, operation):
                    continue  # as in Kafka, implied operations do not count here
                permission = get_acl_permission(acl, host, operation)
                if permission == AclPermission.DENY:
                    denied.add((acl.pattern_type, acl.name))
                elif permission == AclPermission.ALLOW:
                    allowed.append(acl)
        if (PatternType.LITERAL, WILDCARD) in denied:
            return False
        return any(not _is_overridden_by_deny(acl, denied) for acl in allowed)

    def find_permission_for_all(
        self, principal: str, host: str, operation: int, resource_type: int
    ) -> AclPermission | None:
        """Return ALLOW if ACLs allow the operation on every resource of the type, None if no ACL applies to the type.

        Any DENY ACL of the principal for the operation counts, whatever its host or resource: the result may be DENY
        although all existing resources are allowed, but not the reverse. The time does not grow with the number of
        names that have ACLs.
        """
        if not self._type_counts[resource_type]:
            return None
        rules = self._patterns.get((resource_type, PatternType.LITERAL, WILDCARD), {})
        is_allowed = False
        for name_of_principal in (principal, ALL_USERS):
            keys = [(resource_type, name_of_principal, each) for each in (AclOperation.ALL, operation)]
            if any(each in self._deny_counts for each in keys):
                return AclPermission.DENY
            permissions = (get_acl_permission(acl, host, operation) for acl in rules.get(name_of_principal, ()))
            is_allowed = is_allowed or AclPermission.ALLOW in permissions
        return AclPermission.ALLOW if is_allowed else AclPermission.DENY

    def _iter_matching_acls(self, resource_type: int, name: str) -> Iterator[AclsByPrincipal]:
        """Yield the ACLs of all patterns that match the resource."""
        patterns = self._patterns
        for literal in (name, WILDCARD):
            rules = patterns.get((resource_type, PatternType.LITERAL, literal))
            if rules is not None:
                yield rules
        for length in self._prefix_lengths.get(resource_type, ()):
            if length <= len(name):
                rules = patterns.get((resource_type, PatternType.PREFIXED, name[:length]))
                if rules is not None:
                    yield rules


def _is_overridden_by_deny(allowed: Acl, denied: set[tuple[int, str]]) -> bool:
    """Return whether DENY rules cover everything that an ALLOW rule grants."""
    name = allowed.name
    is_literal = allowed.pattern_type == PatternType.LITERAL
    if is_literal and name == WILDCARD:
        return False  # the others deny only some of all possible names
    if is_literal and (PatternType.LITERAL, name) in denied:
        return True
    return any((PatternType.PREFIXED, name[:length]) in denied for length in range(1, len(name) + 1))


class Authorizer:
    """The authorizer of a node, which evaluates ACLs and caches the decisions."""

    def __init__(self, super_users: Iterable[Principal] = (), *, everyone_if_no_acl: bool = False) -> None:
        self._super_users = frozenset(super_users)
        self._everyone_if_no_acl = everyone_if_no_acl
        self._index = AclIndex()
        self._decisions: dict[_DecisionKey, bool] = {}
        self.delayed_fetches: dict[Any, None] = {}
        """Delayed fetches to wake when ACLs change, because their clients may no longer be authorized."""

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
        key = (principal, host, operation << 8 | resource_type, name)
        decision_found = self._decisions.get(key)
        if decision_found is None:
            decision_found = self._compute_decision(principal, host, operation, resource_type, name)
            if len(name) <= CACHED_DECISION_NAME_CHARACTERS_MAX:
                self._cache_decision(key, decision_found)
        return decision_found

    def is_authorized_for_any(
        self, principal: Principal, host: str, operation: AclOperation, resource_type: AclResourceType
    ) -> bool:
        """Return whether the principal may perform the operation on at least one resource of the type."""
        key = (principal, host, operation << 8 | resource_type, None)
        decision_found = self._decisions.get(key)
        if decision_found is None:
            decision_found = self._compute_decision(
                principal, host, operation, resource_type, _ANY_NAME
            ) or self._index.allows_any_resource(str(principal), normalize_host(host), operation, resource_type)
            self._cache_decision(key, decision_found)
        return decision_found

    def is_authorized_for_all(
        self, principal: Principal, host: str, operation: AclOperation, resource_type: AclResourceType
    ) -> bool:
        """Return whether the principal may perform the operation on every resource of the type, now and later."""
        if principal in self._super_users:
            return True
        permission = self._index.find_permission_for_all(str(principal), normalize_host(host), operation, resource_type)
        return self._everyone_if_no_acl if permission is None else permission is AclPermission.ALLOW

    def authorized_operations(self, principal: Principal, host: str, resource_type: AclResourceType, name: str) -> int:
        """Return the authorized operations on a resource as a bit field, as in Kafka's responses."""
        return encode_operations_as_bit_field(
            operation
            for operation in OPERATIONS_BY_RESOURCE_TYPE[resource_type]
            if self.is_authorized(principal, host, operation, resource_type, name)
        )

    def _compute_decision(
        self, principal: Principal, host: str, operation: AclOperation, resource_type: AclResourceType, name: str
    ) -> bool:
        if principal in self._super_users:
            return True
        permission = self._index.find_permission(str(principal), normalize_host(host), operation, resource_type, name)
        return self._everyone_if_no_acl if permission is None else permission is AclPermission.ALLOW

    def _cache_decision(self, key: _DecisionKey, decision: bool) -> None:
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

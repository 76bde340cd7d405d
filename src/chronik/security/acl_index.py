"""Index of all ACLs by resource pattern: a lookup does not depend on the number of ACLs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from chronik.metadata.records import Acl
from chronik.protocol.permissions import AclOperation
from chronik.security.acls import ALL_USERS, WILDCARD, AclPermission, PatternType, acl_permission

AclsByPrincipal = dict[str, dict[Acl, None]]
"""The ACLs of one resource pattern by principal."""


class AclIndex:
    """An in-memory index of ACLs that decides whether an operation is authorized."""

    def __init__(self) -> None:
        self._patterns: dict[tuple[int, int, str], AclsByPrincipal] = {}
        """ACLs by resource type, pattern type and name."""
        self._prefix_lengths: dict[int, Counter[int]] = {}
        """Number of prefixed patterns of each length by resource type: a lookup tries only these prefixes of a name."""
        self._by_principal: dict[tuple[int, str], dict[Acl, None]] = {}

    def add(self, acl: Acl) -> None:
        key = (acl.resource_type, acl.pattern_type, acl.name)
        if key not in self._patterns:
            self._patterns[key] = {}
            if acl.pattern_type == PatternType.PREFIXED:
                self._prefix_lengths.setdefault(acl.resource_type, Counter())[len(acl.name)] += 1
        self._patterns[key].setdefault(acl.principal, {})[acl] = None
        self._by_principal.setdefault((acl.resource_type, acl.principal), {})[acl] = None

    def remove(self, acl: Acl) -> None:
        key, principal_key = (acl.resource_type, acl.pattern_type, acl.name), (acl.resource_type, acl.principal)
        rules = self._patterns[key]
        del rules[acl.principal][acl], self._by_principal[principal_key][acl]
        if not self._by_principal[principal_key]:
            del self._by_principal[principal_key]
        if not rules[acl.principal]:
            del rules[acl.principal]
        if not rules:
            del self._patterns[key]
            if acl.pattern_type == PatternType.PREFIXED:
                lengths = self._prefix_lengths[acl.resource_type]
                lengths[len(acl.name)] -= 1
                if not lengths[len(acl.name)]:
                    del lengths[len(acl.name)]

    def decide(self, principal: str, host: str, operation: int, resource_type: int, name: str) -> AclPermission | None:
        """Return the permission for an operation on a resource, or None if no ACL applies to the resource.

        If ACLs apply to the resource but none to the principal, the result is DENY.
        """
        is_allowed = has_acl = False
        for rules in self._matching_rules(resource_type, name):
            has_acl = True
            for name_of_principal in (principal, ALL_USERS):
                for acl in rules.get(name_of_principal, ()):
                    permission = acl_permission(acl, host, operation)
                    if permission == AclPermission.DENY:
                        return AclPermission.DENY
                    is_allowed = is_allowed or permission == AclPermission.ALLOW
        if not has_acl:
            return None
        return AclPermission.ALLOW if is_allowed else AclPermission.DENY

    def allows_any_resource(self, principal: str, host: str, operation: int, resource_type: int) -> bool:
        """Return whether the operation may be allowed on some resource of the type (KIP-679).

        Only ACLs for this very operation or for ALL are considered.
        """
        allowed: list[Acl] = []
        denied: set[tuple[int, str]] = set()
        for name_of_principal in (principal, ALL_USERS):
            for acl in self._by_principal.get((resource_type, name_of_principal), ()):
                if acl.operation not in (AclOperation.ALL, operation):
                    continue  # as in Kafka, implied operations do not count here
                permission = acl_permission(acl, host, operation)
                if permission == AclPermission.DENY:
                    denied.add((acl.pattern_type, acl.name))
                elif permission == AclPermission.ALLOW:
                    allowed.append(acl)
        if (PatternType.LITERAL, WILDCARD) in denied:
            return False
        return any(not _is_dominated(acl, denied) for acl in allowed)

    def _matching_rules(self, resource_type: int, name: str) -> Iterator[AclsByPrincipal]:
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


def _is_dominated(allowed: Acl, denied: set[tuple[int, str]]) -> bool:
    """Return whether DENY rules cover everything that an ALLOW rule grants."""
    name = allowed.name
    is_literal = allowed.pattern_type == PatternType.LITERAL
    if is_literal and name == WILDCARD:
        return False  # the others deny only some of all possible names
    if is_literal and (PatternType.LITERAL, name) in denied:
        return True
    return any((PatternType.PREFIXED, name[:length]) in denied for length in range(1, len(name) + 1))

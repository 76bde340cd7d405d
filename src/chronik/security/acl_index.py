"""All ACLs, by what they are about: how many there are does not matter to whoever asks for one resource."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from chronik.metadata.records import Acl
from chronik.protocol.permissions import Operation
from chronik.security.acls import EVERYONE, WILDCARD, PatternType, Permission, verdict

Rules = dict[str, dict[Acl, None]]
"""The ACLs of one pattern, by principal."""


class AclIndex:
    def __init__(self) -> None:
        self._patterns: dict[tuple[int, int, str], Rules] = {}
        """By resource type, pattern type and name."""
        self._prefix_lengths: dict[int, Counter[int]] = {}
        """How many prefixes of each length there are, by resource type: only these are looked for in a name."""
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
        key, whose = (acl.resource_type, acl.pattern_type, acl.name), (acl.resource_type, acl.principal)
        rules = self._patterns[key]
        del rules[acl.principal][acl], self._by_principal[whose][acl]
        if not self._by_principal[whose]:
            del self._by_principal[whose]
        if not rules[acl.principal]:
            del rules[acl.principal]
        if not rules:
            del self._patterns[key]
            if acl.pattern_type == PatternType.PREFIXED:
                lengths = self._prefix_lengths[acl.resource_type]
                lengths[len(acl.name)] -= 1
                if not lengths[len(acl.name)]:
                    del lengths[len(acl.name)]

    def decide(self, principal: str, host: str, operation: int, resource_type: int, name: str) -> Permission | None:
        """Returns None when there is no ACL about the resource at all. Whoever is not named by any is denied."""
        is_allowed = is_ruled = False
        for rules in self._about(resource_type, name):
            is_ruled = True
            for who in (principal, EVERYONE):
                for acl in rules.get(who, ()):
                    said = verdict(acl, host, operation)
                    if said == Permission.DENY:
                        return Permission.DENY
                    is_allowed = is_allowed or said == Permission.ALLOW
        if not is_ruled:
            return None
        return Permission.ALLOW if is_allowed else Permission.DENY

    def allows_one(self, principal: str, host: str, operation: int, resource_type: int) -> bool:
        """Whether there may be a resource of the type with which it is allowed, going by the ACLs that are about this
        very operation, or all (KIP-679)."""
        allowed: list[Acl] = []
        denied: set[tuple[int, str]] = set()
        for who in (principal, EVERYONE):
            for acl in self._by_principal.get((resource_type, who), ()):
                if acl.operation not in (Operation.ALL, operation):
                    continue  # what is implied does not count here
                said = verdict(acl, host, operation)
                if said == Permission.DENY:
                    denied.add((acl.pattern_type, acl.name))
                elif said == Permission.ALLOW:
                    allowed.append(acl)
        if (PatternType.LITERAL, WILDCARD) in denied:
            return False
        return any(not _is_dominated(acl, denied) for acl in allowed)

    def _about(self, resource_type: int, name: str) -> Iterator[Rules]:
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
    """Whether all that an ACL allows is denied by others."""
    name = allowed.name
    is_literal = allowed.pattern_type == PatternType.LITERAL
    if is_literal and name == WILDCARD:
        return False  # others deny some of it, but not all that there could be
    if is_literal and (PatternType.LITERAL, name) in denied:
        return True
    return any((PatternType.PREFIXED, name[:length]) in denied for length in range(1, len(name) + 1))

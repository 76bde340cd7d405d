"""Semantics of ACLs as in Kafka's StandardAuthorizer: matching, implied operations, filters and validation."""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple

from chronik.addresses import normalized
from chronik.limits import ACL_NAME_CHARACTERS_MAX
from chronik.metadata.records import Acl
from chronik.principals import Principal
from chronik.protocol.permissions import CLUSTER_NAME, Operation, ResourceType

ANY: Final = 1
"""Value of a filter field that matches anything. A name, principal or host is None in that case."""

WILDCARD: Final = "*"
"""Literal name that matches every resource of a type; also every host."""

EVERYONE: Final = "User:*"
"""Principal that matches every user."""


class PatternType(IntEnum):
    """How an ACL matches resource names, with Kafka's numbers."""

    LITERAL = 3
    PREFIXED = 4


MATCH: Final = 2
"""Pattern type of a filter that matches every ACL which applies to the named resource."""


class Permission(IntEnum):
    """The effect of an ACL, with Kafka's numbers."""

    DENY = 2
    ALLOW = 3


_IMPLIED_BY: Final = {
    Operation.DESCRIBE: (Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER),
    Operation.DESCRIBE_CONFIGS: (Operation.ALTER_CONFIGS,),
}
ALLOWING: Final[dict[int, frozenset[int]]] = {
    operation: frozenset({Operation.ALL, operation, *_IMPLIED_BY.get(operation, ())}) for operation in Operation
}
"""Operations whose ALLOW rules also allow the given operation. DENY rules imply nothing."""


def verdict(acl: Acl, host: str, operation: int) -> int | None:
    """Return the permission of an ACL that applies to the resource and principal, for a client at the given address.

    None means that the ACL is for another host or operation. The address must be normalized.
    """
    if acl.host != WILDCARD and normalized(acl.host) != host:
        return None
    if acl.permission == Permission.DENY:
        return acl.permission if acl.operation in (Operation.ALL, operation) else None
    return acl.permission if acl.operation in ALLOWING[operation] else None


class Filter(NamedTuple):
    """A filter of DescribeAcls or DeleteAcls."""

    resource_type: int
    name: str | None
    pattern_type: int
    principal: str | None
    host: str | None
    operation: int
    permission: int

    @property
    def only(self) -> Acl | None:
        """Return the only ACL that the filter can match, or None if it has a wildcard field."""
        acl = Acl(
            self.resource_type,
            self.name or "",
            self.pattern_type,
            self.principal or "",
            self.host or "",
            self.operation,
            self.permission,
        )
        return acl if fault_of(acl) is None else None

    @property
    def is_known(self) -> bool:
        """Return whether all enum values of the filter are known."""
        return (
            (self.resource_type == ANY or self.resource_type in RESOURCE_TYPES)
            and (self.pattern_type in (ANY, MATCH) or self.pattern_type in PATTERN_TYPES)
            and (self.operation == ANY or self.operation in OPERATIONS)
            and (self.permission == ANY or self.permission in PERMISSIONS)
        )

    def finds(self, acl: Acl) -> bool:
        """Return whether the filter matches the ACL."""
        return (
            self.resource_type in (ANY, acl.resource_type)
            and self.operation in (ANY, acl.operation)
            and self.permission in (ANY, acl.permission)
            and (self.principal is None or self.principal == acl.principal)
            and (self.host is None or self.host == acl.host)
            and self._matches_pattern(acl)
        )

    def _matches_pattern(self, acl: Acl) -> bool:
        if self.pattern_type not in (ANY, MATCH, acl.pattern_type):
            return False
        if self.name is None or self.name == acl.name:
            return True
        if self.pattern_type != MATCH:
            return False
        if acl.pattern_type == PatternType.LITERAL:
            return acl.name == WILDCARD
        return self.name.startswith(acl.name)


RESOURCE_TYPES: Final = frozenset(ResourceType)
OPERATIONS: Final = frozenset(Operation)
PATTERN_TYPES: Final = frozenset(PatternType)
PERMISSIONS: Final = frozenset(Permission)


def fault_of(acl: Acl) -> str | None:
    """Return why an ACL is invalid, in the words of Kafka's controller, or None if it is valid."""
    numbers = {
        "resourceType": (acl.resource_type, RESOURCE_TYPES),
        "patternType": (acl.pattern_type, PATTERN_TYPES),
        "operation": (acl.operation, OPERATIONS),
        "permissionType": (acl.permission, PERMISSIONS),
    }
    for name, (number, known) in numbers.items():
        if number not in known:
            return f"Invalid {name} {'ANY' if number == ANY else number}"
    if acl.resource_type == ResourceType.CLUSTER and acl.name != CLUSTER_NAME:
        return f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}"
    if not acl.name:
        return "Invalid empty resource name"
    if not acl.host:
        return "Invalid empty host"
    try:
        Principal.parse(acl.principal)
    except ValueError as error:
        return f"Could not parse principal from `{acl.principal[:100]}`: {error}"
    if max(len(acl.name), len(acl.principal), len(acl.host)) > ACL_NAME_CHARACTERS_MAX:
        return f"A name in an ACL has at most {ACL_NAME_CHARACTERS_MAX} characters"
    return None

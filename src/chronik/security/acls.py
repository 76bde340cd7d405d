"""Semantics of ACLs as in Kafka's StandardAuthorizer: matching, implied operations, filters and validation."""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple

from chronik.ip_addresses import normalize_host
from chronik.limits import ACL_NAME_CHARACTERS_MAX
from chronik.metadata.records import Acl
from chronik.principals import Principal
from chronik.protocol.permissions import CLUSTER_NAME, KAFKA_RESOURCE_TYPES, AclOperation, AclResourceType

ANY_VALUE: Final = 1
"""Value of an enum field that matches everything in an ACL filter. For string fields, it is None.

As a resource type, it matches only Kafka's types, because Kafka's clients reject responses with types that they do not
know.
"""

WILDCARD: Final = "*"
"""Resource name that matches all resources of a type, and host that matches all client addresses."""

ALL_USERS: Final = "User:*"
"""Principal that matches every user."""


class PatternType(IntEnum):
    """The way in which an ACL matches resource names, with Kafka's numeric codes."""

    LITERAL = 3
    PREFIXED = 4


MATCH_PATTERN: Final = 2
"""Pattern type of a filter that matches every ACL which applies to the named resource."""


class AclPermission(IntEnum):
    """The permission type of an ACL, with Kafka's numeric codes."""

    DENY = 2
    ALLOW = 3


_IMPLIED_BY: Final = {
    AclOperation.DESCRIBE: (AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER),
    AclOperation.DESCRIBE_CONFIGS: (AclOperation.ALTER_CONFIGS,),
}
ALLOWING_OPERATIONS: Final[dict[int, frozenset[int]]] = {
    operation: frozenset({AclOperation.ALL, operation, *_IMPLIED_BY.get(operation, ())}) for operation in AclOperation
}
"""For each operation, the operations whose ALLOW rules grant it. DENY rules do not imply other operations."""


def get_acl_permission(acl: Acl, host: str, operation: int) -> int | None:
    """Return the permission of an ACL for an operation of a client at the given address.

    The ACL must match the resource and the principal. Return None if its host or operation does not match. The address
    must be normalized.
    """
    if acl.host != WILDCARD and normalize_host(acl.host) != host:
        return None
    if acl.permission == AclPermission.DENY:
        return acl.permission if acl.operation in (AclOperation.ALL, operation) else None
    return acl.permission if acl.operation in ALLOWING_OPERATIONS[operation] else None


class AclFilterPattern(NamedTuple):
    """A filter of DescribeAcls or DeleteAcls."""

    resource_type: int
    name: str | None
    pattern_type: int
    principal: str | None
    host: str | None
    operation: int
    permission: int

    @property
    def exact_acl(self) -> Acl | None:
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
        return acl if find_acl_error(acl) is None else None

    @property
    def is_valid(self) -> bool:
        """Return whether all enum fields of the filter have known values."""
        return (
            (self.resource_type == ANY_VALUE or self.resource_type in RESOURCE_TYPES)
            and (self.pattern_type in (ANY_VALUE, MATCH_PATTERN) or self.pattern_type in PATTERN_TYPES)
            and (self.operation == ANY_VALUE or self.operation in OPERATIONS)
            and (self.permission == ANY_VALUE or self.permission in PERMISSIONS)
        )

    def matches(self, acl: Acl) -> bool:
        """Return whether the filter matches the ACL."""
        return (
            self._matches_resource_type(acl)
            and self.operation in (ANY_VALUE, acl.operation)
            and self.permission in (ANY_VALUE, acl.permission)
            and (self.principal is None or self.principal == acl.principal)
            and (self.host is None or self.host == acl.host)
            and self._matches_pattern(acl)
        )

    def _matches_resource_type(self, acl: Acl) -> bool:
        if self.resource_type == ANY_VALUE:
            return acl.resource_type in KAFKA_RESOURCE_TYPES
        return self.resource_type == acl.resource_type

    def _matches_pattern(self, acl: Acl) -> bool:
        if self.pattern_type not in (ANY_VALUE, MATCH_PATTERN, acl.pattern_type):
            return False
        if self.name is None or self.name == acl.name:
            return True
        if self.pattern_type != MATCH_PATTERN:
            return False
        if acl.pattern_type == PatternType.LITERAL:
            return acl.name == WILDCARD
        return self.name.startswith(acl.name)


RESOURCE_TYPES: Final = frozenset(AclResourceType)
OPERATIONS: Final = frozenset(AclOperation)
PATTERN_TYPES: Final = frozenset(PatternType)
PERMISSIONS: Final = frozenset(AclPermission)


def find_acl_error(acl: Acl) -> str | None:
    """Return why an ACL is invalid, in the words of Kafka's controller, or None if it is valid."""
    numbers = {
        "resourceType": (acl.resource_type, RESOURCE_TYPES),
        "patternType": (acl.pattern_type, PATTERN_TYPES),
        "operation": (acl.operation, OPERATIONS),
        "permissionType": (acl.permission, PERMISSIONS),
    }
    for name, (number, known) in numbers.items():
        if number not in known:
            return f"Invalid {name} {'ANY' if number == ANY_VALUE else number}"
    if acl.resource_type == AclResourceType.CLUSTER and acl.name != CLUSTER_NAME:
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

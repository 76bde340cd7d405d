"""The operations and resource types of Kafka's ACLs, and the permissions that APIs require."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from functools import cache
from typing import Final, NamedTuple, TypeVar

_E = TypeVar("_E", bound=IntEnum)


class AclOperation(IntEnum):
    """An operation in an access control list (ACL), with Kafka's number."""

    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class AclResourceType(IntEnum):
    """A type of resource that an access control list (ACL) protects, with Kafka's number, or 100 and above if only
    Chronik has it.
    """

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7
    SUBJECT = 100
    """A subject of the schema registry. Confluent's tools know the type, but Kafka has no number for it."""


KAFKA_RESOURCE_TYPES: Final = frozenset(each for each in AclResourceType if each < AclResourceType.SUBJECT)
"""The resource types that Kafka has."""


CLUSTER_NAME: Final = "kafka-cluster"
"""The resource name of the cluster in ACLs."""


class RequiredPermission(NamedTuple):
    """An ACL operation on a type of resource that a request requires."""

    operation: AclOperation
    resource_type: AclResourceType


@cache
def parse_permissions(text: str) -> tuple[RequiredPermission, ...]:
    """Parse a list of required permissions such as "Read Group, Write TransactionalId".

    Raises:
        ValueError: An operation or resource type is unknown.
    """
    pairs = (pair.split() for pair in text.split(",") if pair)
    return tuple(
        RequiredPermission(_parse_enum_name(AclOperation, operation), _parse_enum_name(AclResourceType, on))
        for operation, on in pairs
    )


def _parse_enum_name(kind: type[_E], word: str) -> _E:
    for each in kind:
        if each.name.title().replace("_", "") == word:
            return each
    raise ValueError(f"unknown operation or resource type {word!r}; see protocol/permissions.py")


def encode_operations_as_bit_field(operations: Iterable[AclOperation]) -> int:
    """Encode ACL operations as the bit field of authorized operations in responses."""
    return sum(1 << operation for operation in operations)


TOPIC_OPERATIONS: Final = (
    AclOperation.READ,
    AclOperation.WRITE,
    AclOperation.CREATE,
    AclOperation.DELETE,
    AclOperation.ALTER,
    AclOperation.DESCRIBE,
    AclOperation.DESCRIBE_CONFIGS,
    AclOperation.ALTER_CONFIGS,
)
SUBJECT_OPERATIONS: Final = (
    AclOperation.READ,
    AclOperation.WRITE,
    AclOperation.DELETE,
    AclOperation.DESCRIBE,
    AclOperation.DESCRIBE_CONFIGS,
    AclOperation.ALTER_CONFIGS,
)
GROUP_OPERATIONS: Final = (
    AclOperation.READ,
    AclOperation.DELETE,
    AclOperation.DESCRIBE,
    AclOperation.DESCRIBE_CONFIGS,
    AclOperation.ALTER_CONFIGS,
)
CLUSTER_OPERATIONS: Final = (
    AclOperation.CREATE,
    AclOperation.ALTER,
    AclOperation.DESCRIBE,
    AclOperation.CLUSTER_ACTION,
    AclOperation.DESCRIBE_CONFIGS,
    AclOperation.ALTER_CONFIGS,
    AclOperation.IDEMPOTENT_WRITE,
)
OPERATIONS_BY_RESOURCE_TYPE: Final = {
    AclResourceType.TOPIC: TOPIC_OPERATIONS,
    AclResourceType.GROUP: GROUP_OPERATIONS,
    AclResourceType.CLUSTER: CLUSTER_OPERATIONS,
    AclResourceType.TRANSACTIONAL_ID: (AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.TWO_PHASE_COMMIT),
    AclResourceType.DELEGATION_TOKEN: (AclOperation.DESCRIBE,),
    AclResourceType.USER: (AclOperation.CREATE_TOKENS, AclOperation.DESCRIBE_TOKENS),
    AclResourceType.SUBJECT: SUBJECT_OPERATIONS,
}
"""The ACL operations that apply to each resource type."""

TOPIC_OPERATION_BITS: Final = encode_operations_as_bit_field(TOPIC_OPERATIONS)
GROUP_OPERATION_BITS: Final = encode_operations_as_bit_field(GROUP_OPERATIONS)
CLUSTER_OPERATION_BITS: Final = encode_operations_as_bit_field(CLUSTER_OPERATIONS)
"""The bit field of all ACL operations on the cluster."""

"""The operations and resource types of Kafka's ACLs, and the permissions that APIs require."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from functools import cache
from typing import Final, NamedTuple, TypeVar

_E = TypeVar("_E", bound=IntEnum)


class Operation(IntEnum):
    """An operation of Kafka's ACLs."""

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


class ResourceType(IntEnum):
    """A resource type of Kafka's ACLs."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


CLUSTER_NAME: Final = "kafka-cluster"
"""The name of the only resource of type Cluster."""


class Need(NamedTuple):
    """A required permission: an operation on a resource type."""

    operation: Operation
    resource_type: ResourceType


@cache
def parse_needs(text: str) -> tuple[Need, ...]:
    """Parse permissions such as "Read Group, Write TransactionalId".

    Raises:
        ValueError: An operation or resource type is unknown.
    """
    pairs = (pair.split() for pair in text.split(",") if pair)
    return tuple(Need(_parse_word(Operation, operation), _parse_word(ResourceType, on)) for operation, on in pairs)


def _parse_word(kind: type[_E], word: str) -> _E:
    for each in kind:
        if each.name.title().replace("_", "") == word:
            return each
    raise ValueError(f"unknown operation or resource type {word!r}; see protocol/permissions.py")


def bits_of(operations: Iterable[Operation]) -> int:
    """Return the operations as the bit field of Kafka's authorized operations."""
    return sum(1 << operation for operation in operations)


ON_TOPIC: Final = (
    Operation.READ,
    Operation.WRITE,
    Operation.CREATE,
    Operation.DELETE,
    Operation.ALTER,
    Operation.DESCRIBE,
    Operation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS,
)
ON_GROUP: Final = (
    Operation.READ,
    Operation.DELETE,
    Operation.DESCRIBE,
    Operation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS,
)
ON_CLUSTER: Final = (
    Operation.CREATE,
    Operation.ALTER,
    Operation.DESCRIBE,
    Operation.CLUSTER_ACTION,
    Operation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS,
    Operation.IDEMPOTENT_WRITE,
)
OPERATIONS_ON: Final = {
    ResourceType.TOPIC: ON_TOPIC,
    ResourceType.GROUP: ON_GROUP,
    ResourceType.CLUSTER: ON_CLUSTER,
    ResourceType.TRANSACTIONAL_ID: (Operation.WRITE, Operation.DESCRIBE, Operation.TWO_PHASE_COMMIT),
    ResourceType.DELEGATION_TOKEN: (Operation.DESCRIBE,),
    ResourceType.USER: (Operation.CREATE_TOKENS, Operation.DESCRIBE_TOKENS),
}
"""The operations that each resource type supports."""

ALL_ON_TOPIC: Final = bits_of(ON_TOPIC)
ALL_ON_GROUP: Final = bits_of(ON_GROUP)
ALL_ON_CLUSTER: Final = bits_of(ON_CLUSTER)
"""The supported operations as bit fields, as responses return a client's authorized operations."""

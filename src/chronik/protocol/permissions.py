"""What a client must be allowed to do, in the words and numbers of Kafka's ACLs."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from functools import cache
from typing import Final, NamedTuple, TypeVar

_E = TypeVar("_E", bound=IntEnum)


class Operation(IntEnum):
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
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


CLUSTER_NAME: Final = "kafka-cluster"
"""What the one resource of the type Cluster is called."""


class Need(NamedTuple):
    operation: Operation
    resource_type: ResourceType


@cache
def parse_needs(text: str) -> tuple[Need, ...]:
    """Reads text such as "Read Group, Write TransactionalId". Raises ValueError for any other word."""
    pairs = (pair.split() for pair in text.split(",") if pair)
    return tuple(Need(_word(Operation, operation), _word(ResourceType, on)) for operation, on in pairs)


def _word(kind: type[_E], word: str) -> _E:
    for each in kind:
        if each.name.title().replace("_", "") == word:
            return each
    raise ValueError(f"unknown word {word!r}; see Operation and ResourceType in protocol/permissions.py")


def bits_of(operations: Iterable[Operation]) -> int:
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
"""The operations that exist on each resource."""

ALL_ON_TOPIC: Final = bits_of(ON_TOPIC)
ALL_ON_GROUP: Final = bits_of(ON_GROUP)
ALL_ON_CLUSTER: Final = bits_of(ON_CLUSTER)
"""The same as the bits in which answers list what a client may do."""

"""What a client must be allowed to do, in the words and numbers of Kafka's ACLs. Nobody is refused anything yet."""

from __future__ import annotations

from enum import IntEnum
from functools import cache
from typing import Final, NamedTuple


class Operation(IntEnum):
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


class ResourceType(IntEnum):
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5


class Need(NamedTuple):
    operation: Operation
    resource_type: ResourceType


_WORDS: Final = {each.name.title().replace("_", ""): each for each in (*Operation, *ResourceType)}


@cache
def parse_needs(text: str) -> tuple[Need, ...]:
    """Reads text such as "Read Group, Write TransactionalId". Raises KeyError for any other word."""
    pairs = (pair.split() for pair in text.split(",") if pair)
    return tuple(Need(Operation(_WORDS[operation]), ResourceType(_WORDS[on])) for operation, on in pairs)


def _bits(*operations: Operation) -> int:
    return sum(1 << operation for operation in operations)


ALL_ON_TOPIC: Final = _bits(*set(Operation) - {Operation.CLUSTER_ACTION, Operation.IDEMPOTENT_WRITE})
ALL_ON_GROUP: Final = _bits(Operation.READ, Operation.DELETE, Operation.DESCRIBE)
ALL_ON_CLUSTER: Final = _bits(*set(Operation) - {Operation.READ, Operation.WRITE, Operation.DELETE})
"""The operations that exist on each resource, as the bits in which answers list what a client may do."""

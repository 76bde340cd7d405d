"""The ACLs that producers and consumers need, as created by `kafka-acls.sh --producer` and `--consumer`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from chronik.protocol.permissions import CLUSTER_NAME, AclOperation, AclResourceType
from chronik.security.acls import PatternType

_TOPIC_OPERATIONS_OF_PRODUCERS: Final = (AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.CREATE)
_TRANSACTIONAL_ID_OPERATIONS: Final = (AclOperation.WRITE, AclOperation.DESCRIBE)
_TOPIC_OPERATIONS_OF_CONSUMERS: Final = (AclOperation.READ, AclOperation.DESCRIBE)


class ResourceOperation(NamedTuple):
    """An operation on the resources that match a pattern."""

    resource_type: AclResourceType
    name: str
    pattern_type: PatternType
    operation: AclOperation


def list_producer_operations(
    topics: Sequence[str], transactional_ids: Sequence[str], pattern: PatternType, *, idempotent: bool
) -> list[ResourceOperation]:
    """Return the operations of a producer. `idempotent` adds IdempotentWrite on the cluster."""
    return [
        *_combine(AclResourceType.TOPIC, topics, pattern, _TOPIC_OPERATIONS_OF_PRODUCERS),
        *_combine(AclResourceType.TRANSACTIONAL_ID, transactional_ids, pattern, _TRANSACTIONAL_ID_OPERATIONS),
        *(
            _combine(AclResourceType.CLUSTER, [CLUSTER_NAME], PatternType.LITERAL, [AclOperation.IDEMPOTENT_WRITE])
            if idempotent
            else ()
        ),
    ]


def list_consumer_operations(
    topics: Sequence[str], groups: Sequence[str], pattern: PatternType
) -> list[ResourceOperation]:
    """Return the operations of a consumer in any of the groups."""
    return [
        *_combine(AclResourceType.TOPIC, topics, pattern, _TOPIC_OPERATIONS_OF_CONSUMERS),
        *_combine(AclResourceType.GROUP, groups, pattern, [AclOperation.READ]),
    ]


def _combine(
    resource_type: AclResourceType, names: Sequence[str], pattern: PatternType, operations: Sequence[AclOperation]
) -> Iterator[ResourceOperation]:
    return (ResourceOperation(resource_type, name, pattern, operation) for name in names for operation in operations)

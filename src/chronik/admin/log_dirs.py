"""The log directory of this node: partition sizes, and requests to move replicas into it."""

from __future__ import annotations

from typing import NamedTuple

from chronik.broker.replica_manager import ReplicaManager
from chronik.metadata.stores.store import MetadataStore
from chronik.protocol.errors import ErrorCode


class PartitionSize(NamedTuple):
    """The size of a partition on disk and its lag."""

    size_bytes: int
    offset_lag: int
    """The number of offsets behind the high watermark."""


def read_partition_size(store: MetadataStore, replicas: ReplicaManager, topic: str, index: int) -> PartitionSize | None:
    """Return the size of a partition, or None if it is not hosted here."""
    replica = replicas.find(topic, index)
    if replica is None:
        return None
    replica.open()
    partition = store.image.topics_by_id[replica.topic_id].partitions[index]
    return PartitionSize(replica.log.size, replica.lag(partition.high_watermark))


def check_replica_move(store: MetadataStore, replicas: ReplicaManager, topic: str, index: int) -> ErrorCode:
    """Return the error code for a request to move a replica into this directory: NONE if it is already there."""
    known = store.image.topics.get(topic)
    if known is None or not known.has_partition(index):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.NONE if replicas.find(topic, index) is not None else ErrorCode.REPLICA_NOT_AVAILABLE

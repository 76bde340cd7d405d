"""The data folder of this node, of which there is one: what its partitions take, and which replicas are in it."""

from __future__ import annotations

from typing import NamedTuple

from chronik.broker.replicas import Replicas
from chronik.metadata.stores.store import MetadataStore
from chronik.protocol.errors import ErrorCode


class PartitionSize(NamedTuple):
    size_bytes: int
    offset_lag: int
    """How far it is behind the high watermark."""


def partition_size(store: MetadataStore, replicas: Replicas, topic: str, index: int) -> PartitionSize | None:
    """Returns None for a partition that is not here."""
    replica = replicas.get(topic, index)
    if replica is None:
        return None
    replica.open()
    partition = store.image.topics_by_id[replica.topic_id].partitions[index]
    return PartitionSize(replica.log.size, replica.lag(partition.high_watermark))


def refusal_of_move(store: MetadataStore, replicas: Replicas, topic: str, index: int) -> ErrorCode:
    """Returns what to say to whoever wants a replica in this folder: it is there, or cannot go there."""
    known = store.image.topics.get(topic)
    if known is None or not known.has_partition(index):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.NONE if replicas.get(topic, index) is not None else ErrorCode.REPLICA_NOT_AVAILABLE

"""The data folder of this node, of which there is one: what its partitions take, and which replicas are in it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from chronik.admin.partitions import NamedPartition
from chronik.broker.replicas import Replicas
from chronik.metadata.stores.store import MetadataStore
from chronik.protocol.errors import ErrorCode


class PartitionSize(NamedTuple):
    topic: str
    partition: int
    size_bytes: int
    offset_lag: int
    """How far it is behind the high watermark."""


def partition_sizes(
    store: MetadataStore, replicas: Replicas, wanted: Iterable[NamedPartition] | None
) -> Iterator[PartitionSize]:
    """Yields those that are wanted and here, each once; for None all that are here."""
    if wanted is None:
        found = list(replicas)
    else:
        named = (replicas.get(each.topic, each.partition) for each in dict.fromkeys(wanted))
        found = [replica for replica in named if replica is not None]
    for replica in found:
        if replicas.get(replica.topic_name, replica.index) is not replica:
            continue  # deleted since
        replica.open()
        partition = store.image.topics_by_id[replica.topic_id].partitions[replica.index]
        lag = replica.lag(partition.high_watermark)
        yield PartitionSize(replica.topic_name, replica.index, replica.log.size, lag)


def refusal_of_move(store: MetadataStore, replicas: Replicas, wanted: NamedPartition) -> ErrorCode:
    """Returns what to say to whoever wants a replica in this folder: it is there, or cannot go there."""
    topic = store.image.topics.get(wanted.topic)
    if topic is None or not topic.has_partition(wanted.partition):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    is_here = replicas.get(wanted.topic, wanted.partition) is not None
    return ErrorCode.NONE if is_here else ErrorCode.REPLICA_NOT_AVAILABLE

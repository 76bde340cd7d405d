"""Offsets of OffsetCommit and TxnOffsetCommit requests."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Sequence

from chronik.api.shared.context import Services
from chronik.metadata.chunking import YieldTimer, iter_chunks
from chronik.metadata.commands.base import NO_EPOCH
from chronik.metadata.commands.groups import OffsetToCommit
from chronik.metadata.names import OFFSETS_TOPIC
from chronik.metadata.records import Topic
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.offset_commit import OffsetCommitRequestPartition
from chronik.protocol.messages.txn_offset_commit import TxnOffsetCommitRequestPartition

logger = logging.getLogger("chronik.api")

CommitPartitions = Sequence[OffsetCommitRequestPartition | TxnOffsetCommitRequestPartition]


async def select_known_offsets(
    topics: Iterable[tuple[Topic | None, CommitPartitions]],
) -> dict[tuple[str, int], OffsetToCommit]:
    """Return the offsets to commit for partitions that exist, by topic name and partition.

    If a request names a partition several times, the last offset wins, as in Kafka.
    """
    known: dict[tuple[str, int], OffsetToCommit] = {}
    pace = YieldTimer()
    for topic, partitions in topics:
        if topic is None:
            continue
        for chunk in iter_chunks(partitions):
            for partition in chunk:
                if topic.has_partition(partition.partition_index):
                    known[topic.name, partition.partition_index] = OffsetToCommit(
                        topic=topic.name,
                        partition=partition.partition_index,
                        offset=partition.committed_offset,
                        leader_epoch=max(partition.committed_leader_epoch, NO_EPOCH),  # negative means no epoch
                        metadata=partition.committed_metadata,
                    )
            await pace.yield_if_due()
    return known


async def ensure_offsets_topic(services: Services, codes: Collection[ErrorCode]) -> None:
    """Create the topic `__consumer_offsets` after the first offset commit in standalone mode.

    Tools expect the topic to exist.

    A failure is only logged: the commits themselves are stored in the metadata log.
    """
    if not services.coordinators.is_standalone or OFFSETS_TOPIC in services.image.topics:
        return
    if ErrorCode.NONE in codes:
        for error in (await services.topics.create_missing_topics([OFFSETS_TOPIC])).values():
            logger.warning("topic %s: creation failed: %s; committed offsets are not affected", OFFSETS_TOPIC, error)

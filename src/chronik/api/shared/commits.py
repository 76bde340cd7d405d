"""Offsets from requests that commit them, with a transaction or without."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Sequence

from chronik.api.shared.context import Services
from chronik.metadata.commands.base import NO_EPOCH
from chronik.metadata.commands.groups import OffsetToCommit
from chronik.metadata.names import OFFSETS_TOPIC
from chronik.metadata.records import Topic
from chronik.metadata.slices import Pace, in_pieces
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.offset_commit import OffsetCommitRequestPartition
from chronik.protocol.messages.txn_offset_commit import TxnOffsetCommitRequestPartition

logger = logging.getLogger("chronik.api")

Partitions = Sequence[OffsetCommitRequestPartition | TxnOffsetCommitRequestPartition]


async def offsets_of_known(topics: Iterable[tuple[Topic | None, Partitions]]) -> dict[tuple[str, int], OffsetToCommit]:
    """Returns the offsets for partitions that exist. Of several of one partition the last counts, as in Kafka."""
    known: dict[tuple[str, int], OffsetToCommit] = {}
    pace = Pace()
    for topic, partitions in topics:
        if topic is None:
            continue
        for some in in_pieces(partitions):
            for partition in some:
                if topic.has_partition(partition.partition_index):
                    known[topic.name, partition.partition_index] = OffsetToCommit(
                        topic=topic.name,
                        partition=partition.partition_index,
                        offset=partition.committed_offset,
                        leader_epoch=max(partition.committed_leader_epoch, NO_EPOCH),  # any negative one means none
                        metadata=partition.committed_metadata,
                    )
            await pace.yield_if_due()
    return known


async def list_offsets_topic(services: Services, codes: Collection[ErrorCode]) -> None:
    """Tools look for it where groups have committed. The commits are stored, whatever becomes of it."""
    if not services.coordinators.stands_alone or OFFSETS_TOPIC in services.image.topics:
        return
    if ErrorCode.NONE in codes:
        for error in (await services.topics.create_missing([OFFSETS_TOPIC])).values():
            logger.warning("%s cannot be made: %s", OFFSETS_TOPIC, error)

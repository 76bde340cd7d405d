"""Periodic checkpoints of high watermarks and log start offsets in the metadata.

A new leader, or a node without any of the partition's records, knows both offsets at least as of the last checkpoint.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from chronik.broker.replica import Replica
from chronik.broker.replica_manager import ReplicaManager
from chronik.metadata.commands.partitions import OffsetCheckpoint, UpdatePartitionOffset
from chronik.metadata.stores.store import MetadataStore
from chronik.protocol.errors import KafkaError

logger = logging.getLogger("chronik.replication")

CHECKPOINT_SECONDS: Final = 30.0

CHECKPOINTS_PER_COMMAND_MAX: Final = 1000
"""Maximum number of partitions per command, which is applied in one event-loop iteration."""


class OffsetCheckpoints:
    """A job that proposes checkpoints for the partitions that this node leads."""

    def __init__(
        self, store: MetadataStore, replicas: ReplicaManager, interval_seconds: float = CHECKPOINT_SECONDS
    ) -> None:
        self._store = store
        self._replicas = replicas
        self._interval_seconds = interval_seconds

    async def run(self) -> None:
        while True:
            await asyncio.sleep(self._interval_seconds)
            checkpoints: list[OffsetCheckpoint] = []
            for batch in self._replicas.iter_chunks():
                checkpoints += [
                    checkpoint for replica in batch if (checkpoint := self._checkpoint(replica)) is not None
                ]
                await asyncio.sleep(0)
            for first in range(0, len(checkpoints), CHECKPOINTS_PER_COMMAND_MAX):
                try:
                    command = UpdatePartitionOffset(tuple(checkpoints[first : first + CHECKPOINTS_PER_COMMAND_MAX]))
                    await self._store.propose(command)
                except KafkaError as error:
                    logger.info("offset checkpoint failed: %s; retrying at the next interval", error)

    def _checkpoint(self, replica: Replica) -> OffsetCheckpoint | None:
        log = replica.log_if_open
        topic = self._store.image.all_topics_by_id.get(replica.topic_id)
        if log is None or topic is None or not replica.is_leader or log.has_lost_all_records:
            return None
        stored = topic.partitions[replica.index]
        start = min(log.log_start_offset, replica.high_watermark)
        if (stored.high_watermark, stored.log_start_offset) == (replica.high_watermark, start):
            return None
        return OffsetCheckpoint(replica.topic_id, replica.index, replica.leader_epoch, replica.high_watermark, start)

"""High watermarks and log starts, written down for the whole cluster now and then: never once per produce.

A node that has just become the leader knows them at least as of that time, and so does a node that has none of the
partition's records.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from chronik.broker.replica import Replica
from chronik.broker.replicas import Replicas
from chronik.metadata.commands.partitions import OffsetCheckpoint, UpdatePartitionOffset
from chronik.metadata.stores.store import MetadataStore
from chronik.protocol.errors import KafkaError

logger = logging.getLogger("chronik.replication")

CHECKPOINT_SECONDS: Final = 30.0

CHECKPOINTS_PER_COMMAND_MAX: Final = 1000
"""Changes in one command, which is applied in one turn of the loop. A node proposes one command at a time."""


class OffsetCheckpoints:
    def __init__(self, store: MetadataStore, replicas: Replicas, interval_seconds: float = CHECKPOINT_SECONDS) -> None:
        self._store = store
        self._replicas = replicas
        self._interval_seconds = interval_seconds

    async def run(self) -> None:
        while True:
            await asyncio.sleep(self._interval_seconds)
            moved: list[OffsetCheckpoint] = []
            for some in self._replicas.in_pieces():
                moved += [checkpoint for replica in some if (checkpoint := self._moved(replica)) is not None]
                await asyncio.sleep(0)
            for first in range(0, len(moved), CHECKPOINTS_PER_COMMAND_MAX):
                try:
                    command = UpdatePartitionOffset(tuple(moved[first : first + CHECKPOINTS_PER_COMMAND_MAX]))
                    await self._store.propose(command)
                except KafkaError as error:
                    logger.info("offsets are not written down this time: %s", error)

    def _moved(self, replica: Replica) -> OffsetCheckpoint | None:
        log = replica.opened_log
        topic = self._store.image.held_topics.get(replica.topic_id)
        if log is None or topic is None or not replica.leads or log.is_lost:
            return None
        written = topic.partitions[replica.index]
        start = min(log.log_start_offset, replica.high_watermark)
        if (written.high_watermark, written.log_start_offset) == (replica.high_watermark, start):
            return None
        return OffsetCheckpoint(replica.topic_id, replica.index, replica.leader_epoch, replica.high_watermark, start)

"""What a node does about its logs when nobody asks: retention, compaction, and checkpoints of what is synced."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from chronik.broker.replica import Replica
from chronik.broker.replicas import Replicas
from chronik.clock import Clock
from chronik.configs.resolver import ConfigResolver
from chronik.log.synced import SyncedOffsets

logger = logging.getLogger("chronik.broker")

CHECKPOINT_SECONDS = 5.0
"""After a power cut the log behind the last checkpoint is scanned: a few seconds' worth, whatever the load was."""

SYNC_SECONDS = 30.0
"""How long written bytes stay unsynced with `flush = "os"`, and removed files on disk."""


class Housekeeping:
    def __init__(
        self, replicas: Replicas, synced_offsets: SyncedOffsets, configs: ConfigResolver, clock: Clock
    ) -> None:
        self._replicas = replicas
        self._synced_offsets = synced_offsets
        self._configs = configs
        self._clock = clock

    def tasks(self) -> list[Callable[[], Awaitable[None]]]:
        return [
            self._open_all,
            self._keep_retention,
            self._keep_compacting,
            self._keep_syncing,
            self._keep_checkpoints,
            self._replicas.keep_removing,
        ]

    async def _open_all(self) -> None:
        """Recovers every partition soon after the start, one at a time, so that the first request need not wait."""
        for replica in self._replicas:
            if not replica.abandoned:
                replica.open()
            await asyncio.sleep(0)

    async def _keep_retention(self) -> None:
        while True:
            await asyncio.sleep(self._configs.broker_int("log.retention.check.interval.ms") / 1000)
            for replica in self._replicas:
                log = replica.opened_log
                if log is not None:
                    log.apply_retention(self._clock.now_ms(), replica.high_watermark)
                    replica.sync_soon()
                await asyncio.sleep(0)

    async def _keep_compacting(self) -> None:
        while True:
            await asyncio.sleep(self._configs.broker_int("log.cleaner.backoff.ms") / 1000)
            if self._configs.broker_flag("log.cleaner.enable"):
                for replica in self._replicas:
                    await self._compact(replica)

    async def _compact(self, replica: Replica) -> None:
        log = replica.opened_log
        compaction = None if log is None else log.begin_compaction(self._clock.now_ms(), replica.high_watermark)
        if log is None or compaction is None or replica.abandoned:
            return
        # A thread of its own: opening a large batch takes long, and the loop must go on meanwhile.
        replica.compaction = asyncio.ensure_future(asyncio.to_thread(compaction.run))
        try:
            await replica.compaction
        except FileNotFoundError:
            logger.info("%r lost segments while it was compacted: next time", replica)
            return
        finally:
            replica.compaction = None
        if not replica.abandoned and log.complete_compaction(compaction):
            logger.info("%r is compacted up to offset %d", replica, compaction.compacted_offset)
            replica.sync_soon()

    async def _keep_syncing(self) -> None:
        """With `flush = "os"` nothing else moves the point from which the log is checked after a crash."""
        while True:
            await asyncio.sleep(SYNC_SECONDS)
            for replica in self._replicas:
                replica.sync_soon()

    async def _keep_checkpoints(self) -> None:
        while True:
            await asyncio.sleep(CHECKPOINT_SECONDS)
            await asyncio.to_thread(self._synced_offsets.sync)

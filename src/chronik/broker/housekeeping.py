"""What a node does about its logs when nobody asks: retention, compaction, and checkpoints of what is synced."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from chronik.broker.replicas import Replicas
from chronik.clock import Clock
from chronik.configs.resolver import ConfigResolver
from chronik.log.synced import SyncedOffsets

logger = logging.getLogger("chronik.broker")

CHECKPOINT_SECONDS = 5.0
"""After a power cut the log behind the last checkpoint is scanned: a few seconds' worth, whatever the load was."""


class Housekeeping:
    def __init__(
        self, replicas: Replicas, synced_offsets: SyncedOffsets, configs: ConfigResolver, clock: Clock
    ) -> None:
        self._replicas = replicas
        self._synced_offsets = synced_offsets
        self._configs = configs
        self._clock = clock

    def tasks(self) -> list[Callable[[], Awaitable[None]]]:
        return [self._open_all, self._keep_retention, self._keep_compacting, self._keep_checkpoints]

    async def _open_all(self) -> None:
        """Recovers every partition soon after the start, one at a time, so that the first request need not wait."""
        for replica in self._replicas:
            replica.open()
            await asyncio.sleep(0)

    async def _keep_retention(self) -> None:
        while True:
            await asyncio.sleep(self._configs.broker_int("log.retention.check.interval.ms") / 1000)
            await asyncio.to_thread(self._replicas.remove_deleted)
            for replica in self._replicas:
                log = replica.opened_log
                if log is not None:
                    log.apply_retention(self._clock.now_ms(), replica.high_watermark)
                await asyncio.sleep(0)

    async def _keep_compacting(self) -> None:
        while True:
            await asyncio.sleep(self._configs.broker_int("log.cleaner.backoff.ms") / 1000)
            if not self._configs.broker_flag("log.cleaner.enable"):
                continue
            for replica in self._replicas:
                log = replica.opened_log
                if log is None or not replica.rules.compacted:
                    continue
                for _ in log.compact(self._clock.now_ms(), replica.high_watermark):
                    await asyncio.sleep(0)

    async def _keep_checkpoints(self) -> None:
        while True:
            await asyncio.sleep(CHECKPOINT_SECONDS)
            await asyncio.to_thread(self._synced_offsets.sync)

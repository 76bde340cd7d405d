"""Background maintenance of a node's logs: retention, compaction, and checkpoints of synced offsets."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Awaitable, Callable

from chronik.broker.replica import Replica
from chronik.broker.replica_manager import ReplicaManager, run_in_thread
from chronik.clock import Clock
from chronik.configs.resolver import ConfigResolver
from chronik.log.compaction import Compaction
from chronik.log.files.synced_offsets import SyncedOffsets
from chronik.metadata.delta import Delta
from chronik.protocol.errors import KafkaError

logger = logging.getLogger("chronik.broker")

CHECKPOINT_SECONDS = 5.0
"""Interval in seconds between checkpoints of the synced offsets of all logs.

After a power failure, recovery scans each log from its last checkpoint.
"""

SYNC_SECONDS = 30.0
"""Interval in seconds between periodic syncs of all logs, which also delete the files of removed segments."""

COMPACTION_PAUSE_SECONDS_MIN = 0.1
"""Minimum pause in seconds between compaction rounds, because `log.cleaner.backoff.ms` may be 0."""


class LogMaintenance:
    """The background tasks that maintain a node's logs."""

    def __init__(
        self, replicas: ReplicaManager, synced_offsets: SyncedOffsets, configs: ConfigResolver, clock: Clock
    ) -> None:
        self._replicas = replicas
        self._synced_offsets = synced_offsets
        self._configs = configs
        self._clock = clock
        self._configs_changed = asyncio.Event()

    def apply_delta(self, delta: Delta) -> None:
        """Apply a metadata delta: wake the compaction task if broker configs have changed."""
        if delta.broker_configs:
            self._configs_changed.set()

    def list_background_tasks(self) -> list[Callable[[], Awaitable[None]]]:
        """Return the coroutine functions of the log maintenance tasks, such as retention and compaction."""
        return [
            self._open_all_logs,
            self._run_retention,
            self._run_compaction,
            self._run_periodic_syncs,
            self._run_periodic_checkpoints,
            self._replicas.removals.run,
        ]

    async def _open_all_logs(self) -> None:
        """Open and recover all partitions after the start, so that their first requests need not wait."""
        await self._replicas.registered.wait()
        for replica in self._replicas:
            if not replica.is_abandoned:
                replica.open()
            await asyncio.sleep(0)

    async def _run_retention(self) -> None:
        while True:
            await asyncio.sleep(self._configs.broker_int("log.retention.check.interval.ms") / 1000)
            for replica in self._replicas:
                replica.apply_retention(self._clock.now_ms())
                await asyncio.sleep(0)
            if self._replicas.registered.is_set():
                self._replicas.delete_expired_directories()

    async def _run_compaction(self) -> None:
        while True:
            await self._wait_for_compaction()
            if self._configs.broker_flag("log.cleaner.enable"):
                for chunk in self._replicas.iter_chunks():
                    for replica in chunk:
                        await self._compact_log(replica)
                    await asyncio.sleep(0)

    async def _wait_for_compaction(self) -> None:
        """Wait for `log.cleaner.backoff.ms` until the next log compaction.

        Config changes take effect immediately.
        """
        loop = asyncio.get_running_loop()
        began = loop.time()
        while (left := began + self._compaction_pause_seconds - loop.time()) > 0:
            self._configs_changed.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._configs_changed.wait(), left)

    @property
    def _compaction_pause_seconds(self) -> float:
        return max(self._configs.broker_int("log.cleaner.backoff.ms") / 1000, COMPACTION_PAUSE_SECONDS_MIN)

    async def _compact_log(self, replica: Replica) -> None:
        log = None if replica.is_hidden else replica.log_if_open
        compaction = None if log is None else log.begin_compaction(self._clock.now_ms(), replica.committed_end_offset)
        if log is None or compaction is None or replica.is_abandoned:
            return
        try:
            await self._compact_in_thread(compaction, replica)
        except FileNotFoundError:
            logger.info(
                "%r: compaction aborted: its segments were deleted concurrently; retrying in the next round", replica
            )
            return
        except KafkaError as error:
            # Batches from before the topic was compacted were not validated, so they may be unreadable.
            logger.error("%r: compaction failed: %s; the log is unchanged", replica, error)
            return
        if not replica.is_abandoned and log.complete_compaction(compaction):
            logger.info("%r: log compacted end_offset=%d", replica, compaction.compacted_offset)
            replica.syncer.request_sync_if_needed()

    async def _compact_in_thread(self, compaction: Compaction, replica: Replica) -> None:
        """Compact a log in a thread, because decompressing a large batch would block the event loop.

        The thread stops early when the topic is deleted or the node stops, and always before this method returns.
        """
        stopping = threading.Event()

        def run() -> None:
            for _ in compaction.steps():
                if replica.is_abandoned or stopping.is_set():
                    return

        replica.compaction = asyncio.ensure_future(asyncio.to_thread(run))
        try:
            await asyncio.shield(replica.compaction)
        except asyncio.CancelledError:
            stopping.set()
            await asyncio.wait([replica.compaction])
            raise
        finally:
            replica.compaction = None

    async def _run_periodic_syncs(self) -> None:
        """Sync all logs to disk periodically.

        With `flush = "os"` nothing else advances the synced offsets.
        """
        while True:
            await asyncio.sleep(SYNC_SECONDS)
            for chunk in self._replicas.iter_chunks():
                for replica in chunk:
                    replica.syncer.request_sync_if_needed()
                await asyncio.sleep(0)

    async def _run_periodic_checkpoints(self) -> None:
        while True:
            await asyncio.sleep(CHECKPOINT_SECONDS)
            await run_in_thread(self._synced_offsets.sync)

"""The syncs of one log, and the tasks that wait for them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from chronik.broker.flusher import Flusher
from chronik.log.partition_log import PartitionLog
from chronik.log.sync import SyncTask
from chronik.protocol.errors import ErrorCode, KafkaError


def _ignore_synced(log: PartitionLog) -> None: ...


class LogSyncer:
    """The syncs of one log: its unsynced bytes, and the tasks that wait for a sync."""

    __slots__ = (
        "_bytes_appended",
        "_bytes_synced",
        "_bytes_syncing",
        "_flusher",
        "_next",
        "_now",
        "_on_synced",
        "is_abandoned",
        "log",
    )

    def __init__(self, flusher: Flusher, on_synced: Callable[[PartitionLog], None]) -> None:
        self.log: PartitionLog | None = None
        self.is_abandoned = False
        self._flusher = flusher
        self._on_synced = on_synced
        self._next: list[asyncio.Future[None]] = []  # waiters for the next sync
        self._now: list[asyncio.Future[None]] = []  # waiters for the sync in progress
        self._bytes_appended = 0
        self._bytes_syncing = 0
        self._bytes_synced = 0

    @property
    def unsynced_bytes(self) -> int:
        return self._bytes_appended - self._bytes_synced

    def record_append(self, size: int) -> None:
        """Count bytes that were appended to the log."""
        self._bytes_appended += size

    def request_sync(self) -> None:
        """Schedule a sync of the log."""
        self._flusher.request_sync(self)

    def request_sync_if_needed(self) -> None:
        """Schedule a sync of the log if it has unsynced changes."""
        if self.log is not None and self.log.needs_sync and not self.is_abandoned:
            self._flusher.request_sync(self)

    async def wait_until_idle(self) -> None:
        """Wait until no sync of the log is in progress."""
        await self._flusher.wait_until_idle(self)

    async def wait_until_synced(self) -> None:
        """Wait until everything that the log contains now is synced.

        This takes a new sync, or the one in progress if nothing was written since it started.

        Raises:
            KafkaError: UNKNOWN_TOPIC_OR_PARTITION if the partition is removed.
        """
        if self.log is None or self.is_abandoned:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self.log.needs_sync:
            self._next.append(waiter)
            self._flusher.request_sync(self)
        elif self.log.is_syncing:
            self._now.append(waiter)
        else:
            return
        await waiter

    def begin_sync(self) -> SyncTask | None:
        """Return a sync task of the log, or None if everything is synced."""
        if self.log is None or self.is_abandoned:
            return None
        task = self.log.begin_sync()
        self._bytes_syncing = self._bytes_appended
        self._now, self._next = self._next, []
        if task is None:
            self._wake_waiters()
        return task

    def complete_sync(self, task: SyncTask) -> None:
        """Record that a sync task has run, and wake its waiters."""
        log = self.log
        if log is None:
            return
        log.complete_sync(task)
        self._bytes_synced = self._bytes_syncing
        if not self.is_abandoned:
            self._on_synced(log)
            self._wake_waiters()

    def abandon(self) -> None:
        """Fail all waiters, because the partition was removed."""
        self.is_abandoned = True
        self._on_synced = _ignore_synced  # breaks the reference cycle with the replica: see node/garbage
        for waiter in (*self._next, *self._now):
            if not waiter.done():
                waiter.set_exception(KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        self._next, self._now = [], []

    def _wake_waiters(self) -> None:
        for waiter in self._now:
            if not waiter.done():
                waiter.set_result(None)
        self._now = []

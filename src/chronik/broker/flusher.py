"""Group commit: one fdatasync covers many appends.

A small pool of threads syncs the logs that were written to, one sync at a time per log. The next sync covers everything
that was appended during the current one, so the disk sets the pace.

A thread switch takes as long as a small sync on a fast disk. While syncs are fast and a single log has few bytes to
sync, the event loop therefore syncs inline, until a sync is slow.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, NamedTuple, Protocol

from chronik.histogram import Histogram
from chronik.limits import KIB
from chronik.log.partition_log import PartitionLog
from chronik.log.sync import SyncTask
from chronik.protocol.errors import ErrorCode, KafkaError

SLOW_SYNC_SECONDS: Final = 0.05
"""Duration in seconds above which a disk sync of a log counts as slow.

It is a hundred times the usual duration on a healthy disk.
"""

RECENT_SLOW_SYNCS_MAX: Final = 200
"""Maximum number of recent slow syncs that the status page lists."""

SYNC_THREADS = 4
"""Number of threads that sync logs to disk.

fdatasync has a cost per file: 100 files take 25 ms in one thread, 8 ms in four.
"""

INLINE_BYTES_MAX = 16 * KIB
"""Maximum number of bytes that the event loop syncs to disk without a thread.

Larger syncs take longer than a thread switch.
"""

INLINE_SECONDS_MAX = 0.0005
"""Duration in seconds below which a disk sync of a log counts as fast.

Only after fast syncs does the event loop sync without a thread.
"""

INLINE_AFTER_FAST_SYNCS = 16
"""Number of consecutive fast disk syncs after which the event loop syncs without a thread."""


class SyncInterval(NamedTuple):
    """The start and end time of a disk sync of a log, measured with `time.perf_counter`."""

    started_at: float
    ended_at: float

    @property
    def seconds(self) -> float:
        return self.ended_at - self.started_at


class SyncMetrics:
    """The number and durations of a node's disk syncs, with a list of recent slow syncs."""

    __slots__ = ("count", "durations", "longest_seconds", "slow_count", "slow_syncs")

    def __init__(self) -> None:
        self.count = 0
        self.durations = Histogram()
        self.longest_seconds = 0.0
        self.slow_count = 0
        self.slow_syncs: deque[SyncInterval] = deque(maxlen=RECENT_SLOW_SYNCS_MAX)

    def add(self, sync: SyncInterval) -> None:
        self.count += 1
        seconds = sync.ended_at - sync.started_at
        self.durations.record(seconds)
        if seconds > self.longest_seconds:
            self.longest_seconds = seconds
        if seconds > SLOW_SYNC_SECONDS:
            self.slow_count += 1
            self.slow_syncs.append(sync)

    def to_json(self) -> dict[str, Any]:
        """Return the sync metrics as a JSON-compatible dict for the status page.

        `recent_slow` has [start, end] of each sync in seconds, oldest first.
        """
        return {
            "count": self.count,
            "longest_ms": round(1000 * self.longest_seconds, 3),
            "slow": self.slow_count,
            "recent_slow": [list(sync) for sync in self.slow_syncs],
        }


class Flushable(Protocol):
    """A log that the flusher can sync."""

    @property
    def unsynced_bytes(self) -> int: ...

    def begin_sync(self) -> SyncTask | None:
        """Return a task that syncs the log's pending changes, or None if there are none."""

    def complete_sync(self, ticket: SyncTask) -> None:
        """Mark the changes that a completed sync task covers as durable."""


class Flusher:
    """The component that syncs logs to disk with group commit: one sync covers many appends."""

    def __init__(self, on_failure: Callable[[BaseException], None]) -> None:
        self._on_failure = on_failure
        self._threads = ThreadPoolExecutor(SYNC_THREADS, thread_name_prefix="sync")
        self._syncing: dict[Flushable, bool] = {}  # value: whether the log was written to during its sync
        self._waiters: dict[Flushable, list[asyncio.Future[None]]] = {}
        self._idle: asyncio.Event = asyncio.Event()
        self._idle.set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._failed = False
        self._fast_syncs = 0  # consecutive
        self.metrics = SyncMetrics()

    def request_sync(self, log: Flushable) -> None:
        """Schedule a sync of `log` after the current event-loop iteration, so that it covers all pending appends."""
        if log in self._syncing:
            self._syncing[log] = True
            return
        self._syncing[log] = False
        self._idle.clear()
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        self._loop.call_soon(self._begin_sync, log)

    async def drain(self) -> None:
        """Wait until all requested log syncs have completed."""
        await self._idle.wait()

    async def wait_until_idle(self, log: Flushable) -> None:
        """Wait until no sync of `log` is in progress."""
        if log in self._syncing:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.setdefault(log, []).append(waiter)
            await waiter

    def close(self) -> None:
        self._threads.shutdown(wait=True)

    def _begin_sync(self, log: Flushable) -> None:
        assert self._loop is not None
        self._syncing[log] = False
        try:
            ticket = None if self._failed else log.begin_sync()
        except Exception as error:
            self._fail(log, error)
            return
        if ticket is None:
            self._mark_log_idle(log)
            return
        if self._can_sync_inline(log, ticket):
            self._record_sync_result(log, ticket, lambda: _run(ticket))
            return
        running = self._loop.run_in_executor(self._threads, _run, ticket)
        running.add_done_callback(lambda future: self._record_sync_result(log, ticket, future.result))

    def _can_sync_inline(self, log: Flushable, ticket: SyncTask) -> bool:
        return (
            self._fast_syncs >= INLINE_AFTER_FAST_SYNCS
            and len(self._syncing) == 1
            and log.unsynced_bytes <= INLINE_BYTES_MAX
            and ticket.is_single_file
        )

    def _record_sync_result(self, log: Flushable, ticket: SyncTask, outcome: Callable[[], SyncInterval]) -> None:
        """Record the result of a log's disk sync; `outcome` returns its start and end time, or raises its error."""
        try:
            sync = outcome()
            self.metrics.add(sync)
            is_fast = sync.ended_at - sync.started_at < INLINE_SECONDS_MAX
            self._fast_syncs = self._fast_syncs + 1 if is_fast else 0
            log.complete_sync(ticket)
        except (Exception, asyncio.CancelledError) as error:
            self._fail(log, error)
            return
        if self._syncing[log]:
            self._begin_sync(log)
        else:
            self._mark_log_idle(log)

    def _fail(self, log: Flushable, error: BaseException) -> None:
        """Report a failed disk sync, and reject all later syncs.

        The disk contents are unknown after a failed fsync.
        """
        self._failed = True
        self._mark_log_idle(log)
        self._on_failure(error)

    def _mark_log_idle(self, log: Flushable) -> None:
        del self._syncing[log]
        for waiter in self._waiters.pop(log, ()):
            if not waiter.done():
                waiter.set_result(None)
        if not self._syncing:
            self._idle.set()


class LogSyncer:
    """The disk sync state of one log: its unsynced bytes, and the callers that wait for a sync."""

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

    def record_appended_bytes(self, size: int) -> None:
        """Count bytes that were appended to the log."""
        self._bytes_appended += size

    def request_sync(self) -> None:
        """Schedule a sync of this log to disk."""
        self._flusher.request_sync(self)

    def request_sync_if_needed(self) -> None:
        """Schedule a sync of the log if it has unsynced changes."""
        if self.log is not None and self.log.needs_sync and not self.is_abandoned:
            self._flusher.request_sync(self)

    async def wait_until_idle(self) -> None:
        """Wait until no sync of the log is in progress."""
        await self._flusher.wait_until_idle(self)

    async def wait_until_synced(self) -> None:
        """Wait until all bytes that the log currently contains are synced to disk.

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
        """Return a task that syncs the log's pending changes, or None if there are none."""
        if self.log is None or self.is_abandoned:
            return None
        task = self.log.begin_sync()
        self._bytes_syncing = self._bytes_appended
        self._now, self._next = self._next, []
        if task is None:
            self._wake_sync_waiters()
        return task

    def complete_sync(self, task: SyncTask) -> None:
        """Mark the changes that a sync task covers as durable, and wake the callers that wait for them."""
        log = self.log
        if log is None:
            return
        log.complete_sync(task)
        self._bytes_synced = self._bytes_syncing
        if not self.is_abandoned:
            self._on_synced(log)
            self._wake_sync_waiters()

    def fail_waiters(self) -> None:
        """Fail all callers that wait for a sync of the log, because the partition was removed."""
        self.is_abandoned = True
        self._on_synced = (
            _ignore_completed_sync  # breaks the reference cycle with the replica: see `node.memory_tuning`
        )
        for waiter in (*self._next, *self._now):
            if not waiter.done():
                waiter.set_exception(KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        self._next, self._now = [], []

    def _wake_sync_waiters(self) -> None:
        for waiter in self._now:
            if not waiter.done():
                waiter.set_result(None)
        self._now = []


def _run(ticket: SyncTask) -> SyncInterval:
    began = time.perf_counter()
    ticket.run()
    return SyncInterval(began, time.perf_counter())


def _ignore_completed_sync(log: PartitionLog) -> None: ...

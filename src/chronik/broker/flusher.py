"""Group commit: one fdatasync covers many appends.

A small pool of threads syncs the logs that were written to, one sync at a time per log. The next sync covers everything
that was appended during the current one, so the disk sets the pace.

A thread switch takes as long as a small sync on a fast disk. While syncs are fast and a single log has few bytes to
sync, the event loop therefore syncs inline, until a sync is slow.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from chronik.broker.sync_metrics import SyncInterval, SyncMetrics
from chronik.limits import KIB
from chronik.log.sync import SyncTask

SYNC_THREADS = 4
"""Threads that run syncs. fdatasync has a cost per file: 100 files take 25 ms in one thread, 8 ms in four."""


INLINE_BYTES_MAX = 16 * KIB
"""Bytes that the event loop may sync inline; larger syncs take longer than a thread switch."""

INLINE_SECONDS_MAX = 0.0005
"""Sync duration up to which the event loop syncs inline, measured by the previous syncs."""

INLINE_AFTER_FAST_SYNCS = 16
"""Consecutive fast syncs that are required before the event loop syncs inline."""


class Flushable(Protocol):
    """A log that the flusher can sync."""

    @property
    def unsynced_bytes(self) -> int: ...

    def begin_sync(self) -> SyncTask | None:
        """Return a sync task, or None if everything is synced."""

    def complete_sync(self, ticket: SyncTask) -> None:
        """Record that a sync task has run."""


class Flusher:
    """The component that syncs logs with group commit."""

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
        """Schedule a sync of `log` after the current event-loop iteration, so that pending appends share it."""
        if log in self._syncing:
            self._syncing[log] = True
            return
        self._syncing[log] = False
        self._idle.clear()
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        self._loop.call_soon(self._begin, log)

    async def drain(self) -> None:
        """Wait until all requested syncs have completed."""
        await self._idle.wait()

    async def wait_until_idle(self, log: Flushable) -> None:
        """Wait until no sync of `log` is in progress."""
        if log in self._syncing:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.setdefault(log, []).append(waiter)
            await waiter

    def close(self) -> None:
        self._threads.shutdown(wait=True)

    def _begin(self, log: Flushable) -> None:
        assert self._loop is not None
        self._syncing[log] = False
        try:
            ticket = None if self._failed else log.begin_sync()
        except Exception as error:
            self._fail(log, error)
            return
        if ticket is None:
            self._finish(log)
            return
        if self._can_sync_inline(log, ticket):
            self._complete(log, ticket, lambda: _run(ticket))
            return
        running = self._loop.run_in_executor(self._threads, _run, ticket)
        running.add_done_callback(lambda future: self._complete(log, ticket, future.result))

    def _can_sync_inline(self, log: Flushable, ticket: SyncTask) -> bool:
        return (
            self._fast_syncs >= INLINE_AFTER_FAST_SYNCS
            and len(self._syncing) == 1
            and log.unsynced_bytes <= INLINE_BYTES_MAX
            and ticket.is_single_file
        )

    def _complete(self, log: Flushable, ticket: SyncTask, outcome: Callable[[], SyncInterval]) -> None:
        """Complete a sync. `outcome` returns its start and end time, or raises the error of a failed sync."""
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
            self._begin(log)
        else:
            self._finish(log)

    def _fail(self, log: Flushable, error: BaseException) -> None:
        """Report a failed sync and reject later ones: after a failed fsync, the contents of the disk are unknown."""
        self._failed = True
        self._finish(log)
        self._on_failure(error)

    def _finish(self, log: Flushable) -> None:
        del self._syncing[log]
        for waiter in self._waiters.pop(log, ()):
            if not waiter.done():
                waiter.set_result(None)
        if not self._syncing:
            self._idle.set()


def _run(ticket: SyncTask) -> SyncInterval:
    began = time.perf_counter()
    ticket.run()
    return SyncInterval(began, time.perf_counter())

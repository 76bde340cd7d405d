"""Group commit: many appends, one fdatasync.

A log that was written to is synced by a small pool of threads, one sync at a time per log. What is appended while a
sync runs is covered by the next, so that the disk sets the pace and each sync covers all that came meanwhile.

Waking a thread and being woken by it takes as long as a small sync on a fast disk. So while syncs are fast, and one log
alone has a little to sync, the loop waits for the disk itself; the first slow sync ends that.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from chronik.broker.sync_times import Sync, SyncTimes
from chronik.limits import KIB
from chronik.log.sync import SyncTicket

SYNC_THREADS = 4
"""fdatasync costs per file: 100 files take 25 ms in one thread, 8 ms in four."""


INLINE_BYTES_MAX = 16 * KIB
"""What the loop may sync itself; more takes the disk longer than waking a thread does."""

INLINE_SECONDS_MAX = 0.0005
"""How long the loop may wait for the disk, judged by the syncs before."""

INLINE_AFTER_FAST_SYNCS = 16
"""How many syncs in a row must have been fast before the loop trusts the disk."""


class Flushable(Protocol):
    """What the flusher needs of a log."""

    @property
    def unsynced_bytes(self) -> int: ...

    def begin_sync(self) -> SyncTicket | None:
        """Returns what to sync now; None when all is synced."""

    def complete_sync(self, ticket: SyncTicket) -> None:
        """Takes back a ticket that has run: its offset is on disk."""


class Flusher:
    def __init__(self, on_failure: Callable[[BaseException], None]) -> None:
        self._on_failure = on_failure
        self._threads = ThreadPoolExecutor(SYNC_THREADS, thread_name_prefix="sync")
        self._syncing: dict[Flushable, bool] = {}  # whether it was written to again while its sync runs
        self._settling: dict[Flushable, list[asyncio.Future[None]]] = {}
        self._idle: asyncio.Event = asyncio.Event()
        self._idle.set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._failed = False
        self._fast_syncs = 0  # in a row
        self.times = SyncTimes()

    def request(self, log: Flushable) -> None:
        """Syncs `log` soon: after what the loop has already received, so that it can share the sync."""
        if log in self._syncing:
            self._syncing[log] = True
            return
        self._syncing[log] = False
        self._idle.clear()
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        self._loop.call_soon(self._begin, log)

    async def drain(self) -> None:
        """Returns when everything requested is synced."""
        await self._idle.wait()

    async def settled(self, log: Flushable) -> None:
        """Returns when no sync of `log` is under way."""
        if log in self._syncing:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._settling.setdefault(log, []).append(waiter)
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
            self._finished(log)
            return
        if self._may_wait_for(log, ticket):
            self._synced(log, ticket, lambda: _run(ticket))
            return
        running = self._loop.run_in_executor(self._threads, _run, ticket)
        running.add_done_callback(lambda future: self._synced(log, ticket, future.result))

    def _may_wait_for(self, log: Flushable, ticket: SyncTicket) -> bool:
        return (
            self._fast_syncs >= INLINE_AFTER_FAST_SYNCS
            and len(self._syncing) == 1
            and log.unsynced_bytes <= INLINE_BYTES_MAX
            and ticket.is_plain
        )

    def _synced(self, log: Flushable, ticket: SyncTicket, outcome: Callable[[], Sync]) -> None:
        """`outcome` returns the time that the sync took, or raises what made it fail."""
        try:
            sync = outcome()
            self.times.add(sync)
            is_fast = sync.ended - sync.began < INLINE_SECONDS_MAX
            self._fast_syncs = self._fast_syncs + 1 if is_fast else 0
            log.complete_sync(ticket)
        except (Exception, asyncio.CancelledError) as error:
            self._fail(log, error)
            return
        if self._syncing[log]:
            self._begin(log)
        else:
            self._finished(log)

    def _fail(self, log: Flushable, error: BaseException) -> None:
        """After a failed fsync nothing is known of what is on disk: no later sync may claim success."""
        self._failed = True
        self._finished(log)
        self._on_failure(error)

    def _finished(self, log: Flushable) -> None:
        del self._syncing[log]
        for waiter in self._settling.pop(log, ()):
            if not waiter.done():
                waiter.set_result(None)
        if not self._syncing:
            self._idle.set()


def _run(ticket: SyncTicket) -> Sync:
    began = time.perf_counter()
    ticket.run()
    return Sync(began, time.perf_counter())

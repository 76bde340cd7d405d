"""Applies what is committed to the state machine, in order, and in slices that leave the loop to others in between."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from chronik.quorum.settings import DriverSettings
from chronik.quorum.snapshotting import Snapshots, StateMachine
from chronik.quorum.waiters import AppliedWaiters, Waiters
from chronik.quorum.watchdog import LoopWatchdog
from chronik.raft.entries import Entry, SnapshotMetadata

logger = logging.getLogger("chronik.raft")

SLICE_ENTRIES: Final = 32
SLICE_SECONDS: Final = 0.005
"""How many entries are applied at a time, and after how long others get the loop."""


class Applier:
    """`done` is called after each batch and each snapshot, when the state machine stands exactly at that index;
    `failed` with whatever it raises."""

    def __init__(
        self,
        machine: StateMachine,
        snapshots: Snapshots,
        waiters: Waiters,
        applied: AppliedWaiters,
        watchdog: LoopWatchdog,
        done: Callable[[int], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        self._machine = machine
        self._snapshots = snapshots
        self._waiters = waiters
        self._applied = applied
        self._watchdog = watchdog
        self._done = done
        self._failed = failed
        self._work: deque[SnapshotMetadata | Sequence[Entry]] = deque()
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._entries_since_snapshot = 0
        self._bytes_since_snapshot = 0
        self._seconds_since_snapshot = 0.0
        """The time that was spent on applying."""

    def is_snapshot_due(self, settings: DriverSettings) -> bool:
        """Whether enough was applied since the last snapshot, and nothing waits to be applied or restored."""
        is_due = (
            self._entries_since_snapshot >= settings.snapshot_entries
            or self._bytes_since_snapshot >= settings.snapshot_bytes
            or self._seconds_since_snapshot >= settings.snapshot_seconds
        )
        return is_due and not self._work

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run(), name="raft apply")
        self._task.add_done_callback(self._ended)

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def put(self, work: SnapshotMetadata | Sequence[Entry]) -> None:
        """Queues work; the core hands out the next batch when this one is applied, so hardly anything waits here."""
        self._work.append(work)
        self._wake.set()

    def begun_snapshot(self) -> None:
        self._entries_since_snapshot = self._bytes_since_snapshot = 0
        self._seconds_since_snapshot = 0.0

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._work:
                work = self._work.popleft()
                if not isinstance(work, SnapshotMetadata):
                    await self._apply(work)
                elif not any(isinstance(later, SnapshotMetadata) for later in self._work):
                    await self._restore(work)
                else:
                    continue  # a newer one has arrived meanwhile, and its file may have taken this one's place
                self._done(self._applied.index)

    async def _apply(self, entries: Sequence[Entry]) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        for begin in range(0, len(entries), SLICE_ENTRIES):
            piece = entries[begin : begin + SLICE_ENTRIES]
            applying = loop.time()
            self._machine.apply(piece)
            self._seconds_since_snapshot += loop.time() - applying
            self._entries_since_snapshot += len(piece)
            self._bytes_since_snapshot += sum(entry.size_bytes for entry in piece)
            self._applied.reached(piece[-1].index)
            self._waiters.applied(piece)
            held = loop.time() - began
            if held > SLICE_SECONDS:
                self._watchdog.ran("applying entries", held)
                await asyncio.sleep(0)
                began = loop.time()

    async def _restore(self, snapshot: SnapshotMetadata) -> None:
        logger.info("the state continues from a snapshot at index %d", snapshot.index)
        await self._snapshots.restore(snapshot.index)
        self.begun_snapshot()
        self._applied.reached(snapshot.index)
        self._waiters.restored(snapshot.index)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failed(error)

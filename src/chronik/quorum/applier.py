"""Application of committed entries to the state machine, in order and in slices that yield to the event loop."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from chronik.quorum.settings import DriverSettings
from chronik.quorum.snapshot_manager import SnapshotManager, StateMachine
from chronik.quorum.waiters import AppliedWaiters, RequestWaiters
from chronik.quorum.watchdog import EventLoopWatchdog
from chronik.raft.entries import RaftEntry, SnapshotMetadata

logger = logging.getLogger("chronik.raft")

SLICE_ENTRIES: Final = 32
SLICE_SECONDS: Final = 0.005
"""The number of log entries and the time in seconds after which applying entries yields to the event loop."""


class Applier:
    """The task that applies committed Raft entries to the state machine and restores snapshots.

    `on_applied` is called with the last index after each batch and each snapshot, `on_failure` if the state machine
    raises.
    """

    def __init__(
        self,
        machine: StateMachine,
        snapshots: SnapshotManager,
        waiters: RequestWaiters,
        applied: AppliedWaiters,
        watchdog: EventLoopWatchdog,
        on_applied: Callable[[int], None],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._machine = machine
        self._snapshots = snapshots
        self._waiters = waiters
        self._applied = applied
        self._watchdog = watchdog
        self._done = on_applied
        self._failed = on_failure
        self._work: deque[SnapshotMetadata | Sequence[RaftEntry]] = deque()
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._entries_since_snapshot = 0
        self._bytes_since_snapshot = 0
        self._seconds_since_snapshot = 0.0
        """The time in seconds spent applying entries since the last snapshot."""

    def is_snapshot_due(self, settings: DriverSettings) -> bool:
        """Return whether a threshold for taking a snapshot is exceeded and nothing is queued to be applied."""
        is_due = (
            self._entries_since_snapshot >= settings.snapshot_entries
            or self._bytes_since_snapshot >= settings.snapshot_bytes
            or self._seconds_since_snapshot >= settings.snapshot_seconds
        )
        return is_due and not self._work

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run(), name="raft apply")
        self._task.add_done_callback(self._on_task_done)

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def enqueue(self, work: SnapshotMetadata | Sequence[RaftEntry]) -> None:
        """Queue committed entries to be applied, or a snapshot to be restored.

        The Raft core produces the next batch after this one is applied.
        """
        self._work.append(work)
        self._wake.set()

    def reset_snapshot_counters(self) -> None:
        self._entries_since_snapshot = self._bytes_since_snapshot = 0
        self._seconds_since_snapshot = 0.0

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._work:
                work = self._work.popleft()
                if not isinstance(work, SnapshotMetadata):
                    await self._apply_entries(work)
                elif not any(isinstance(later, SnapshotMetadata) for later in self._work):
                    await self._restore_snapshot(work)
                else:
                    continue  # a newer snapshot is queued, and its file may have replaced this one
                self._done(self._applied.index)

    async def _apply_entries(self, entries: Sequence[RaftEntry]) -> None:
        loop = asyncio.get_running_loop()
        slice_start = loop.time()
        for position in range(0, len(entries), SLICE_ENTRIES):
            batch = entries[position : position + SLICE_ENTRIES]
            started = loop.time()
            self._machine.apply(batch)
            self._seconds_since_snapshot += loop.time() - started
            self._entries_since_snapshot += len(batch)
            self._bytes_since_snapshot += sum(entry.size_bytes for entry in batch)
            self._applied.advance_applied_index(batch[-1].index)
            self._waiters.complete_applied_requests(batch)
            elapsed = loop.time() - slice_start
            if elapsed > SLICE_SECONDS:
                self._watchdog.record("applying entries", elapsed)
                await asyncio.sleep(0)
                slice_start = loop.time()

    async def _restore_snapshot(self, snapshot: SnapshotMetadata) -> None:
        logger.info("state machine: restoring the snapshot received from the leader: index=%d", snapshot.index)
        await self._snapshots.restore(snapshot.index)
        self.reset_snapshot_counters()
        self._applied.advance_applied_index(snapshot.index)
        self._waiters.fail_skipped_requests(snapshot.index)

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failed(error)

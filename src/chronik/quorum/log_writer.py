"""Writes of the Raft core's `Persist` instructions to disk, in the log thread, one at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial

from chronik.errors import check_invariant
from chronik.quorum.storage import PendingWrite, RaftStorage
from chronik.raft.events import Persist


class RaftLogWriter:
    """A writer that calls `on_written` with the sequence of each durable `Persist`, or `on_failure` with an error."""

    def __init__(
        self,
        storage: RaftStorage,
        thread: Executor,
        on_written: Callable[[int], None],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._storage = storage
        self._thread = thread
        self._written = on_written
        self._failed = on_failure
        self._pending_write: asyncio.Future[None] | None = None

    def write(self, persist: Persist) -> None:
        check_invariant(self._pending_write is None, "Raft log: a write is already in progress")
        write = self._storage.prepare_write(persist)
        self._pending_write = asyncio.get_running_loop().run_in_executor(self._thread, self._storage.write, write)
        self._pending_write.add_done_callback(partial(self._on_write_done, write))

    async def stop(self) -> None:
        """Wait until the current write is complete."""
        if self._pending_write is not None:
            await asyncio.gather(self._pending_write, return_exceptions=True)

    def _on_write_done(self, write: PendingWrite, pending_write: asyncio.Future[None]) -> None:
        self._pending_write = None
        error = pending_write.exception()
        if error is not None:
            self._failed(error)
        else:
            self._storage.complete_write(write)
            self._written(write.persist.sequence)

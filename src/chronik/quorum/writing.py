"""Writes what the core wants persisted to disk, in the log's thread, one write at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial

from chronik.errors import invariant
from chronik.quorum.storage import RaftStorage, Write
from chronik.raft.events import Persist


class LogWriter:
    """`written` is called when a `Persist` is durable, with its sequence; `failed` with whatever the disk raises."""

    def __init__(
        self,
        storage: RaftStorage,
        thread: Executor,
        written: Callable[[int], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        self._storage = storage
        self._thread = thread
        self._written = written
        self._failed = failed
        self._writing: asyncio.Future[None] | None = None

    def put(self, persist: Persist) -> None:
        invariant(self._writing is None, "one write at a time")
        write = self._storage.begin(persist)
        self._writing = asyncio.get_running_loop().run_in_executor(self._thread, self._storage.write, write)
        self._writing.add_done_callback(partial(self._ended, write))

    async def stop(self) -> None:
        """Waits until what is being written is finished."""
        if self._writing is not None:
            await asyncio.gather(self._writing, return_exceptions=True)

    def _ended(self, write: Write, writing: asyncio.Future[None]) -> None:
        self._writing = None
        error = writing.exception()
        if error is not None:
            self._failed(error)
        else:
            self._storage.finish(write)
            self._written(write.persist.sequence)

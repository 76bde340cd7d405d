"""Snapshots of the state machine: taken in the background, restored, and read in chunks for peers.

The state machine produces and consumes chunks on the event loop, a few milliseconds each. A separate thread accesses
the files, so that a large snapshot blocks neither the event loop nor the log's syncs.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import aclosing
from functools import partial
from typing import Protocol, TypeVar

from chronik.quorum.storage import RaftStorage
from chronik.quorum.watchdog import EventLoopWatchdog
from chronik.raft.entries import RaftEntry, SnapshotMetadata
from chronik.raft.events import SnapshotChunkRead, SnapshotChunkRequest
from chronik.raft.membership import Membership

logger = logging.getLogger("chronik.raft")

T = TypeVar("T")


class StateMachine(Protocol):
    """The interface of the replicated state machine to which the Raft driver applies committed entries."""

    def apply(self, entries: Sequence[RaftEntry]) -> None:
        """Apply the next committed entries, which are in log order and without gaps."""

    def begin_snapshot(self) -> Iterator[bytes]:
        """Return an iterator over the chunks of a snapshot of the current state.

        Entries applied during the iteration must not change its result. The iterator may be closed early.
        """

    async def install_snapshot(self, index: int, chunks: AsyncIterator[bytes]) -> None:
        """Replace the whole state with the snapshot at log index `index`."""


class SnapshotManager:
    """The component that takes snapshots of the state machine, restores them and reads them for peers.

    `thread` accesses the snapshot files, and `log_thread` changes the manifest.
    """

    def __init__(
        self,
        machine: StateMachine,
        storage: RaftStorage,
        thread: Executor,
        log_thread: Executor,
        watchdog: EventLoopWatchdog,
        *,
        on_taken: Callable[[SnapshotMetadata], None],
        on_chunk_read: Callable[[SnapshotChunkRead], None],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._machine = machine
        self._storage = storage
        self._thread = thread
        self._log_thread = log_thread
        self._watchdog = watchdog
        self._taken = on_taken
        self._read = on_chunk_read
        self._failed = on_failure
        self._task: asyncio.Task[None] | None = None
        self._pending_reads: set[asyncio.Future[bytes | None]] = set()

    @property
    def is_running(self) -> bool:
        return self._task is not None

    def start(self, index: int, term: int, membership: Membership) -> None:
        """Start taking a snapshot of the state machine, which must have applied exactly the entries up to `index`."""
        chunks = self._machine.begin_snapshot()
        first = self._next_chunk(
            chunks
        )  # not in the task, because a generator captures the state at its first step only
        work = self._write_snapshot(chunks, first, SnapshotMetadata(index, term, membership))
        self._task = asyncio.get_running_loop().create_task(work, name="snapshot")
        self._task.add_done_callback(self._on_task_done)

    async def cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def stop(self) -> None:
        await self.cancel()
        await asyncio.gather(*self._pending_reads, return_exceptions=True)

    async def restore(self, index: int) -> None:
        """Load the stored snapshot into the state machine, after cancelling a snapshot in progress."""
        await self.cancel()
        async with aclosing(self._iterate_chunks(index)) as chunks:
            await self._machine.install_snapshot(index, chunks)

    def read_chunk(self, request: SnapshotChunkRequest, newest: SnapshotMetadata) -> None:
        """Read a chunk of the current or the previous snapshot, to be sent to a peer."""
        snapshot = newest if newest.index == request.index else None
        pending_read = asyncio.get_running_loop().run_in_executor(
            self._thread, self._storage.read_chunk, request, snapshot
        )
        self._pending_reads.add(pending_read)
        pending_read.add_done_callback(partial(self._on_chunk_read, request))

    def _on_chunk_read(self, request: SnapshotChunkRequest, pending_read: asyncio.Future[bytes | None]) -> None:
        self._pending_reads.discard(pending_read)
        error = pending_read.exception()
        if error is not None:
            self._failed(error)
        else:
            self._read(SnapshotChunkRead(request.peer, request.index, request.offset, pending_read.result()))

    async def _write_snapshot(self, chunks: Iterator[bytes], chunk: bytes | None, snapshot: SnapshotMetadata) -> None:
        writer = self._storage.create_snapshot_writer(snapshot.index)
        try:
            while chunk is not None:
                await self._run_in_thread(partial(writer.write, chunk))
                chunk = self._next_chunk(chunks)
            size, checksum = await self._run_in_thread(writer.finish)
        except BaseException:
            await asyncio.shield(self._run_in_thread(writer.abandon))
            raise
        finally:
            _close_iterator(chunks)
        complete = SnapshotMetadata(snapshot.index, snapshot.term, snapshot.membership, size, checksum)
        loop = asyncio.get_running_loop()
        if await loop.run_in_executor(self._log_thread, self._storage.adopt_snapshot, complete):
            logger.info("snapshot taken: index=%d bytes=%d", complete.index, size)
            self._taken(complete)

    def _next_chunk(self, chunks: Iterator[bytes]) -> bytes | None:
        loop = asyncio.get_running_loop()
        started = loop.time()
        chunk = next(chunks, None)
        self._watchdog.record("snapshot chunk", loop.time() - started)
        return chunk

    async def _iterate_chunks(self, index: int) -> AsyncGenerator[bytes, None]:
        chunks = self._storage.read_snapshot(index)
        try:
            while (chunk := await self._run_in_thread(lambda: next(chunks, None))) is not None:
                yield chunk
        finally:
            # Shielded, because closing waits for the thread's current read even if the node is stopping.
            await asyncio.shield(self._run_in_thread(lambda: _close_iterator(chunks)))

    def _run_in_thread(self, work: Callable[[], T]) -> Awaitable[T]:
        return asyncio.get_running_loop().run_in_executor(self._thread, work)

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        self._task = None
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failed(error)


def _close_iterator(chunks: Iterator[bytes]) -> None:
    close = getattr(chunks, "close", None)
    if close is not None:
        close()

"""Snapshots of the local state: taken beside the work, restored in place of a log, read out for peers.

The state machine gives and takes chunks on the event loop, each a few milliseconds of work; files are written and
read in a thread of their own, so that a large snapshot holds up neither the loop nor the log's syncs.
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
from chronik.quorum.watchdog import LoopWatchdog
from chronik.raft.entries import Entry, SnapshotMetadata
from chronik.raft.events import SnapshotChunkRead, SnapshotChunkWanted
from chronik.raft.membership import Membership

logger = logging.getLogger("chronik.raft")

T = TypeVar("T")


class StateMachine(Protocol):
    """What the log is for. Its methods are called on the event loop, one at a time; what they raise stops the node."""

    def apply(self, entries: Sequence[Entry]) -> None:
        """Takes the next entries, in order and without a gap; every kind, so that all nodes count the same indexes."""

    def begin_snapshot(self) -> Iterator[bytes]:
        """Returns the state as it is now, in chunks of at least one byte that take a few milliseconds each. What is
        applied before the iterator is exhausted must not show in it. An iterator that is not needed is closed."""

    async def install_snapshot(self, index: int, chunks: AsyncIterator[bytes]) -> None:
        """Replaces the whole state by that of `index`: the chunks of a `begin_snapshot`, here or on another node."""


class Snapshots:
    """Takes one snapshot at a time. `thread` works on its files, `log_thread` on what changes the manifest."""

    def __init__(
        self,
        machine: StateMachine,
        storage: RaftStorage,
        thread: Executor,
        log_thread: Executor,
        watchdog: LoopWatchdog,
        *,
        taken: Callable[[SnapshotMetadata], None],
        read: Callable[[SnapshotChunkRead], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        self._machine = machine
        self._storage = storage
        self._thread = thread
        self._log_thread = log_thread
        self._watchdog = watchdog
        self._taken = taken
        self._read = read
        self._failed = failed
        self._task: asyncio.Task[None] | None = None
        self._reading: set[asyncio.Future[bytes | None]] = set()

    @property
    def is_under_way(self) -> bool:
        return self._task is not None

    def begin(self, index: int, term: int, membership: Membership) -> None:
        """Begins to take one; is called when the state machine has applied exactly `index`."""
        chunks = self._machine.begin_snapshot()
        first = self._next(chunks)  # now, and not in the task: an iterator may do nothing before it is asked
        work = self._take(chunks, first, SnapshotMetadata(index, term, membership))
        self._task = asyncio.get_running_loop().create_task(work, name="snapshot")
        self._task.add_done_callback(self._ended)

    async def cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def stop(self) -> None:
        await self.cancel()
        await asyncio.gather(*self._reading, return_exceptions=True)

    async def restore(self, index: int) -> None:
        """Loads the stored snapshot into the state machine; one that is being taken is of no use any more."""
        await self.cancel()
        async with aclosing(self._chunks(index)) as chunks:
            await self._machine.install_snapshot(index, chunks)

    def read_piece(self, wanted: SnapshotChunkWanted, newest: SnapshotMetadata) -> None:
        """Reads a piece for a peer, of the newest snapshot or of the one before."""
        snapshot = newest if newest.index == wanted.index else None
        reading = asyncio.get_running_loop().run_in_executor(self._thread, self._storage.read_piece, wanted, snapshot)
        self._reading.add(reading)
        reading.add_done_callback(partial(self._piece_read, wanted))

    def _piece_read(self, wanted: SnapshotChunkWanted, reading: asyncio.Future[bytes | None]) -> None:
        self._reading.discard(reading)
        error = reading.exception()
        if error is not None:
            self._failed(error)
        else:
            self._read(SnapshotChunkRead(wanted.peer, wanted.index, wanted.offset, reading.result()))

    async def _take(self, chunks: Iterator[bytes], chunk: bytes | None, snapshot: SnapshotMetadata) -> None:
        writer = self._storage.begin_snapshot(snapshot.index)
        try:
            while chunk is not None:
                await self._in_thread(partial(writer.write, chunk))
                chunk = self._next(chunks)
            size, checksum = await self._in_thread(writer.finish)
        except BaseException:
            await asyncio.shield(self._in_thread(writer.abandon))
            raise
        finally:
            _close(chunks)
        whole = SnapshotMetadata(snapshot.index, snapshot.term, snapshot.membership, size, checksum)
        loop = asyncio.get_running_loop()
        if await loop.run_in_executor(self._log_thread, self._storage.adopt, whole):
            logger.info("snapshot at index %d: %d bytes", whole.index, size)
            self._taken(whole)

    def _next(self, chunks: Iterator[bytes]) -> bytes | None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        chunk = next(chunks, None)
        self._watchdog.ran("a chunk of a snapshot", loop.time() - began)
        return chunk

    async def _chunks(self, index: int) -> AsyncGenerator[bytes, None]:
        chunks = self._storage.read_snapshot(index)
        try:
            while (chunk := await self._in_thread(lambda: next(chunks, None))) is not None:
                yield chunk
        finally:
            # It may have to wait for what the thread is reading: the node may stop at any time.
            await asyncio.shield(self._in_thread(lambda: _close(chunks)))

    def _in_thread(self, work: Callable[[], T]) -> Awaitable[T]:
        return asyncio.get_running_loop().run_in_executor(self._thread, work)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._task = None
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failed(error)


def _close(chunks: Iterator[bytes]) -> None:
    close = getattr(chunks, "close", None)
    if close is not None:
        close()

"""A node that stops during a snapshot restore stops cleanly, whatever its threads are doing."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import cast

import pytest

from chronik.quorum.snapshot_manager import SnapshotManager
from chronik.quorum.storage import RaftStorage
from chronik.quorum.watchdog import EventLoopWatchdog
from chronik.raft.entries import RaftEntry
from tests.peers.helpers import run, until


class SlowFile:
    """A snapshot with many chunks, each of which is read only when the test allows it."""

    def __init__(self) -> None:
        self.is_being_read = threading.Event()
        self.may_go_on = threading.Event()
        self.is_closed = False

    def read_snapshot(self, index: int) -> Iterator[bytes]:
        try:
            yield b"the first chunk"
            self.is_being_read.set()
            self.may_go_on.wait()
            yield b"the second chunk"
        finally:
            self.is_closed = True


class Machine:
    def __init__(self) -> None:
        self.received: list[bytes] = []
        self.holds_back = asyncio.Event()
        self.holds_back.set()

    def apply(self, entries: Sequence[RaftEntry]) -> None:
        raise AssertionError

    def begin_snapshot(self) -> Iterator[bytes]:
        raise AssertionError

    async def install_snapshot(self, index: int, chunks: AsyncIterator[bytes]) -> None:
        async for chunk in chunks:
            self.received.append(chunk)
            await self.holds_back.wait()


def make_snapshot_manager(
    file: SlowFile, machine: Machine, thread: ThreadPoolExecutor, failed: list[BaseException]
) -> SnapshotManager:
    storage = cast(RaftStorage, SimpleNamespace(read_snapshot=file.read_snapshot))
    return SnapshotManager(
        machine,
        storage,
        thread,
        thread,
        EventLoopWatchdog(),
        on_taken=lambda _: None,
        on_chunk_read=lambda _: None,
        on_failure=failed.append,
    )


@pytest.mark.parametrize("is_reading", [True, False], ids=["during a read", "between reads"])
def test_stop_during_restore_waits_for_thread_and_closes_file(is_reading: bool) -> None:
    async def scenario() -> None:
        file, machine, failed = SlowFile(), Machine(), list[BaseException]()
        with ThreadPoolExecutor(1) as thread:
            if not is_reading:
                machine.holds_back.clear()
            restoring = asyncio.create_task(make_snapshot_manager(file, machine, thread, failed).restore(7))
            if is_reading:
                await until(file.is_being_read.is_set)
            await until(lambda: machine.received == [b"the first chunk"])
            restoring.cancel()
            await asyncio.sleep(0)
            file.may_go_on.set()
            with pytest.raises(asyncio.CancelledError):
                await restoring
            assert file.is_closed
            assert machine.received == [b"the first chunk"]
            assert not failed

    run(scenario())


def test_restore_reads_all_chunks() -> None:
    async def scenario() -> None:
        file, machine, failed = SlowFile(), Machine(), list[BaseException]()
        file.may_go_on.set()
        with ThreadPoolExecutor(1) as thread:
            await make_snapshot_manager(file, machine, thread, failed).restore(7)
        assert machine.received == [b"the first chunk", b"the second chunk"]
        assert file.is_closed

    run(scenario())

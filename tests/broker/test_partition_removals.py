"""The files of a removed partition are moved away before the same partition can be created again.

An import that was aborted and started again creates topics with the same ids.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from types import SimpleNamespace
from typing import Any, cast

import pytest

from chronik.broker.replica_manager import PartitionRemovals, run_in_thread

TOPIC = bytes(range(16))


class Leaving:
    """A replica whose last sync is in progress."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.synced = asyncio.Event()

    async def release(self) -> None:
        await self.synced.wait()


@pytest.mark.parametrize("partition", [None, 1])
def test_partition_is_not_recreated_while_its_files_are_in_use(partition: int | None) -> None:
    async def story() -> None:
        events: list[str] = []
        cache: Any = SimpleNamespace(close_directory=lambda directory: None)
        aside: Any = SimpleNamespace(
            move_directory=lambda directory, to: events.append("moved"), delete_removed_directories=lambda: None
        )
        removals = PartitionRemovals(
            cache, aside, lambda topic_id: events.append(f"left {len(removals.pending_partitions)}")
        )
        replica = Leaving(1)
        removals.add(TOPIC, partition, [cast(Any, replica)])
        removing = asyncio.create_task(removals.run())
        await asyncio.sleep(0)
        assert removals.pending_partitions == {(TOPIC, 1)}
        assert events == []
        replica.synced.set()
        async with asyncio.timeout(10):
            while not events:
                await asyncio.sleep(0)
        assert events == ["moved", "left 0"]
        removing.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await removing

    asyncio.run(story())


def test_cancellation_waits_until_thread_has_finished() -> None:
    """Otherwise a stopping node would close a file during its sync, and report the error as a storage failure."""
    begun, may_end = threading.Event(), threading.Event()
    done: list[str] = []

    def work() -> None:
        begun.set()
        may_end.wait(20)
        done.append("worked")

    async def story() -> None:
        task = asyncio.ensure_future(run_in_thread(work))
        await asyncio.to_thread(begun.wait, 20)
        task.cancel()
        asyncio.get_running_loop().call_later(0.05, may_end.set)
        with pytest.raises(asyncio.CancelledError):
            await task
        assert done == ["worked"]

    asyncio.run(story())


def test_exception_of_thread_work_is_raised() -> None:
    def work() -> None:
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        asyncio.run(run_in_thread(work))

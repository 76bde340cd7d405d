"""Commands acknowledged before they are synced: power failures lose only the latest, and dependent work waits."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from concurrent.futures import Executor, Future
from contextlib import suppress
from typing import Any

import pytest

from chronik.errors import StorageError
from chronik.metadata import levels
from chronik.metadata.commands.cluster import SetFeatureLevel
from chronik.metadata.commands.envelope import Command
from chronik.metadata.commands.transactions import (
    NO_RECORD_INDEX,
    AddToTransaction,
    CompleteTransaction,
    EndTransaction,
    ExpireTransaction,
    InitTransaction,
    StageOffsets,
)
from chronik.metadata.stores.local_store import LocalStore, can_ack_before_sync
from chronik.metadata.stores.store import StoreClosedError
from chronik.protocol.errors import ErrorCode, KafkaError
from tests.files.simulated_files import SimulatedFileSystem

from .test_local_store import Inline, run


@pytest.fixture(autouse=True)
def first_level(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the store at level 1, at which it writes nothing but what the test proposes."""
    monkeypatch.setattr(levels, "HIGHEST", levels.FIRST_LEVEL)


class HoldableExecutor(Inline):
    """An executor that runs tasks immediately, or only when released."""

    def __init__(self) -> None:
        self.is_held = False
        self._held: list[Callable[[], None]] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        if not self.is_held:
            return super().submit(fn, *args, **kwargs)
        future: Future[Any] = Future()

        def run_now() -> None:
            try:
                future.set_result(fn(*args, **kwargs))
            except Exception as error:
                future.set_exception(error)

        self._held.append(run_now)
        return future

    def hold(self) -> None:
        self.is_held = True

    def release(self) -> None:
        self.is_held = False
        held, self._held = self._held, []
        for each in held:
            each()


def is_early(command: Command) -> bool:
    return isinstance(command, SetFeatureLevel) and command.name.startswith("early")


def early(number: int) -> SetFeatureLevel:
    return SetFeatureLevel(f"early{number}", number)


def durable(number: int) -> SetFeatureLevel:
    return SetFeatureLevel(f"durable{number}", number)


async def started(files: SimulatedFileSystem, disk: Executor | None = None, **options: Any) -> LocalStore:
    executor = disk or Inline()
    store = LocalStore(files, make_executor=lambda: executor, answers_early=is_early, **options)
    await store.start()
    return store


async def run_iterations() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def test_early_command_is_acknowledged_after_write_and_durable_after_sync() -> None:
    async def test() -> None:
        disk = HoldableExecutor()
        store = await started(SimulatedFileSystem(), disk)
        disk.hold()
        result = await store.propose(early(1))
        assert store.image.features == {"early1": 1}
        assert not store.is_durable(result.index)
        assert store.is_durable(result.index - 1)
        waiting = asyncio.ensure_future(store.wait_durable(result.index))
        await run_iterations()
        assert not waiting.done()
        disk.release()
        await waiting
        assert store.is_durable(result.index)
        await store.close()

    run(test())


def test_wait_durable_times_out() -> None:
    async def test() -> None:
        disk = HoldableExecutor()
        store = await started(SimulatedFileSystem(), disk)
        disk.hold()
        result = await store.propose(early(1))
        with pytest.raises(KafkaError) as caught:
            await store.wait_durable(result.index, 0.01)
        assert caught.value.code is ErrorCode.REQUEST_TIMED_OUT
        disk.release()
        await store.close()

    run(test())


def test_early_commands_are_applied_in_log_order() -> None:
    async def test() -> None:
        disk = HoldableExecutor()
        store = await started(SimulatedFileSystem(), disk)
        disk.hold()
        proposals = [asyncio.ensure_future(store.propose(each)) for each in (early(1), early(2), durable(3), early(4))]
        await run_iterations()
        assert [each.done() for each in proposals] == [True, True, False, False]
        assert set(store.image.features) == {"early1", "early2"}
        late = asyncio.ensure_future(store.propose(early(5)))
        await run_iterations()
        assert not late.done(), "the sync of earlier commands is not finished"
        disk.release()
        results = await asyncio.gather(*proposals, late)
        assert [result.index for result in results] == [2, 3, 4, 5, 6]
        await store.close()

    run(test())


def test_early_and_durable_commands_share_one_sync() -> None:
    async def test() -> None:
        files = SimulatedFileSystem()
        store = await started(files)
        syncs: list[str] = []
        files.before_event = lambda action, path: syncs.append(path) if action == "sync" else None
        commands = [early(number) if number < 250 else durable(number) for number in range(1, 500)]
        await asyncio.gather(*map(store.propose, commands))
        assert len(syncs) == 1
        await store.close()

    run(test())


def test_snapshot_contains_only_durable_commands() -> None:
    async def test() -> None:
        files = SimulatedFileSystem()
        store = await started(files, snapshot_entries=10)
        for number in range(1, 35):
            await store.propose(early(number))
        await store.close()
        again = await started(files.crash(1))
        assert len(again.image.features) == 34
        assert again.image.state_hash == store.image.state_hash
        await again.close()

    run(test())


def test_failed_sync_stops_store_and_waiters() -> None:
    async def test() -> None:
        files, disk, fatal = SimulatedFileSystem(), HoldableExecutor(), list[BaseException]()
        store = await started(files, disk, on_fatal=fatal.append)
        disk.hold()
        result = await store.propose(early(1))
        waiting = asyncio.ensure_future(store.wait_durable(result.index))
        await run_iterations()
        files.fail_at(files.events, errno.EIO)
        disk.release()
        with pytest.raises(StoreClosedError):
            await waiting
        with pytest.raises(StoreClosedError):
            await store.wait_durable(result.index)
        assert len(fatal) == 1
        with pytest.raises(StorageError):
            await store.propose(early(2))
        await store.close()

    run(test())


def test_process_crash_loses_no_acknowledged_commands() -> None:
    async def test() -> None:
        files, disk = SimulatedFileSystem(), HoldableExecutor()
        store = await started(files, disk)
        disk.hold()
        await store.propose(early(1))
        left = files.kill()
        disk.release()
        await store.close()
        again = await started(left)
        assert again.image.features == {"early1": 1}
        assert again.is_durable(again.image.applied_index), "recovery syncs the log"
        await again.close()

    run(test())


class PowerCutStore:
    """Proposes commands until a simulated power failure, and records which were durable and acknowledged."""

    def __init__(self, cut: int | None) -> None:
        self.files = SimulatedFileSystem()
        self.cut = cut
        self.answered = 0
        self.durable = 0
        if cut is not None:
            self.files.before_event = self._cut_power

    def _cut_power(self, action: str, path: str) -> None:
        if self.files.events == self.cut:
            self.files.failure = "the power is gone"
            raise StorageError(self.files.failure)

    async def work(self) -> None:
        store = await started(self.files, snapshot_entries=7, on_fatal=lambda error: None)
        for number in range(1, 25):
            is_last_of_three = number % 3 == 0
            result = await store.propose(durable(number) if is_last_of_three else early(number))
            self.answered = number
            if is_last_of_three:
                assert store.is_durable(result.index)
                self.durable = number
        await store.close()


def test_power_failure_at_any_point_leaves_prefix_of_commands() -> None:
    rehearsal = PowerCutStore(None)
    run(rehearsal.work())
    assert rehearsal.answered == 24
    lost = 0
    for cut in range(rehearsal.files.events):
        attempt = PowerCutStore(cut)
        with suppress(StorageError):
            run(attempt.work())
        assert attempt.files.failure == "the power is gone"
        for fate in range(4):
            left = sorted(features_of(attempt.files.crash(10 * cut + fate)).values())
            assert left == list(range(1, len(left) + 1)), "commands must survive without gaps"
            assert attempt.durable <= len(left)
            lost += len(left) < attempt.answered
    assert lost, "the test must cover acknowledged commands that are lost"


def features_of(files: SimulatedFileSystem) -> dict[str, int]:
    found: dict[str, int] = {}

    async def look() -> None:
        store = await started(files)
        found.update(store.image.features)
        await store.close()

    run(look())
    return found


def test_only_additions_and_commits_are_acknowledged_early() -> None:
    answered_early: list[Command] = [AddToTransaction("t", 1, (), ("g",), 0), EndTransaction("t", 1, True, 0, 0)]
    others: list[Command] = [
        EndTransaction("t", 1, False, 0, 0),
        InitTransaction("t", NO_RECORD_INDEX, 7, 0, 1000, 0),
        CompleteTransaction("t", 1, 0),
        ExpireTransaction("t", 1),
        StageOffsets("g", "t", 1, (), 0),
        SetFeatureLevel("f", 1),
    ]
    assert [can_ack_before_sync(each) for each in answered_early] == [True, True]
    assert not any(map(can_ack_before_sync, others))

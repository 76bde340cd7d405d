"""The local metadata store: durability, group commit, subscribers, snapshots and recovery."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor, Future
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from chronik.errors import DamagedDataError, InvariantError, StorageError
from chronik.files import DiskFileSystem, FileSystem
from chronik.metadata import levels
from chronik.metadata.commands.brokers import RegisterBroker
from chronik.metadata.commands.cluster import AddNode, RemoveNode, SetFeatureLevel
from chronik.metadata.commands.envelope import COMMAND_BYTES_MAX
from chronik.metadata.commands.groups import CommitOffset, OffsetToCommit
from chronik.metadata.commands.topics import CreateTopic, CreateTopics
from chronik.metadata.delta import Delta
from chronik.metadata.stores import local_store
from chronik.metadata.stores.local_store import LocalStore
from chronik.metadata.stores.store import MetadataStore, StoreClosedError
from chronik.protocol.errors import ErrorCode, KafkaError
from tests.files.simulated_files import SimulatedFileSystem
from tests.metadata.metadata_world import build_assignment, build_id, encode_verified_snapshot, image_records


@pytest.fixture(autouse=True)
def first_level(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the store at level 1, at which it writes nothing but what the test proposes."""
    monkeypatch.setattr(levels, "HIGHEST", levels.FIRST_LEVEL)


class Inline(Executor):
    """An executor that runs tasks immediately, for a deterministic order of events."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 60))


def open_store(files: FileSystem, **options: Any) -> LocalStore:
    return LocalStore(files, make_executor=Inline, **options)


def feature(number: int, level: int = 1) -> SetFeatureLevel:
    return SetFeatureLevel(f"f{number}", level)


def test_acknowledged_commands_survive_restart(tmp_path: Path) -> None:
    async def test() -> None:
        store: MetadataStore = LocalStore(DiskFileSystem(tmp_path))
        await store.start()
        cluster_id = store.image.cluster_id
        assert len(cluster_id) == 22
        result = await store.propose(RegisterBroker(1, "h", 9092, None, build_id(1), build_id(2)))
        assert result.value == result.index == store.image.applied_index == 2
        await store.propose(CreateTopic(build_id(7), "orders", (build_assignment(1),), {}, 1))
        await store.read_barrier()
        state = store.image.state_hash
        await store.close()
        again = LocalStore(DiskFileSystem(tmp_path))
        await again.start()
        assert again.image.cluster_id == cluster_id
        assert again.image.topics["orders"].id == build_id(7)
        assert again.image.state_hash == state
        await again.close()

    run(test())


def test_concurrent_commands_share_one_sync() -> None:
    async def test() -> None:
        files = SimulatedFileSystem()
        store = open_store(files)
        await store.start()
        syncs: list[str] = []
        files.before_event = lambda action, path: syncs.append(path) if action == "sync" else None
        results = await asyncio.gather(*(store.propose(feature(number)) for number in range(500)))
        assert [result.index for result in results] == list(range(2, 502))
        assert len(syncs) == 1
        await store.close()

    run(test())


def test_rejection_is_raised_and_partial_failure_is_returned(tmp_path: Path) -> None:
    async def test() -> None:
        store = LocalStore(DiskFileSystem(tmp_path))
        await store.start()
        with pytest.raises(KafkaError) as caught:
            await store.propose(RemoveNode(5))
        assert caught.value.code is ErrorCode.VOTER_NOT_FOUND
        assert "no node 5" in caught.value.message
        result = await store.propose(CreateTopics((CreateTopic(build_id(1), "x y", (), {}, 1),)))
        assert [failure.code for failure in result.failures] == [ErrorCode.INVALID_TOPIC_EXCEPTION]
        await store.close()

    run(test())


def test_command_that_cannot_be_decoded_is_not_written() -> None:
    async def test() -> None:
        store = open_store(SimulatedFileSystem())
        await store.start()
        wrong: list[Any] = [
            AddNode(-1, "h", 1),
            AddNode(1, 5, 1),  # type: ignore[arg-type]
            AddNode(2**70, "h", 1),
            AddNode(1, "\ud800", 1),
            AddNode(1, "h", 70000),
            AddNode(1, "h" * (COMMAND_BYTES_MAX + 1), 1),
            CreateTopic(b"short", "t", (), {}, 1),
            object(),
        ]
        for command in wrong:
            with pytest.raises(KafkaError) as caught:
                await store.propose(command)
            assert caught.value.code is ErrorCode.INVALID_REQUEST
        assert (await store.propose(feature(1))).index == 2
        await store.close()

    run(test())


def test_subscriber_gets_full_delta_then_one_per_command() -> None:
    async def test() -> None:
        files = SimulatedFileSystem()
        store = open_store(files)
        await store.start()
        await store.propose(RegisterBroker(1, "h", 9092, None, build_id(1), build_id(2)))
        await store.propose(CreateTopic(build_id(7), "orders", (build_assignment(1),), {}, 1))
        await store.propose(CommitOffset("g", (OffsetToCommit("orders", 0, 5),), 1))
        await store.close()

        again = open_store(files)
        early: list[Delta] = []
        late: list[Delta] = []
        again.subscribe(early.append)
        await again.start()
        again.subscribe(late.append)
        for seen in (early, late):
            (whole,) = seen
            assert [change.new and change.new.name for change in whole.topics] == ["orders"]
            assert [change.created for change in whole.brokers] == [True]
            assert whole.offsets == ("g",)
            assert whole.index == 4
        order: list[str] = []
        again.subscribe(lambda delta: order.append("subscriber"))
        await again.propose(feature(1))
        order.append("proposer")
        assert order == ["subscriber", "subscriber", "proposer"]
        assert early[1:] == late[1:] == [Delta(5, features=("f1",))]
        await again.close()

    run(test())


def test_cancelled_proposal_does_not_block_others(tmp_path: Path) -> None:
    async def test() -> None:
        store = LocalStore(DiskFileSystem(tmp_path))
        await store.start()
        tasks = [asyncio.create_task(store.propose(feature(number))) for number in range(3)]
        await asyncio.sleep(0)
        tasks[1].cancel()
        first, cancelled, third = await asyncio.gather(*tasks, return_exceptions=True)
        assert isinstance(cancelled, asyncio.CancelledError)
        assert not isinstance(first, BaseException)
        assert not isinstance(third, BaseException)
        assert store.image.features == {"f0": 1, "f1": 1, "f2": 1}
        await store.close()

    run(test())


def test_close_completes_pending_and_rejects_new_commands(tmp_path: Path) -> None:
    async def test() -> None:
        store = LocalStore(DiskFileSystem(tmp_path))
        with pytest.raises(InvariantError):
            await store.propose(feature(0))
        await store.start()
        proposals = [asyncio.create_task(store.propose(feature(number))) for number in range(100)]
        await asyncio.sleep(0)
        await store.close()
        assert len(await asyncio.gather(*proposals)) == 100
        with pytest.raises(StoreClosedError):
            await store.propose(feature(0))
        await store.close()

    run(test())


def test_failed_sync_fails_proposals_and_stops_store() -> None:
    async def test() -> None:
        files = SimulatedFileSystem()
        fatal: list[BaseException] = []
        store = open_store(files, on_fatal=fatal.append)
        await store.start()
        before = image_records(store.image)
        files.fail_at(files.events + 1, errno.EIO)
        outcomes = await asyncio.gather(*(store.propose(feature(n)) for n in range(5)), return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [StorageError] * 5
        assert len(fatal) == 1
        assert image_records(store.image) == before
        with pytest.raises(StorageError):
            await store.propose(feature(9))
        await store.close()

    run(test())


def test_exception_in_subscriber_stops_store(tmp_path: Path) -> None:
    async def test() -> None:
        fatal: list[BaseException] = []
        store = LocalStore(DiskFileSystem(tmp_path), on_fatal=fatal.append)
        await store.start()

        def fail(delta: Delta) -> None:
            if delta.index > 1:
                raise ZeroDivisionError

        store.subscribe(fail)
        with pytest.raises(StorageError):
            await store.propose(feature(1))
        assert [type(error) for error in fatal] == [ZeroDivisionError]
        await store.close()

    run(test())


def test_number_of_pending_commands_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_store, "PENDING_COMMANDS_MAX", 10)

    async def test() -> None:
        store = open_store(SimulatedFileSystem())
        await store.start()
        outcomes = await asyncio.gather(*(store.propose(feature(n)) for n in range(11)), return_exceptions=True)
        assert [isinstance(outcome, KafkaError) for outcome in outcomes] == [False] * 10 + [True]
        await store.propose(feature(11))
        await store.close()

    run(test())


def test_snapshot_truncates_log_without_losing_commands() -> None:
    async def test() -> None:
        files = SimulatedFileSystem()
        store = open_store(files, snapshot_entries=50)
        await store.start()
        for number in range(500):
            await store.propose(feature(number % 30, number % 7))
        await store.close()
        names = files.list_directory("__meta")
        assert len([name for name in names if name.endswith(".snapshot")]) == 1
        assert len([name for name in names if name.endswith(".wal")]) <= 2
        again = open_store(files)
        await again.start()
        assert image_records(again.image) == image_records(store.image)
        assert again.image.state_hash == store.image.state_hash
        encode_verified_snapshot(again.image)
        await again.close()

    run(test())


def test_snapshot_is_triggered_by_log_size(tmp_path: Path) -> None:
    async def test() -> None:
        store = LocalStore(DiskFileSystem(tmp_path), snapshot_bytes=20_000)
        await store.start()
        for number in range(20):
            await asyncio.gather(*(store.propose(feature(part, number + 1)) for part in range(50)))
        state = store.image.state_hash
        await store.close()
        assert len([name for name in os.listdir(tmp_path / "__meta") if name.endswith(".snapshot")]) == 1
        again = LocalStore(DiskFileSystem(tmp_path))
        await again.start()
        assert again.image.state_hash == state
        await again.close()

    run(test())


def test_damaged_snapshot_or_log_is_rejected_at_startup() -> None:
    async def test() -> None:
        files = SimulatedFileSystem()
        store = open_store(files, snapshot_entries=20)
        await store.start()
        for number in range(35):
            await store.propose(feature(number))
        await store.close()
        damaged_files = [path for path in files.paths() if not path.endswith("synced")]
        assert len(damaged_files) == 2
        for path in damaged_files:
            damaged = files.kill()
            content = bytearray(damaged.read(path))
            content[len(content) // 2] ^= 4
            damaged.overwrite(path, bytes(content))
            broken = open_store(damaged)
            with pytest.raises(DamagedDataError, match=path):
                await broken.start()
            await broken.close()

    run(test())


class CutStore:
    """Proposes commands until a simulated power failure, and records which were acknowledged."""

    def __init__(self, cut: int | None) -> None:
        self.files = SimulatedFileSystem()
        self.cut = cut
        self.proposed: dict[str, int] = {}
        self.answered: dict[str, int] = {}
        if cut is not None:
            self.files.before_event = self._cut_power

    def _cut_power(self, action: str, path: str) -> None:
        """Fail before the change takes effect; later changes have no effect either."""
        if self.files.events == self.cut:
            self.files.failure = "the power is gone"
            raise StorageError(self.files.failure)

    async def work(self) -> None:
        store = open_store(self.files, snapshot_entries=8, on_fatal=lambda error: None)
        await store.start()
        for step in range(12):
            await asyncio.gather(*(self._set(store, f"f{part}", step + 1) for part in range(3)))
        await store.close()

    async def _set(self, store: LocalStore, name: str, level: int) -> None:
        self.proposed[name] = level
        await store.propose(SetFeatureLevel(name, level))
        self.answered[name] = level


def test_power_failure_at_any_point_keeps_acknowledged_commands() -> None:
    uninterrupted = CutStore(None)
    run(uninterrupted.work())
    assert uninterrupted.answered == {"f0": 12, "f1": 12, "f2": 12}
    assert uninterrupted.files.events > 60
    for cut in range(uninterrupted.files.events):
        attempt = CutStore(cut)
        with suppress(StorageError):
            run(attempt.work())
        assert attempt.files.failure == "the power is gone"
        for fate in range(4):
            features = recovered_features(attempt.files.crash(10 * cut + fate))
            for name, level in attempt.answered.items():
                assert level <= features[name] <= attempt.proposed[name]
            assert set(features) <= set(attempt.proposed)


def recovered_features(files: SimulatedFileSystem) -> dict[str, int]:
    found: dict[str, int] = {}

    async def look() -> None:
        store = open_store(files)
        await store.start()
        found.update(store.image.features)
        await store.close()

    run(look())
    return found

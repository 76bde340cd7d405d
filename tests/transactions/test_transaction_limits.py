"""Limits, at their maximum and one above. The tests lower them, because only their enforcement matters here."""

from __future__ import annotations

from itertools import count

import pytest

from chronik.clock import SystemClock
from chronik.groups import offsets as group_offsets
from chronik.groups.coordinator import GroupCoordinator
from chronik.limits import TRANSACTIONAL_ID_CHARACTERS_MAX, TRANSACTIONAL_IDS_PER_CLIENT_MAX
from chronik.metadata.commands.groups import OffsetToCommit
from chronik.metadata.commands.transactions import NO_RECORD_INDEX, InitTransaction, TransactionPartition
from chronik.protocol.errors import ErrorCode
from chronik.transactions import coordinator as coordinating
from chronik.transactions import decisions
from chronik.transactions.config import TRANSACTIONAL_IDS_MAX
from tests.transactions.test_markers import FIRST_PRODUCER, MarkerBench, run_with_bench
from tests.transactions.transaction_harness import TransactionHarness

TOPIC = b"t" * 16
TOO_MANY = ErrorCode.POLICY_VIOLATION


def partitions(count: int) -> list[TransactionPartition]:
    return [TransactionPartition(TOPIC, index) for index in range(count)]


def test_transactional_ids_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinating, "TRANSACTIONAL_IDS_MAX", 1)

    async def script(desk: MarkerBench) -> None:
        assert (await desk.coordinator.init_producer("t", 60_000)).error is ErrorCode.NONE
        assert (await desk.coordinator.init_producer("t", 60_000)).error is ErrorCode.NONE, "existing ids are accepted"
        assert (await desk.coordinator.init_producer("other", 60_000)).error is ErrorCode.POLICY_VIOLATION

    run_with_bench(script)


def test_transactional_id_above_the_length_limit_is_rejected_unless_it_exists() -> None:
    longest = "x" * TRANSACTIONAL_ID_CHARACTERS_MAX
    stored = "y" * 30_000

    async def script(desk: MarkerBench) -> None:
        assert (await desk.coordinator.init_producer(longest, 60_000)).error is ErrorCode.NONE
        assert (await desk.coordinator.init_producer(longest + "x", 60_000)).error is ErrorCode.INVALID_REQUEST
        assert longest + "x" not in desk.store.image.transactions
        await desk.store.propose(
            InitTransaction(stored, NO_RECORD_INDEX, 77, 0, 60_000, 0)
        )  # as an earlier version did
        assert (await desk.coordinator.init_producer(stored, 60_000)).error is ErrorCode.NONE
        assert desk.store.image.transactions[stored].producer_epoch == 1

    run_with_bench(script)


def test_transactional_ids_above_the_limit_of_a_client_are_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinating, "TRANSACTIONAL_IDS_PER_CLIENT_MAX", 2)
    greedy, other = ("User:greedy", "10.0.0.1"), ("User:other", "10.0.0.2")

    async def script(desk: MarkerBench) -> None:
        numbers = count(FIRST_PRODUCER)

        async def next_number() -> int:
            return next(numbers)

        monkeypatch.setattr(desk.coordinator, "_new_producer_id", next_number)

        async def init(name: str, client: tuple[str, str]) -> ErrorCode:
            return (await desk.coordinator.init_producer(name, 60_000, client=client)).error

        assert [await init(name, greedy) for name in ("a", "b", "a", "c")] == [*[ErrorCode.NONE] * 3, TOO_MANY]
        assert await init("c", other) is ErrorCode.NONE
        assert await init("c", greedy) is ErrorCode.NONE, "it exists"

    run_with_bench(script)


def test_default_limit_of_a_client_leaves_transactional_ids_for_others() -> None:
    assert TRANSACTIONAL_IDS_PER_CLIENT_MAX <= TRANSACTIONAL_IDS_MAX // 2


def test_partitions_per_transaction_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decisions, "PARTITIONS_PER_TRANSACTION_MAX", 2)
    lab = TransactionHarness()
    lab.init()
    assert lab.add(0, 0, 1) is ErrorCode.NONE
    assert lab.add(0, 2) is ErrorCode.INVALID_REQUEST
    assert lab.add(0, 1, 0) is ErrorCode.NONE, "they are part of it already"


def test_partitions_of_all_transactions_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinating, "TRANSACTION_PARTITIONS_MAX", 3)

    async def script(desk: MarkerBench) -> None:
        await desk.coordinator.init_producer("t", 60_000)
        add = desk.coordinator.add_to_transaction
        assert await add("t", FIRST_PRODUCER, 0, partitions(4)) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert await add("t", FIRST_PRODUCER, 0, partitions(3)) is ErrorCode.NONE

    run_with_bench(script)


def test_staged_offsets_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_offsets, "STAGED_OFFSETS_MAX", 2)

    async def script(desk: MarkerBench) -> None:
        await desk.coordinator.init_producer("t", 60_000)
        assert await desk.coordinator.add_to_transaction("t", FIRST_PRODUCER, 0, groups=["g"]) is ErrorCode.NONE
        groups = GroupCoordinator(desk.store, SystemClock())
        await groups.start()
        began_index = desk.store.image.transactions["t"].began_index
        offsets = [OffsetToCommit("t", index, 5) for index in range(3)]
        for sent, code in ((3, ErrorCode.COORDINATOR_NOT_AVAILABLE), (2, ErrorCode.NONE)):
            assert await groups.offsets.stage("g", "t", began_index, offsets[:sent]) == [code] * sent
        await groups.close()

    run_with_bench(script)

"""Limits at their maximum and one above. They are made small here: what counts is that somebody looks at them."""

from __future__ import annotations

import pytest

from chronik.clock import SystemClock
from chronik.groups import offsets as group_offsets
from chronik.groups.coordinator import GroupCoordinator
from chronik.metadata.commands.groups import OffsetToCommit
from chronik.metadata.commands.transactions import TransactionPartition
from chronik.protocol.errors import ErrorCode
from chronik.transactions import coordinator as coordinating
from chronik.transactions import decisions
from tests.transactions.lab import Lab
from tests.transactions.test_markers_are_sent_until_all_have_them import FIRST_PRODUCER, Desk, told

TOPIC = b"t" * 16


def partitions(count: int) -> list[TransactionPartition]:
    return [TransactionPartition(TOPIC, index) for index in range(count)]


def test_ids_that_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinating, "TRANSACTIONAL_IDS_MAX", 1)

    async def story(desk: Desk) -> None:
        assert (await desk.coordinator.init("t", 60_000)).error is ErrorCode.NONE
        assert (await desk.coordinator.init("t", 60_000)).error is ErrorCode.NONE, "it is known already"
        assert (await desk.coordinator.init("other", 60_000)).error is ErrorCode.COORDINATOR_NOT_AVAILABLE

    told(story)


def test_partitions_of_one_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decisions, "PARTITIONS_PER_TRANSACTION_MAX", 2)
    lab = Lab()
    lab.init()
    assert lab.add(0, 0, 1) is ErrorCode.NONE
    assert lab.add(0, 2) is ErrorCode.INVALID_REQUEST
    assert lab.add(0, 1, 0) is ErrorCode.NONE, "they are part of it already"


def test_partitions_of_all_transactions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinating, "PARTITIONS_MAX", 3)

    async def story(desk: Desk) -> None:
        await desk.coordinator.init("t", 60_000)
        add = desk.coordinator.add
        assert await add("t", FIRST_PRODUCER, 0, partitions(4)) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert await add("t", FIRST_PRODUCER, 0, partitions(3)) is ErrorCode.NONE

    told(story)


def test_offsets_that_wait_for_their_transactions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_offsets, "STAGED_OFFSETS_MAX", 2)

    async def story(desk: Desk) -> None:
        await desk.coordinator.init("t", 60_000)
        assert await desk.coordinator.add("t", FIRST_PRODUCER, 0, groups=["g"]) is ErrorCode.NONE
        groups = GroupCoordinator(desk.store, SystemClock())
        await groups.start()
        began_index = desk.store.image.transactions["t"].began_index
        offsets = [OffsetToCommit("t", index, 5) for index in range(3)]
        for sent, code in ((3, ErrorCode.COORDINATOR_NOT_AVAILABLE), (2, ErrorCode.NONE)):
            assert await groups.offsets.stage("g", "t", began_index, offsets[:sent]) == [code] * sent
        await groups.close()

    told(story)

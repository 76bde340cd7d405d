"""Commands of transactions and of offsets committed in them."""

from __future__ import annotations

import pytest

from chronik.metadata.commands.envelope import Command
from chronik.metadata.commands.groups import CommitOffset, DeleteConsumerGroup, ExpireOffsets, OffsetToCommit
from chronik.metadata.commands.topics import DeleteTopic
from chronik.metadata.commands.transactions import (
    NO_RECORD_INDEX,
    AddToTransaction,
    CompleteTransaction,
    EndTransaction,
    ExpireTransaction,
    InitTransaction,
    StageOffsets,
    TransactionPartition,
)
from chronik.metadata.delta import diff_images
from chronik.metadata.image import Image
from chronik.metadata.names import TRANSACTIONS_TOPIC, compute_coordinator_partition
from chronik.metadata.records import CommittedOffset, Transaction, TransactionState
from chronik.metadata.snapshot import decode_snapshot
from chronik.protocol.errors import ErrorCode

from .metadata_world import MetadataWorld, build_assignment, encode_verified_snapshot, image_records

ID = "pay"
PRODUCER = 7


class TransactionWorld(MetadataWorld):
    """A world with topics `orders` and `bills` of two partitions each, and one transactional id."""

    def __init__(self) -> None:
        super().__init__(1)
        for name in ("orders", "bills"):
            self.create(name, build_assignment(1), build_assignment(1))
        self.accept(InitTransaction(ID, NO_RECORD_INDEX, PRODUCER, 0, 60_000, 10))

    @property
    def now(self) -> Transaction:
        return self.image.transactions[ID]

    def part(self, topic: str, index: int = 0) -> TransactionPartition:
        return TransactionPartition(self.image.topics[topic].id, index)

    def add(self, *partitions: TransactionPartition, groups: tuple[str, ...] = (), time: int = 20) -> None:
        self.accept(AddToTransaction(ID, self.now.index, partitions, groups, time))

    def stage(self, offset: int, *, group: str = "g", time: int = 30) -> None:
        wanted = (OffsetToCommit("orders", 0, offset),)
        self.accept(StageOffsets(group, ID, self.now.began_index, wanted, time))

    def end(self, *, commit: bool, epoch: int = 0, next_producer_id: int = -1) -> None:
        self.accept(EndTransaction(ID, self.now.index, commit, epoch, 40, next_producer_id=next_producer_id))


def test_first_addition_starts_transaction() -> None:
    world = TransactionWorld()
    assert not world.now.partitions
    world.add(world.part("orders"), world.part("orders"), groups=("g",))
    assert world.now.state is TransactionState.ONGOING
    assert list(world.now.partitions) == [world.part("orders")]
    assert (world.now.began_index, world.now.began_ms) == (world.image.applied_index, 20)
    began_index = world.now.began_index
    world.add(world.part("bills"), world.part("orders"), groups=("h", "g"), time=25)
    assert list(world.now.partitions) == [world.part("orders"), world.part("bills")]
    assert world.now.groups == ("g", "h")
    assert (world.now.began_index, world.now.index) == (began_index, world.image.applied_index)
    assert world.image.find_transaction_by_producer_id(PRODUCER) == world.now
    assert world.image.transaction_partition_count == 2


def test_deleted_partitions_are_not_added_to_transaction() -> None:
    world = TransactionWorld()
    world.add(world.part("orders"), world.part("orders", 2), TransactionPartition(b"?" * 16, 0))
    assert world.now.partitions == (world.part("orders"),)


@pytest.mark.parametrize("commit", [True, False])
def test_end_transaction_settles_staged_offsets_atomically(commit: bool) -> None:
    world = TransactionWorld()
    world.add(world.part("bills"), groups=("g",))
    world.stage(5)
    assert world.image.has_staged_offset("g", "orders", 0)
    assert world.image.offset("g", "orders", 0) is None
    world.end(commit=commit)
    assert world.now.state is (TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT)
    assert world.now.index == world.image.applied_index
    assert not world.image.get_staged_offsets("g")
    assert world.image.staged_count == 0
    expected = CommittedOffset(5, -1, None, 30) if commit else None
    assert world.image.offset("g", "orders", 0) == expected
    assert ("g" in world.image.groups) is commit


def test_completed_transaction_switches_to_next_producer_id() -> None:
    world = TransactionWorld()
    world.add(world.part("bills"))
    world.end(commit=True, epoch=32767, next_producer_id=99)
    assert (world.now.producer_id, world.now.producer_epoch, world.now.next_producer) == (PRODUCER, 32767, (99, 0))
    world.accept(CompleteTransaction(ID, world.now.index, 50))
    assert world.now.state is TransactionState.COMPLETE_COMMIT
    assert (world.now.producer_id, world.now.producer_epoch, world.now.partitions) == (99, 0, ())
    assert world.image.find_transaction_by_producer_id(PRODUCER) is None
    assert world.image.find_transaction_by_producer_id(99) == world.now


def test_transaction_without_partitions_completes_immediately() -> None:
    world = TransactionWorld()
    world.add(groups=("g",))
    world.stage(5)
    world.end(commit=True)
    assert world.now.state is TransactionState.COMPLETE_COMMIT


def test_command_with_outdated_index_is_rejected() -> None:
    world = TransactionWorld()
    seen = world.now.index
    world.add(world.part("bills"))
    late: list[Command] = [
        InitTransaction(ID, seen, 8, 0, 1, 1),
        AddToTransaction(ID, seen, (world.part("orders"),), (), 1),
        EndTransaction(ID, seen, True, 0, 1),
        CompleteTransaction(ID, seen, 1),
        ExpireTransaction(ID, seen),
        InitTransaction(ID, NO_RECORD_INDEX, 8, 0, 1, 1),
    ]
    for command in late:
        assert world.reject(command)[0] is ErrorCode.CONCURRENT_TRANSACTIONS


def test_prepared_transaction_rejects_further_changes() -> None:
    world = TransactionWorld()
    world.add(world.part("bills"))
    assert world.reject(CompleteTransaction(ID, world.now.index, 1))[0] is ErrorCode.INVALID_TXN_STATE
    assert world.reject(ExpireTransaction(ID, world.now.index))[0] is ErrorCode.INVALID_TXN_STATE
    assert world.reject(InitTransaction(ID, world.now.index, PRODUCER, 1, 1, 1))[0] is ErrorCode.INVALID_TXN_STATE
    world.end(commit=True)
    for command in (
        InitTransaction(ID, world.now.index, PRODUCER, 1, 1, 1),
        AddToTransaction(ID, world.now.index, (), (), 1),
        EndTransaction(ID, world.now.index, False, 0, 1),
        ExpireTransaction(ID, world.now.index),
    ):
        assert world.reject(command)[0] is ErrorCode.INVALID_TXN_STATE


@pytest.mark.parametrize("next_producer_id", [-1, 99])
def test_next_command_may_complete_marked_transaction(next_producer_id: int) -> None:
    given = next_producer_id if next_producer_id > 0 else PRODUCER
    for follows in range(3):
        world = TransactionWorld()
        world.add(world.part("bills"), groups=("g",))
        world.end(commit=True, epoch=1, next_producer_id=next_producer_id)
        index = world.now.index
        commands: list[Command] = [
            InitTransaction(ID, index, given, 7, 1, 1, is_marked=True),
            AddToTransaction(ID, index, (world.part("orders"),), (), 50, is_marked=True),
            EndTransaction(ID, index, False, 7, 50, is_marked=True),
        ]
        world.accept(commands[follows])
        states = [TransactionState.EMPTY, TransactionState.ONGOING, TransactionState.COMPLETE_ABORT]
        assert world.now.state is states[follows]
        assert world.now.producer_id == given
        assert list(world.now.partitions) == ([world.part("orders")] if follows == 1 else [])
        assert world.now.groups == ()
        assert encode_verified_snapshot(world.image)


def test_command_of_replaced_transaction_coordinator_is_rejected() -> None:
    world = TransactionWorld()
    world.create(TRANSACTIONS_TOPIC, *[build_assignment(1)] * 4)
    epoch = world.partition(TRANSACTIONS_TOPIC, compute_coordinator_partition(ID, 4)).leader_epoch
    stale = AddToTransaction(ID, world.now.index, (), ("g",), 1, epoch + 1)
    assert world.reject(stale)[0] is ErrorCode.NOT_COORDINATOR
    world.accept(AddToTransaction(ID, world.now.index, (), ("g",), 1, epoch))


def test_producer_id_of_another_transactional_id_is_rejected() -> None:
    world = TransactionWorld()
    assert world.reject(InitTransaction("other", NO_RECORD_INDEX, PRODUCER, 0, 1, 1))[0] is (
        ErrorCode.INVALID_PRODUCER_ID_MAPPING
    )
    world.accept(InitTransaction("other", NO_RECORD_INDEX, 8, 0, 1, 1))
    world.add(world.part("bills"))
    stolen = EndTransaction(ID, world.now.index, True, 0, 1, next_producer_id=8)
    assert world.reject(stolen)[0] is ErrorCode.INVALID_PRODUCER_ID_MAPPING


# --- offsets ---


def test_staged_offsets_belong_to_a_single_transaction() -> None:
    world = TransactionWorld()
    offsets = (OffsetToCommit("orders", 0, 5),)
    assert world.reject(StageOffsets("g", ID, -1, offsets, 1))[0] is ErrorCode.INVALID_TXN_STATE
    world.add(world.part("bills"), groups=("g",))
    first = world.now.began_index
    assert world.reject(StageOffsets("h", ID, first, offsets, 1))[0] is ErrorCode.INVALID_TXN_STATE
    world.end(commit=False)
    world.accept(CompleteTransaction(ID, world.now.index, 50))
    world.add(groups=("g",))
    assert world.reject(StageOffsets("g", ID, first, offsets, 1))[0] is ErrorCode.INVALID_TXN_STATE


def test_later_offset_commit_overrides_staged_offset() -> None:
    world = TransactionWorld()
    world.add(groups=("g",))
    world.stage(5)
    world.accept(CommitOffset("g", (OffsetToCommit("orders", 0, 9),), 35))
    assert not world.image.has_staged_offset("g", "orders", 0)
    world.end(commit=True)
    committed = world.image.offset("g", "orders", 0)
    assert committed is not None
    assert committed.offset == 9


def test_latest_staged_offset_of_two_transactions_wins() -> None:
    world = TransactionWorld()
    world.accept(InitTransaction("other", NO_RECORD_INDEX, 8, 0, 1, 1))
    world.accept(AddToTransaction("other", world.image.transactions["other"].index, (), ("g",), 1))
    world.add(groups=("g",))
    world.stage(5)
    other = world.image.transactions["other"]
    world.accept(StageOffsets("g", "other", other.began_index, (OffsetToCommit("orders", 0, 6),), 1))
    world.accept(EndTransaction("other", other.index, True, 0, 1))
    assert not world.image.get_staged_offsets("g")
    world.end(commit=True)
    committed = world.image.offset("g", "orders", 0)
    assert committed is not None
    assert committed.offset == 6


def test_group_with_staged_offsets_cannot_be_deleted() -> None:
    world = TransactionWorld()
    world.accept(CommitOffset("g", (OffsetToCommit("orders", 1, 9),), 35))
    world.add(groups=("g",))
    world.stage(5)
    assert world.reject(DeleteConsumerGroup("g"))[0] is ErrorCode.NON_EMPTY_GROUP
    time_ms = world.image.groups["g"].time_ms
    world.accept(ExpireOffsets("g", (), time_ms))
    assert "g" in world.image.groups


# --- topics ---


def test_deleting_topic_removes_it_from_open_transactions() -> None:
    world = TransactionWorld()
    world.add(world.part("orders"), world.part("bills"), world.part("orders", 1), groups=("g",))
    world.stage(5)
    index = world.now.index
    world.accept(DeleteTopic(world.image.topics["orders"].id))
    world.create("orders", build_assignment(1), build_assignment(1))
    assert world.now.partitions == (world.part("bills"),)
    assert world.now.index == index
    assert not world.image.get_staged_offsets("g")
    assert not world.image.transactions_with_topic(world.image.topics["orders"].id)
    world.end(commit=True)
    assert world.image.offset("g", "orders", 0) is None


# --- snapshots and expiration ---


def test_snapshot_contains_transactions_and_staged_offsets() -> None:
    world = TransactionWorld()
    world.accept(InitTransaction("other", NO_RECORD_INDEX, 8, 3, 1, 1))
    world.create("wide", *[build_assignment(1)] * 2_500)
    world.add(*(world.part("wide", index) for index in range(2_500)), groups=("g",))
    world.stage(5)
    copy = decode_snapshot(encode_verified_snapshot(world.image))
    assert image_records(copy) == image_records(world.image)
    assert copy.state_hash == world.image.state_hash
    assert copy.find_transaction_by_producer_id(8) == world.image.transactions["other"]
    assert not diff_images(copy, world.image)
    changes = diff_images(Image(), world.image).transactions
    assert [change.new and change.new.transactional_id for change in changes] == ["other", ID]
    for image in (copy, world.image):
        assert image.transaction_partition_count == 2_500
        assert image.has_staged_offset("g", "orders", 0)


def test_expired_transactional_id_is_removed() -> None:
    world = TransactionWorld()
    world.accept(ExpireTransaction(ID, world.now.index))
    assert not world.image.transactions
    assert world.image.find_transaction_by_producer_id(PRODUCER) is None
    assert world.delta.transactions[0].deleted

from __future__ import annotations

from chronik.broker.partition_counters import PartitionChangeCounters
from chronik.metadata.delta import Delta, RecordChange
from chronik.metadata.records import Partition, Topic


def topic(*partitions: Partition) -> Topic:
    return Topic(bytes(16), "orders", partitions, {}, 0)


def counted(old: Topic | None, new: Topic | None, node_id: int = 1, *, is_counting: bool = True) -> tuple[int, ...]:
    changes = PartitionChangeCounters(node_id, lambda: is_counting)
    changes.apply_delta(Delta(1, topics=(RecordChange(old, new),)))
    return changes.isr_shrinks, changes.isr_expands, changes.elections, changes.unclean_elections


WHOLE = Partition((1, 2, 3), (1, 2, 3), leader=1, leader_epoch=4)
SHRUNK = Partition((1, 2, 3), (1, 2), leader=1, leader_epoch=4)


def test_isr_changes_are_counted_only_by_leader() -> None:
    assert counted(topic(WHOLE), topic(SHRUNK)) == (1, 0, 0, 0)
    assert counted(topic(SHRUNK), topic(WHOLE)) == (0, 1, 0, 0)
    assert counted(topic(WHOLE), topic(SHRUNK), node_id=2) == (0, 0, 0, 0)
    assert counted(topic(WHOLE, WHOLE), topic(SHRUNK, SHRUNK)) == (2, 0, 0, 0)


def test_new_leader_counts_election() -> None:
    taken_over = Partition((1, 2, 3), (2, 3), leader=2, leader_epoch=5)
    assert counted(topic(WHOLE), topic(taken_over), node_id=2) == (1, 0, 1, 0)
    assert counted(topic(WHOLE), topic(taken_over), node_id=1) == (0, 0, 0, 0)


def test_leader_outside_isr_counts_unclean_election() -> None:
    alone = Partition((1, 2, 3), (1,), leader=-1, leader_epoch=4)
    unclean = Partition((1, 2, 3), (3,), leader=3, leader_epoch=5)
    assert counted(topic(alone), topic(unclean), node_id=3)[2:] == (1, 1)


def test_new_deleted_and_replayed_partitions_are_not_counted() -> None:
    assert counted(None, topic(WHOLE)) == (0, 0, 0, 0)
    assert counted(topic(WHOLE), None) == (0, 0, 0, 0)
    assert counted(topic(WHOLE), topic(WHOLE, WHOLE)) == (0, 0, 0, 0)
    assert counted(topic(WHOLE), topic(SHRUNK), is_counting=False) == (0, 0, 0, 0)


def test_isr_shrinks_are_taken_by_partition() -> None:
    changes = PartitionChangeCounters(1, lambda: True)
    for _ in range(2):
        changes.apply_delta(Delta(1, topics=(RecordChange(topic(WHOLE, WHOLE), topic(WHOLE, SHRUNK)),)))
    assert changes.take_isr_shrinks() == {"orders-1": 2}
    assert changes.take_isr_shrinks() == {}

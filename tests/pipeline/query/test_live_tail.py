"""Planning of the live tail: its ranges, gaps, and the division into tasks."""

from __future__ import annotations

import pytest

from chronik.client.records import TopicPartition
from chronik.pipeline.query.live_tail import plan_tail_tasks
from chronik.pipeline.query.topic_snapshots import UnreadableTopicError, compute_tail
from chronik.pipeline.source.offset_ranges import OffsetRange

ZERO, ONE = TopicPartition("orders", 0), TopicPartition("orders", 1)


def tail_ranges(
    next_offsets: dict[int, int], zero: tuple[int, int], one: tuple[int, int] = (0, 0)
) -> list[OffsetRange]:
    return compute_tail([ZERO, ONE], next_offsets, {ZERO: zero[0], ONE: one[0]}, {ZERO: zero[1], ONE: one[1]})


def test_tail_starts_at_next_offset_of_table() -> None:
    assert tail_ranges({0: 7, 1: 3}, (0, 20), (2, 4)) == [
        OffsetRange("orders", 0, 7, 20),
        OffsetRange("orders", 1, 3, 4),
    ]


def test_fully_landed_partition_has_no_tail() -> None:
    assert tail_ranges({0: 20}, (20, 20)) == []


def test_partition_that_never_landed_is_all_tail() -> None:
    assert tail_ranges({0: 20}, (3, 20), (5, 9)) == [OffsetRange("orders", 1, 5, 9)]


def test_next_offset_zero_is_not_treated_as_never_landed() -> None:
    with pytest.raises(UnreadableTopicError, match="orders-0: offsets 0 to 4 are missing"):
        tail_ranges({0: 0}, (5, 9))


def test_records_deleted_before_landing_are_an_error() -> None:
    with pytest.raises(
        UnreadableTopicError, match=r"orders-0: offsets 7 to 9 are missing.*query orders_cold for the landed"
    ):
        tail_ranges({0: 7}, (10, 20))


def test_partition_ending_before_its_table_is_an_error() -> None:
    with pytest.raises(UnreadableTopicError, match="up to offset 20, but the partition ends at 20"):
        tail_ranges({0: 21}, (0, 20))


def test_short_ranges_share_a_task_and_long_ranges_are_split() -> None:
    short = [OffsetRange("orders", index, 0, 10) for index in range(5)]
    assert plan_tail_tasks(short, 100) == (tuple(short),)
    assert [len(task) for task in plan_tail_tasks(short, 25)] == [2, 2, 1]
    long = OffsetRange("orders", 9, 0, 250)
    tasks = plan_tail_tasks([*short, long], 100)
    assert [each for task in tasks for each in task][:5] == short
    parts = [each for task in tasks for each in task if each.partition == 9]
    assert (parts[0].start, parts[-1].end, sum(part.size for part in parts)) == (0, 250, 250)
    assert max(sum(each.size for each in task) for task in tasks) <= 100
    assert plan_tail_tasks([], 100) == ()

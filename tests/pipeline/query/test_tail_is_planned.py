"""Where the tail of a topic begins and ends, what happens when that is not to be had, and which task reads what."""

from __future__ import annotations

import pytest

from chronik.client.records import TopicPartition
from chronik.pipeline.query.snapshots import Unreadable, tail_of
from chronik.pipeline.query.tail import tasks_of
from chronik.pipeline.reading.ranges import OffsetRange

ZERO, ONE = TopicPartition("orders", 0), TopicPartition("orders", 1)


def tail(next_offsets: dict[int, int], zero: tuple[int, int], one: tuple[int, int] = (0, 0)) -> list[OffsetRange]:
    return tail_of([ZERO, ONE], next_offsets, {ZERO: zero[0], ONE: one[0]}, {ZERO: zero[1], ONE: one[1]})


def test_the_tail_begins_at_exactly_the_tables_next_offset() -> None:
    assert tail({0: 7, 1: 3}, (0, 20), (2, 4)) == [OffsetRange("orders", 0, 7, 20), OffsetRange("orders", 1, 3, 4)]


def test_a_partition_that_has_landed_whole_has_no_tail() -> None:
    assert tail({0: 20}, (20, 20)) == []


def test_a_partition_that_never_landed_is_all_tail() -> None:
    assert tail({0: 20}, (3, 20), (5, 9)) == [OffsetRange("orders", 1, 5, 9)]


def test_a_partition_that_landed_nothing_yet_begins_at_offset_0_not_anywhere() -> None:
    with pytest.raises(Unreadable, match="orders-0: offsets 0 to 4 are gone"):
        tail({0: 0}, (5, 9))


def test_what_retention_took_before_it_landed_is_named() -> None:
    with pytest.raises(Unreadable, match=r"orders-0: offsets 7 to 9 are gone.*orders_cold has what landed"):
        tail({0: 7}, (10, 20))


def test_a_topic_that_ends_before_its_table_is_refused() -> None:
    with pytest.raises(Unreadable, match="up to offset 20, and the topic ends before 20"):
        tail({0: 21}, (0, 20))


def test_short_ranges_share_a_task_and_long_ones_are_cut() -> None:
    short = [OffsetRange("orders", index, 0, 10) for index in range(5)]
    assert tasks_of(short, 100) == (tuple(short),)
    assert [len(task) for task in tasks_of(short, 25)] == [2, 2, 1]
    long = OffsetRange("orders", 9, 0, 250)
    tasks = tasks_of([*short, long], 100)
    assert [each for task in tasks for each in task][:5] == short
    pieces = [each for task in tasks for each in task if each.partition == 9]
    assert (pieces[0].start, pieces[-1].end, sum(piece.size for piece in pieces)) == (0, 250, 250)
    assert max(sum(each.size for each in task) for task in tasks) <= 100
    assert tasks_of([], 100) == ()

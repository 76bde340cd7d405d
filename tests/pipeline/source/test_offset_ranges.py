"""Tests of splitting and limiting offset ranges, and of the JSON format of offsets."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chronik.client.records import TopicPartition
from chronik.pipeline.source.offset_ranges import (
    OffsetRange,
    build_ranges,
    limit_end_offsets,
    offsets_from_json,
    offsets_to_json,
    split_ranges_evenly,
)

SIZES = st.lists(st.integers(0, 1000), min_size=1, max_size=8)


def partitions(count: int) -> list[TopicPartition]:
    return [TopicPartition("t", index) for index in range(count)]


@given(SIZES, st.integers(1, 40), st.one_of(st.none(), st.integers(1, 300)))
def test_split_ranges_cover_every_offset_once_in_order(sizes: list[int], partitions_min: int, records_max: int) -> None:
    starts = {each: 10 * each.partition for each in partitions(len(sizes))}
    ends = {each: starts[each] + sizes[each.partition] for each in starts}
    whole = build_ranges(starts, ends)
    parts = split_ranges_evenly(whole, partitions_min=partitions_min, records_max=records_max)
    for each in whole:
        range_parts = [part for part in parts if part.topic_partition == each.topic_partition]
        assert (range_parts[0].start, range_parts[-1].end) == (each.start, each.end)
        assert all(before.end == after.start for before, after in pairwise(range_parts))
        assert all(part.size > 0 for part in range_parts)
        assert records_max is None or all(part.size <= records_max for part in range_parts)


def test_larger_ranges_are_split_into_more_parts() -> None:
    ranges = [OffsetRange("t", 0, 0, 900), OffsetRange("t", 1, 0, 100)]
    parts = split_ranges_evenly(ranges, partitions_min=10)
    assert [part.partition for part in parts] == [0] * 9 + [1]


def test_ranges_are_not_split_if_there_are_enough() -> None:
    ranges = [OffsetRange("t", 0, 0, 900), OffsetRange("t", 1, 0, 100)]
    assert split_ranges_evenly(ranges, partitions_min=2) == ranges
    assert split_ranges_evenly([], partitions_min=2) == []


@given(SIZES, st.integers(1, 3000))
def test_record_limit_advances_every_partition_within_bounds(sizes: list[int], records_max: int) -> None:
    starts = dict.fromkeys(partitions(len(sizes)), 7)
    ends = {each: 7 + sizes[each.partition] for each in starts}
    reached = limit_end_offsets(starts, ends, records_max)
    record_counts = {each: reached[each] - starts[each] for each in starts}
    assert all(min(1, sizes[each.partition]) <= record_counts[each] <= sizes[each.partition] for each in record_counts)
    assert sum(record_counts.values()) <= max(records_max, sum(size > 0 for size in sizes) + records_max)
    if sum(sizes) <= records_max:
        assert reached == ends


def test_record_limit_is_split_in_proportion_to_available_records() -> None:
    first, second, third = partitions(3)
    starts = {first: 0, second: 0, third: 5}
    assert limit_end_offsets(starts, {first: 900, second: 100, third: 5}, 100) == {first: 90, second: 10, third: 5}


def test_json_offsets_have_format_of_spark_kafka_source() -> None:
    offsets = {TopicPartition("b", 0): 3, TopicPartition("a", 10): 2, TopicPartition("a", 2): 1}
    assert offsets_to_json(offsets) == {"a": {"2": 1, "10": 2}, "b": {"0": 3}}
    assert offsets_from_json(offsets_to_json(offsets)) == offsets


@pytest.mark.parametrize("malformed", [{"a": 1}, {"a": {"x": 1}}, {"a": {"0": "1"}}, {"a": {"0": True}}, {"a": [1]}])
def test_malformed_json_offsets_are_rejected(malformed: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="topic 'a'"):
        offsets_from_json(malformed)

"""Tests of the commit plan: each offset is committed once and in order, and other ranges are rejected."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chronik.errors import InvariantError
from chronik.pipeline.tables.commit_plan import (
    OffsetGapError,
    OverlappingRangesError,
    PartitionRange,
    TaskOutput,
    exclude_committed_offsets,
    plan_commit,
)


def task_output(*spans: tuple[int, int, int]) -> TaskOutput:
    return TaskOutput(tuple(PartitionRange(*span) for span in spans))


def test_partition_without_rows_may_start_at_any_offset() -> None:
    choice = plan_commit([task_output((0, 500, 600))], {})
    assert choice.next_offsets == {0: 600}
    assert len(choice.new_outputs) == 1


def test_next_offset_zero_is_not_taken_for_none() -> None:
    with pytest.raises(OffsetGapError):
        plan_commit([task_output((0, 5, 10))], {0: 0})
    assert plan_commit([task_output((0, 0, 10))], {0: 0}).next_offsets == {0: 10}


def test_committed_ranges_are_skipped() -> None:
    old, new = task_output((0, 0, 10)), task_output((0, 10, 20))
    choice = plan_commit([old, new], {0: 10})
    assert (choice.new_outputs, choice.committed_outputs, choice.next_offsets) == ((new,), (old,), {0: 20})


def test_next_offsets_stay_if_all_ranges_are_committed() -> None:
    choice = plan_commit([task_output((0, 0, 10)), task_output((1, 0, 5))], {0: 10, 1: 7})
    assert (choice.new_outputs, choice.next_offsets) == ((), {})


def test_partly_committed_range_is_rejected() -> None:
    with pytest.raises(OverlappingRangesError, match=r"partition 0 \[0, 20\): the table continues at 10"):
        plan_commit([task_output((0, 0, 20))], {0: 10})


def test_task_output_with_one_committed_partition_is_rejected() -> None:
    with pytest.raises(OverlappingRangesError):
        plan_commit([task_output((0, 0, 10), (1, 0, 10))], {0: 10, 1: 0})


def test_offset_gap_is_rejected() -> None:
    with pytest.raises(OffsetGapError):
        plan_commit([task_output((0, 11, 20))], {0: 10})


def test_gap_between_task_outputs_is_rejected() -> None:
    with pytest.raises(OffsetGapError):
        plan_commit([task_output((0, 0, 5)), task_output((0, 6, 10))], {})


def test_duplicate_range_is_rejected() -> None:
    with pytest.raises(OverlappingRangesError):
        plan_commit([task_output((0, 0, 5)), task_output((0, 0, 5))], {})


def test_allow_gaps_still_rejects_overlap() -> None:
    assert plan_commit([task_output((0, 11, 20))], {0: 10}, allow_gaps=True).next_offsets == {0: 20}
    with pytest.raises(OverlappingRangesError):
        plan_commit([task_output((0, 9, 20))], {0: 10}, allow_gaps=True)


def test_task_outputs_are_accepted_in_any_order() -> None:
    crossed = [task_output((0, 0, 10), (1, 10, 20)), task_output((0, 10, 20), (1, 0, 10))]
    assert plan_commit(crossed, {0: 0, 1: 0}).next_offsets == {0: 20, 1: 20}
    assert plan_commit(crossed[::-1], {0: 0, 1: 0}).next_offsets == {0: 20, 1: 20}


@pytest.mark.parametrize("span", [(0, 5, 5), (0, 6, 5), (-1, 0, 1), (0, -1, 1)])
def test_invalid_range_violates_invariant(span: tuple[int, int, int]) -> None:
    with pytest.raises(InvariantError):
        PartitionRange(*span)


def test_task_output_without_ranges_violates_invariant() -> None:
    with pytest.raises(InvariantError):
        TaskOutput(())


@given(
    bounds=st.lists(st.integers(0, 50), min_size=2, max_size=6, unique=True).map(sorted),
    position=st.integers(0, 50),
)
def test_ranges_planned_from_next_offsets_are_always_accepted(bounds: list[int], position: int) -> None:
    """For any split into ranges, and any next offset of the table."""
    spans = [PartitionRange(0, start, end) for start, end in pairwise(bounds)]
    rest = exclude_committed_offsets(spans, {0: position} if position >= bounds[0] else {})
    choice = plan_commit([TaskOutput((span,)) for span in rest], {0: position} if position >= bounds[0] else {})
    assert len(choice.new_outputs) == len(rest)
    assert [span.start for span in rest[:1]] == ([max(position, bounds[0])] if position < bounds[-1] else [])
    assert choice.next_offsets == ({0: bounds[-1]} if rest else {})

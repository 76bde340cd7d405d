"""The estimate of the number of distinct values."""

from __future__ import annotations

import pytest

from chronik.console.rest.distinct_counter import DistinctCounter


@pytest.mark.parametrize("count", [0, 1, 100, 3_000, 20_000])
def test_estimate_is_within_five_standard_errors(count: int) -> None:
    counter = DistinctCounter()
    for number in range(count):
        counter.add(b"%d" % number)
        counter.add(b"%d" % (number // 2))
    assert abs(counter.estimate() - count) <= 5 * 0.023 * count


def test_merged_counter_counts_common_values_once() -> None:
    first, second = DistinctCounter(), DistinctCounter()
    for number in range(1_000):
        first.add(b"%d" % number)
        second.add(b"%d" % (number + 500))
    first.merge(second)
    assert abs(first.estimate() - 1_500) <= 5 * 0.023 * 1_500

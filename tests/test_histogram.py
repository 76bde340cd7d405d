from __future__ import annotations

import pytest

from chronik.histogram import LATENCY_SECONDS, Histogram, quantile


def test_histogram_counts_value_in_first_bucket_with_sufficient_bound() -> None:
    histogram = Histogram()
    for seconds in (0.0, 0.0001, 0.00011, 0.003, 10.0, 10.1):
        histogram.record(seconds)
    counted = {bound: count for bound, count in zip(LATENCY_SECONDS, histogram.counts, strict=False) if count}
    assert counted == {0.0001: 2, 0.00025: 1, 0.005: 1, 10.0: 1}
    assert histogram.counts[-1] == 1
    assert histogram.count == 6
    assert histogram.total_seconds == pytest.approx(20.10321)


def test_histogram_bounds_are_increasing() -> None:
    assert list(LATENCY_SECONDS) == sorted(set(LATENCY_SECONDS))


def test_quantile_is_interpolated_within_its_bucket() -> None:
    histogram = Histogram()
    for _ in range(99):
        histogram.record(0.0007)
    histogram.record(0.2)
    assert 0.0005 < (quantile(histogram.counts, 0.5) or 0) <= 0.001
    assert quantile(histogram.counts, 0.99) == pytest.approx(0.001)
    assert 0.1 < (quantile(histogram.counts, 0.995) or 0) <= 0.25


def test_quantile_of_empty_histogram_is_none_and_overflow_is_highest_bound() -> None:
    histogram = Histogram()
    assert quantile(histogram.counts, 0.99) is None
    histogram.record(60.0)
    assert quantile(histogram.counts, 0.5) == LATENCY_SECONDS[-1]

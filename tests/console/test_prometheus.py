from __future__ import annotations

import math

import pytest

from chronik.console.prometheus import EMPTY_CHUNK, LINES_PER_CHUNK, format_exposition, iter_exposition_chunks
from chronik.console.status_source import Metric, Sample
from chronik.errors import InvariantError
from chronik.histogram import Histogram


def test_family_has_help_type_and_samples() -> None:
    requests = [Sample(3, {"api": "Fetch", "node": "1"}), Sample(0, {"api": "Produce", "node": "1"})]
    metrics = [
        Metric("chronik_requests_total", "counter", "Requests by API.", requests),
        Metric("chronik_uptime_seconds", "gauge", "Since the start.", [Sample(1.5)]),
    ]
    assert format_exposition(metrics) == (
        "# HELP chronik_requests_total Requests by API.\n"
        "# TYPE chronik_requests_total counter\n"
        'chronik_requests_total{api="Fetch",node="1"} 3\n'
        'chronik_requests_total{api="Produce",node="1"} 0\n'
        "# HELP chronik_uptime_seconds Since the start.\n"
        "# TYPE chronik_uptime_seconds gauge\n"
        "chronik_uptime_seconds 1.5\n"
    )


def test_family_without_samples_is_omitted() -> None:
    assert format_exposition([Metric("a", "gauge", "None.", [])]) == ""


def test_help_and_label_values_are_escaped() -> None:
    text = format_exposition([Metric("a", "gauge", "one\\\ntwo", [Sample(1, {"x": 'a "b"\\\nc'})])])
    assert text.splitlines() == [r"# HELP a one\\\ntwo", "# TYPE a gauge", r'a{x="a \"b\"\\\nc"} 1']


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (2**60 + 1, "1152921504606846977"),
        (0.1, "0.1"),
        (1e300, "1e+300"),
        (True, "1"),
        (math.inf, "+Inf"),
        (-math.inf, "-Inf"),
        (math.nan, "NaN"),
    ],
)
def test_numbers_are_formatted_exactly(value: float, expected: str) -> None:
    assert format_exposition([Metric("a", "gauge", "A.", [Sample(value)])]).splitlines()[-1] == f"a {expected}"


@pytest.mark.parametrize(
    "metric",
    [
        Metric("a-b", "gauge", "", []),
        Metric("1a", "gauge", "", []),
        Metric("a", "summary", "", []),
        Metric("a", "gauge", "", [Sample(1, {"x-y": ""})]),
        Metric("a", "gauge", "", [Sample(Histogram())]),
        Metric("a", "histogram", "", [Sample(1)]),
    ],
)
def test_invalid_metric_is_rejected(metric: Metric) -> None:
    with pytest.raises(InvariantError):
        format_exposition([metric])


def test_histogram_buckets_are_cumulative() -> None:
    histogram = Histogram()
    for seconds in (0.0002, 0.0002, 0.3, 60.0):
        histogram.record(seconds)
    lines = format_exposition([Metric("a", "histogram", "A.", [Sample(histogram, {"x": "y"})])]).splitlines()
    assert lines[1] == "# TYPE a histogram"
    assert lines[2:5] == [
        'a_bucket{x="y",le="0.0001"} 0',
        'a_bucket{x="y",le="0.00025"} 2',
        'a_bucket{x="y",le="0.0005"} 2',
    ]
    assert lines[-4:] == [
        'a_bucket{x="y",le="10.0"} 3',
        'a_bucket{x="y",le="+Inf"} 4',
        'a_sum{x="y"} 60.3004',
        'a_count{x="y"} 4',
    ]


def test_chunks_concatenate_to_whole_exposition() -> None:
    many = Metric("a", "gauge", "A.", [Sample(number, {"n": str(number)}) for number in range(3 * LINES_PER_CHUNK)])
    few = Metric("b", "gauge", "B.", [Sample(1)])
    metrics = [few, None, None, many]
    chunks = list(iter_exposition_chunks(metrics))
    assert chunks[1] == EMPTY_CHUNK, "an iteration without output"
    assert max(chunk.count(b"\n") for chunk in chunks) == LINES_PER_CHUNK
    assert b"".join(chunks).decode().replace("\n\n", "\n") == format_exposition(metrics)

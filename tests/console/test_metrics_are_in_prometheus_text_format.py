from __future__ import annotations

import math

import pytest

from chronik.console.prometheus import LINES_PER_PIECE, NOTHING, exposition, exposition_pieces
from chronik.console.source import Metric, Sample
from chronik.errors import InvariantBroken
from chronik.meters import Histogram


def test_a_family_has_its_help_its_type_and_its_samples() -> None:
    requests = [Sample(3, {"api": "Fetch", "node": "1"}), Sample(0, {"api": "Produce", "node": "1"})]
    metrics = [
        Metric("chronik_requests_total", "counter", "Requests by API.", requests),
        Metric("chronik_uptime_seconds", "gauge", "Since the start.", [Sample(1.5)]),
    ]
    assert exposition(metrics) == (
        "# HELP chronik_requests_total Requests by API.\n"
        "# TYPE chronik_requests_total counter\n"
        'chronik_requests_total{api="Fetch",node="1"} 3\n'
        'chronik_requests_total{api="Produce",node="1"} 0\n'
        "# HELP chronik_uptime_seconds Since the start.\n"
        "# TYPE chronik_uptime_seconds gauge\n"
        "chronik_uptime_seconds 1.5\n"
    )


def test_a_family_without_samples_is_left_out() -> None:
    assert exposition([Metric("a", "gauge", "None.", [])]) == ""


def test_what_would_break_a_line_is_escaped() -> None:
    text = exposition([Metric("a", "gauge", "one\\\ntwo", [Sample(1, {"x": 'a "b"\\\nc'})])])
    assert text.splitlines() == [r"# HELP a one\\\ntwo", "# TYPE a gauge", r'a{x="a \"b\"\\\nc"} 1']


@pytest.mark.parametrize(
    ("value", "written"),
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
def test_numbers_are_written_exactly(value: float, written: str) -> None:
    assert exposition([Metric("a", "gauge", "A.", [Sample(value)])]).splitlines()[-1] == f"a {written}"


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
def test_a_name_that_no_scraper_would_take_is_refused(metric: Metric) -> None:
    with pytest.raises(InvariantBroken):
        exposition([metric])


def test_buckets_of_a_histogram_count_what_is_below_them_too() -> None:
    histogram = Histogram()
    for seconds in (0.0002, 0.0002, 0.3, 60.0):
        histogram.add(seconds)
    lines = exposition([Metric("a", "histogram", "A.", [Sample(histogram, {"x": "y"})])]).splitlines()
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


def test_pieces_say_together_what_the_whole_says() -> None:
    many = Metric("a", "gauge", "A.", [Sample(number, {"n": str(number)}) for number in range(3 * LINES_PER_PIECE)])
    few = Metric("b", "gauge", "B.", [Sample(1)])
    metrics = [few, None, None, many]
    pieces = list(exposition_pieces(metrics))
    assert pieces[1] == NOTHING, "a turn in which there was nothing to say"
    assert max(piece.count(b"\n") for piece in pieces) == LINES_PER_PIECE
    assert b"".join(pieces).decode().replace("\n\n", "\n") == exposition(metrics)

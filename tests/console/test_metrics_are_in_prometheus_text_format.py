from __future__ import annotations

import math

import pytest

from chronik.console.prometheus import exposition
from chronik.console.source import Metric, Sample
from chronik.errors import InvariantBroken


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
        Metric("a", "histogram", "", []),
        Metric("a", "gauge", "", [Sample(1, {"x-y": ""})]),
    ],
)
def test_a_name_that_no_scraper_would_take_is_refused(metric: Metric) -> None:
    with pytest.raises(InvariantBroken):
        exposition([metric])

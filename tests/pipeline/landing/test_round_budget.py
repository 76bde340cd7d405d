"""Adaptation of landing rounds to slow and throttling stores, in simulations."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chronik.limits import MIB
from chronik.pipeline.landing.round_budget import (
    ROUND_BYTES_MAX,
    ROUND_BYTES_MIN,
    ROUND_BYTES_START,
    ROUND_SECONDS_MAX,
    ROUND_SECONDS_TARGET,
    RoundBudget,
    is_throttling_error,
)


def land(
    budget: RoundBudget, backlog: float, rate: float, rounds: int, *, topics: int = 1, fixed_s: float = 0.3
) -> float:
    """Land rounds of a backlog with a store of a rate in bytes per second; return the duration of the last one."""
    seconds = 0.0
    for _ in range(rounds):
        size = min(backlog, budget.bytes_max)
        seconds = fixed_s + size / rate
        budget.record_round(int(size), seconds, topics, is_throttled=False)
    return seconds


@settings(deadline=None)
@given(st.floats(0.3, 10_000), st.floats(0.05, 5.0))
def test_rounds_of_any_store_are_bounded(rate_mib: float, fixed_s: float) -> None:
    budget = RoundBudget()
    seconds = land(budget, 10.0**15, rate_mib * MIB, 30, fixed_s=fixed_s)
    assert seconds <= ROUND_SECONDS_MAX * 1.1 + fixed_s
    assert ROUND_BYTES_MIN <= budget.bytes_max <= ROUND_BYTES_MAX


def test_store_that_slows_down_gets_smaller_rounds_and_recovers() -> None:
    budget = RoundBudget()
    land(budget, 10.0**15, 1000 * MIB, 10)
    assert budget.bytes_max == ROUND_BYTES_MAX
    assert land(budget, 10.0**15, 20 * MIB, 10) <= 2 * ROUND_SECONDS_TARGET
    assert budget.is_reduced
    land(budget, 10.0**15, 1000 * MIB, 10)
    assert budget.bytes_max == ROUND_BYTES_MAX


def test_rounds_of_many_topics_with_few_records_are_not_reduced() -> None:
    budget = RoundBudget()
    land(budget, 100 * MIB, 1000 * MIB, 50, topics=1000, fixed_s=15.0)
    assert budget.bytes_max == ROUND_BYTES_START


def test_throttling_halves_rounds_down_to_the_minimum() -> None:
    budget = RoundBudget()
    budget.record_round(0, 1.0, 1, is_throttled=True)
    assert budget.bytes_max == ROUND_BYTES_START / 2
    for _ in range(20):
        budget.record_round(0, 1.0, 1, is_throttled=True)
    assert budget.bytes_max == ROUND_BYTES_MIN


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("s3://lake: SlowDown: Please reduce your request rate", True),
        ("s3://lake/orders: 503 Service Unavailable", True),
        ("HTTP 429 Too Many Requests", True),
        ("ThrottlingException: rate exceeded", True),
        ("s3://lake: access denied (PUT)", False),
        ("orders-1503: no records of offsets 5030 to 4290", False),
    ],
)
def test_throttling_errors_are_recognized(message: str, expected: bool) -> None:
    assert is_throttling_error(message) is expected

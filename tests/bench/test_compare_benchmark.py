"""`make compare`: a regression is below the limit and below the noise of the base compared with itself."""

from __future__ import annotations

import pytest

from bench.compare import BASE, BASE_AGAIN, CURRENT, compare_values

BASE_VALUES = [100.0, 110.0, 90.0, 105.0, 95.0]


def values(now: float, itself: float = 1.0, spread: float = 0.0) -> dict[str, list[float]]:
    noise = [1 - spread, 1.0, 1 + spread, 1 - spread / 2, 1 + spread / 2]
    return {
        BASE: BASE_VALUES,
        BASE_AGAIN: [each * itself * factor for each, factor in zip(BASE_VALUES, noise, strict=True)],
        CURRENT: [each * now for each in BASE_VALUES],
    }


@pytest.mark.parametrize(
    ("what", "now", "spread", "is_worse"),
    [
        ("produced, records/s", 0.96, 0.0, False),
        ("produced, records/s", 0.94, 0.0, True),
        ("produced, records/s", 0.94, 0.3, False),
        ("produced, records/s", 0.60, 0.3, True),
        ("produced, CPU, s/M", 1.04, 0.0, False),
        ("produced, CPU, s/M", 1.07, 0.0, True),
        ("round trip, p50, ms", 0.5, 0.0, False),
    ],
)
def test_figure_is_worse_below_limit_and_outside_noise(what: str, now: float, spread: float, is_worse: bool) -> None:
    assert compare_values(what, values(now, spread=spread), 0.95).is_worse is is_worse


def test_ratio_above_one_is_better_for_rates_and_latencies() -> None:
    assert compare_values("records/s", values(1.25), 0.95).ratio == pytest.approx(1.25)
    assert compare_values("p50, ms", values(0.8), 0.95).ratio == pytest.approx(1.25)

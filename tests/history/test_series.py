"""Ring buffers of decreasing resolution: gaps, counters, restarts, changes of the clock, and the choice of subjects."""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chronik.history.metrics import HistoryMetric, Scope
from chronik.history.series import RESOLUTIONS, SLOTS, STEP_S, Reading, SeriesTable, Subject
from tests import run_size

START_S = 1_700_000_000 // 86_400 * 86_400
GAUGE = HistoryMetric("size", Scope.TOPIC, "bytes", "")
PEAK = HistoryMetric("delay", Scope.TOPIC, "ms", "", is_peak=True)
COUNTER = HistoryMetric("bytes_in", Scope.TOPIC, "bytes/s", "", is_counter=True)
NODE: Subject = ()


def table(*metrics: HistoryMetric, subjects_max: int = 1) -> SeriesTable:
    return SeriesTable(metrics, subjects_max)


def record(
    series: SeriesTable,
    at_s: float,
    readings: Mapping[Subject, Reading] | float | None,
    monotonic_s: float | None = None,
    interval_s: float = STEP_S,
) -> None:
    given = readings if isinstance(readings, Mapping) else {NODE: Reading((readings,))}
    for _ in series.record(START_S + at_s, at_s if monotonic_s is None else monotonic_s, interval_s, given):
        pass


def values(series: SeriesTable, metric: HistoryMetric, first_s: int, last_s: int, level: int = 0) -> list[float | None]:
    """Return the values of the slots that start at `first_s` to `last_s`."""
    resolution = RESOLUTIONS[level]
    start = (START_S + first_s) // resolution.step_s
    found = series.read(NODE, metric.name, resolution, start, (last_s - first_s) // resolution.step_s + 1)
    return [None if math.isnan(each) else each for each in found]


def test_sample_counts_for_the_slot_that_it_ends() -> None:
    series = table(GAUGE)
    record(series, 10, 1.0)
    record(series, 20.2, 2.0)
    record(series, 29.9, 3.0)
    assert values(series, GAUGE, 0, 40) == [1.0, 2.0, 3.0, None, None]


def test_missing_samples_are_gaps() -> None:
    series = table(GAUGE)
    record(series, 10, 1.0)
    record(series, 60, 2.0)
    assert values(series, GAUGE, 0, 50) == [1.0, None, None, None, None, 2.0]


def test_unknown_value_is_a_gap() -> None:
    series = table(GAUGE)
    for at_s, value in ((10, 1.0), (20, None), (30, 3.0)):
        record(series, at_s, value)
    assert values(series, GAUGE, 0, 20) == [1.0, None, 3.0]


def test_sample_of_a_longer_interval_counts_for_all_of_it() -> None:
    series = table(COUNTER)
    record(series, 40, 0, interval_s=40)
    record(series, 80, 400, interval_s=40)
    assert values(series, COUNTER, 20, 70) == [None, None, 10.0, 10.0, 10.0, 10.0]


def test_rate_is_the_difference_of_the_counter_by_the_elapsed_time() -> None:
    series = table(COUNTER)
    record(series, 10, 100)
    record(series, 20.5, 310)
    assert values(series, COUNTER, 0, 10) == [None, pytest.approx(20.0)]


def test_reset_of_a_counter_is_a_gap() -> None:
    series = table(COUNTER)
    for at_s, value in ((10, 1000), (20, 2000), (30, 50), (40, 150)):
        record(series, at_s, value)
    assert values(series, COUNTER, 0, 30) == [None, 100.0, None, 10.0]


def test_other_epoch_of_a_counter_is_a_gap() -> None:
    series = table(COUNTER)
    for at_s, value, epoch in ((10, 1000, 1), (20, 900_000, 2), (30, 900_100, 2)):
        record(series, at_s, {NODE: Reading((value,), epoch)})
    assert values(series, COUNTER, 0, 20) == [None, None, 10.0]


def test_counter_after_a_pause_is_a_gap() -> None:
    series = table(COUNTER)
    for at_s, value in ((10, 0), (20, 100), (320, 900_000), (330, 900_100)):
        record(series, at_s, value)
    assert values(series, COUNTER, 0, 20) == [None, 10.0, None]
    assert values(series, COUNTER, 300, 320) == [None, None, 10.0]


def test_suspended_process_leaves_a_gap_although_its_monotonic_clock_stopped() -> None:
    series = table(GAUGE)
    record(series, 10, 1.0, monotonic_s=10)
    record(series, 3610, 2.0, monotonic_s=20)
    assert values(series, GAUGE, 3580, 3600) == [None, None, 2.0]
    assert values(series, GAUGE, 0, 0) == [None], "the ring buffer has wrapped around"


def test_clock_set_back_discards_the_later_slots() -> None:
    series = table(GAUGE)
    for at_s in range(10, 130, 10):
        record(series, at_s, float(at_s))
    record(series, 60, 7.0, monotonic_s=130)
    assert values(series, GAUGE, 30, 110) == [40.0, 50.0, 7.0, None, None, None, None, None, None]
    assert values(series, GAUGE, 0, 60, level=1) == [pytest.approx((10 + 20 + 30 + 40 + 50 + 7) / 6), None]


def test_lower_resolutions_have_means_and_maxima() -> None:
    series = table(GAUGE, PEAK)
    for at_s in range(10, 610, 10):
        record(series, at_s, {NODE: Reading((float(at_s), float(at_s)))})
    assert values(series, GAUGE, 0, 60, level=1) == [35.0, 95.0]
    assert values(series, PEAK, 0, 60, level=1) == [60.0, 120.0]
    assert values(series, GAUGE, 0, 300, level=2) == [155.0, 455.0]
    assert values(series, PEAK, 0, 300, level=2) == [300.0, 600.0]


def test_incomplete_slot_of_a_lower_resolution_has_the_samples_so_far() -> None:
    series = table(GAUGE)
    record(series, 10, 1.0)
    record(series, 20, 3.0)
    assert values(series, GAUGE, 0, 0, level=1) == [2.0]
    assert values(series, GAUGE, 0, 0, level=2) == [2.0]


@settings(max_examples=run_size.sized(25, 2000), deadline=None)
@given(st.lists(st.tuples(st.integers(-9000, 9000), st.floats(0, 1000, width=32)), min_size=1, max_size=30))
def test_series_has_no_wrong_sample_after_any_change_of_the_clock(steps: list[tuple[int, float]]) -> None:
    series, model, slot = table(PEAK), dict[int, float](), 10_000
    for number, (jump, value) in enumerate(steps):
        slot = max(slot + jump, 0)
        model = {each: kept for each, kept in model.items() if each < slot} | {slot: value}
        record(series, (slot + 1) * STEP_S, value, 1000.0 * number)
    resolution = RESOLUTIONS[0]
    start = slot - 2 * resolution.slots
    found = series.read(NODE, PEAK.name, resolution, START_S // STEP_S + start, 3 * resolution.slots)
    wrong = {
        start + number: value
        for number, value in enumerate(found)
        if not math.isnan(value) and value != model.get(start + number)
    }
    assert not wrong
    assert found[2 * resolution.slots] == model[slot]


@settings(max_examples=run_size.sized(25, 2000), deadline=None)
@given(st.lists(st.tuples(st.integers(1, 200), st.floats(0, 1000, width=32)), min_size=1, max_size=30))
def test_series_has_every_sample_while_time_advances(steps: list[tuple[int, float]]) -> None:
    series, model, slot = table(PEAK), dict[int, float](), 0
    for number, (jump, value) in enumerate(steps):
        slot += jump
        record(series, (slot + 1) * STEP_S, value, 1000.0 * number)
        model[slot] = value
    for resolution in RESOLUTIONS:
        now = (START_S // STEP_S + slot) // resolution.ratio
        found = series.read(NODE, PEAK.name, resolution, now - resolution.slots + 1, resolution.slots)
        for number, value in enumerate(found):
            first = (now - resolution.slots + 1 + number) * resolution.ratio - START_S // STEP_S
            samples = [model[each] for each in range(first, first + resolution.ratio) if each in model]
            assert (value == max(samples)) if samples else math.isnan(value)


# Selection of subjects


def topic(number: int) -> Subject:
    return (f"topic-{number}",)


def test_busiest_subjects_are_kept_and_others_are_counted() -> None:
    series = table(GAUGE, subjects_max=10)
    readings = {topic(number): Reading((float(number),)) for number in range(100)}
    for at_s in range(10, 110, 10):
        record(series, at_s, readings)
    assert set(series.scores) == {topic(number) for number in range(90, 100)}
    assert series.left_out == 90
    assert series.lacks(topic(0))
    assert not series.lacks(topic(99))
    assert not series.lacks(("unknown",))


def test_busier_subject_replaces_the_least_busy_one() -> None:
    series = table(GAUGE, subjects_max=2)
    record(series, 10, {topic(1): Reading((10.0,)), topic(2): Reading((20.0,))})
    record(series, 20, {topic(1): Reading((10.0,)), topic(2): Reading((20.0,)), topic(3): Reading((15.0,))})
    assert set(series.scores) == {topic(1), topic(2)}, "it is not twice as busy"
    record(series, 30, {topic(1): Reading((10.0,)), topic(2): Reading((20.0,)), topic(3): Reading((25.0,))})
    assert set(series.scores) == {topic(2), topic(3)}


def test_subject_that_was_busy_is_replaced_after_hours() -> None:
    series = table(GAUGE, subjects_max=1)
    record(series, 10, {topic(1): Reading((1000.0,))})
    replaced_at = 0
    for at_s in range(20, 9 * 3600, 10):
        record(series, at_s, {topic(1): Reading((0.0,)), topic(2): Reading((10.0,))})
        if topic(2) in series:
            replaced_at = at_s
            break
    assert 5 * 3600 < replaced_at < 8 * 3600, "half of its score remains after an hour"


def test_memory_is_bounded_with_ten_thousand_topics() -> None:
    generator = random.Random(run_size.SEED)
    series = table(COUNTER, GAUGE, GAUGE, subjects_max=200)
    for at_s in (10, 20):
        readings = {topic(number): Reading((at_s * generator.random(), 1, 1)) for number in range(10_000)}
        record(series, at_s, readings)
        assert len(series) == 200
    bytes_per_series = sys.getsizeof(series.read(topic(0), GAUGE.name, RESOLUTIONS[0], 0, SLOTS))
    assert 200 * 3 * bytes_per_series < 3_000_000


def test_removed_subject_has_no_series() -> None:
    series = table(GAUGE, subjects_max=2)
    record(series, 10, {topic(1): Reading((1.0,))})
    series.remove(topic(1))
    series.remove(topic(2))
    assert len(series) == 0
    assert all(math.isnan(each) for each in series.read(topic(1), GAUGE.name, RESOLUTIONS[0], START_S // 10, 2))

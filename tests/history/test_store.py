"""Queries of the history: time ranges, resolutions, limits, and the combination of nodes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chronik.history.aggregation import (
    POINTS_MAX,
    RANGE_MAX_S,
    RANGE_MIN_S,
    TimeRange,
    combine_answers,
    plan_range,
    rank_subjects,
)
from chronik.history.metrics import Scope, list_scope_metrics
from chronik.history.series import RESOLUTIONS, Reading, Subject
from chronik.history.store import HistoryQuery, HistoryStore, InvalidHistoryQuery
from tests import run_size

NOW_S = 1_700_000_000.0
HIGHEST = RESOLUTIONS[0]


def store(samples: dict[Scope, dict[Subject, tuple[float | None, ...]]], times: int = 3) -> HistoryStore:
    """Return a store with the same sample several times, the last one at NOW_S."""
    created = HistoryStore()
    for number in range(times):
        at_s = NOW_S - 10 * (times - 1 - number)
        for scope, rows in samples.items():
            readings = {subject: Reading(values) for subject, values in rows.items()}
            for _ in created.tables[scope].record(at_s, at_s, 10, readings):
                pass
    return created


def query(scope: Scope, metrics: tuple[str, ...], subjects: tuple[Subject, ...], time_range: TimeRange) -> HistoryQuery:
    step_s = time_range.resolution.step_s
    return HistoryQuery(scope, metrics, subjects, None, None, step_s, time_range.start, time_range.slots)


@pytest.mark.parametrize(
    ("age_s", "range_s", "step_s", "expected_step_s"),
    [
        (0, 600, None, 10),
        (0, 3600, None, 10),
        (0, 3601, None, 60),
        (3000, 900, None, 60),
        (0, 21_600, None, 60),
        (0, 86_400, None, 300),
        (80_000, 600, None, 300),
        (0, 3600, 60, 60),
        (0, 3600, 61, 120),
        (0, 86_400, 10, 300),
        (0, 86_400, 3600, 3600),
        (0, 600, 25, 30),
    ],
)
def test_range_has_the_highest_resolution_that_goes_back_far_enough(
    age_s: int, range_s: int, step_s: int | None, expected_step_s: int
) -> None:
    found = plan_range(NOW_S, NOW_S - age_s, range_s, step_s)
    assert found.step_s == expected_step_s
    end_s = found.start_s + found.points * found.step_s
    assert 0 <= end_s - (NOW_S - age_s) < found.step_s
    assert range_s <= found.points * found.step_s < range_s + found.step_s


@settings(max_examples=run_size.sized(100, 3000), deadline=None)
@given(st.integers(0, RANGE_MAX_S), st.integers(RANGE_MIN_S, RANGE_MAX_S), st.none() | st.integers(1, RANGE_MAX_S))
def test_number_of_points_is_limited(age_s: int, range_s: int, step_s: int | None) -> None:
    found = plan_range(NOW_S, NOW_S - age_s, range_s, step_s)
    assert 1 <= found.points <= POINTS_MAX
    assert found.points * found.step_s >= range_s
    assert found.start % found.group == 0, "the points of all nodes and of later requests are the same"


def test_answers_of_nodes_are_summed_and_gaps_are_kept() -> None:
    first = store({Scope.GROUP: {("billing",): (10.0,)}}, times=3)
    second = store({Scope.GROUP: {("billing",): (5.0,)}}, times=2)
    time_range = TimeRange(HIGHEST, int(NOW_S) // 10 - 5, 5, 1)
    asked = query(Scope.GROUP, ("group_lag",), (("billing",),), time_range)
    (series,) = combine_answers(time_range, [first.answer(asked), second.answer(asked)])
    assert series.values == [None, None, 10.0, 15.0, 15.0]
    assert not series.is_partial


def test_peaks_of_nodes_have_their_maximum() -> None:
    metrics = list_scope_metrics(Scope.NODE)
    stores = [store({Scope.NODE: {(): tuple(value for _ in metrics)}}) for value in (3.0, 7.0)]
    time_range = TimeRange(HIGHEST, int(NOW_S) // 10 - 4, 2, 2)
    asked = query(Scope.NODE, ("produce_p99_ms", "memory", "cpu"), ((),), time_range)
    found = combine_answers(time_range, [each.answer(asked) for each in stores])
    assert {each.metric: each.values for each in found} == {
        "produce_p99_ms": [7.0, 7.0],
        "memory": [10.0, 10.0],
        "cpu": [None, 0.0],
    }


def test_subjects_are_selected_and_ranked_over_nodes() -> None:
    pairs: dict[Subject, tuple[float | None, ...]] = {
        ("billing", "orders"): (5.0,),
        ("billing", "refunds"): (9.0,),
        ("audit", "orders"): (1.0,),
    }
    stores = [store({Scope.GROUP_TOPIC: pairs}), store({Scope.GROUP_TOPIC: {("audit", "orders"): (100.0,)}})]
    selections = {
        (None, None): [("audit", "orders"), ("billing", "refunds"), ("billing", "orders")],
        ("billing", None): [("billing", "refunds"), ("billing", "orders")],
        (None, "orders"): [("audit", "orders"), ("billing", "orders")],
        ("billing", "orders"): [("billing", "orders")],
        ("orders", None): [],
    }
    for (group, topic), expected in selections.items():
        asked = HistoryQuery(Scope.GROUP_TOPIC, group=group, topic=topic)
        assert rank_subjects(each.answer(asked) for each in stores) == expected


def test_subject_without_history_on_a_node_makes_the_series_partial() -> None:
    busy: dict[Subject, tuple[float | None, ...]] = {(f"group-{number}",): (1000.0 + number,) for number in range(250)}
    first = store({Scope.GROUP: busy | {("quiet",): (1.0,)}})
    second = store({Scope.GROUP: {("quiet",): (2.0,)}})
    time_range = TimeRange(HIGHEST, int(NOW_S) // 10 - 1, 1, 1)
    asked = query(Scope.GROUP, ("group_lag",), (("quiet",), ("unknown",)), time_range)
    answers = [first.answer(asked), second.answer(asked)]
    (series,) = combine_answers(time_range, answers)
    assert (series.subject, series.values, series.is_partial) == (("quiet",), [2.0], True)
    assert [each.left_out for each in answers] == [1, 0]


@pytest.mark.parametrize(
    "asked",
    [
        HistoryQuery(9),
        HistoryQuery(Scope.NODE, step_s=11),
        HistoryQuery(Scope.NODE, ("group_lag",), ((),)),
        HistoryQuery(Scope.NODE, ("nothing",), ((),)),
        HistoryQuery(Scope.NODE, ("memory",), ((),), number=200_001),
        HistoryQuery(Scope.GROUP, ("group_lag",), tuple((str(each),) for each in range(201)), number=1000),
    ],
)
def test_invalid_query_is_rejected(asked: HistoryQuery) -> None:
    with pytest.raises(InvalidHistoryQuery):
        HistoryStore().answer(asked)

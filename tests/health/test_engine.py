"""The health engine: hysteresis, start times, and continuity when another engine takes over."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from chronik.health.engine import ADOPTED_S, HealthEngine, assess
from chronik.health.facts import HealthFacts, ObservedDisk, ObservedGroup, ObservedStalls, TimedValue
from chronik.health.problems import KINDS, Problem, ProblemSeverity
from tests.health.test_checks import HEALTHY, NOW_S, UNHEALTHY

GIB = 1 << 30
FULL = KINDS["full-disk"]
BEHIND = UNHEALTHY["under-replicated"][0]


def disk(free_ratio: float, at_s: float) -> HealthFacts:
    free = (TimedValue(at_s, free_ratio * 100 * GIB),)
    return HealthFacts(now_s=at_s, disks=(ObservedDisk(1, 100 * GIB, free),))


def at(facts: HealthFacts, seconds: float) -> HealthFacts:
    """Return the facts at another time, without those whose condition depends on the time."""
    return replace(facts, now_s=NOW_S + seconds, pipelines=(), transactions=(), certificates=())


def kinds(problems: tuple[Problem, ...]) -> list[str]:
    return [each.kind for each in problems]


def test_problem_is_raised_after_its_condition_has_persisted_and_keeps_its_start() -> None:
    engine = HealthEngine()
    assert engine.evaluate(at(BEHIND, 0)) == ()
    assert engine.evaluate(at(BEHIND, 2)) == ()
    (problem,) = engine.evaluate(at(BEHIND, 3))
    assert problem.since_s == NOW_S
    (later,) = engine.evaluate(at(BEHIND, 500))
    assert later.since_s == NOW_S


def test_short_condition_is_no_problem() -> None:
    engine = HealthEngine()
    for second in range(0, 100, 2):
        assert engine.evaluate(at(BEHIND if second % 4 == 0 else HEALTHY, second)) == ()


def test_problem_is_cleared_after_its_condition_has_been_absent() -> None:
    engine = HealthEngine()
    engine.evaluate(at(BEHIND, 0))
    engine.evaluate(at(BEHIND, 10))
    clear_after_s = KINDS["under-replicated"].clear_after_s
    assert engine.evaluate(at(HEALTHY, 10 + clear_after_s - 1))
    (problem,) = engine.evaluate(at(BEHIND, 10 + clear_after_s))
    assert problem.since_s == NOW_S, "an interruption that is shorter does not restart the problem"
    assert engine.evaluate(at(HEALTHY, 10 + 3 * clear_after_s)) == ()


def test_severity_rises_immediately_and_falls_below_the_lower_threshold() -> None:
    engine = HealthEngine()
    found = []
    for second, ratio in enumerate([0.15, 0.11, 0.09, 0.02, 0.035, 0.037, 0.05, 0.11, 0.13]):
        problems = engine.evaluate(disk(ratio, NOW_S + second))
        found.append(problems[0].severity.label if problems else None)
    assert found == [None, None, "warning", *["critical"] * 3, *["warning"] * 3]
    assert engine.evaluate(disk(0.13, NOW_S + 8 + FULL.clear_after_s)) == ()


def test_superseded_problem_is_hidden() -> None:
    engine = HealthEngine()
    growing, steady = UNHEALTHY["lagging-group"][0], UNHEALTHY["steady-lag"][0]
    assert kinds(engine.evaluate(at(steady, 0))) == ["steady-lag"]
    engine.evaluate(at(growing, 1))
    assert kinds(engine.evaluate(at(growing, 40))) == ["lagging-group"]
    assert kinds(engine.evaluate(at(steady, 80))) == ["steady-lag"]


def test_other_engine_continues_the_problems_with_their_start() -> None:
    first, second = HealthEngine(), HealthEngine()
    for seconds in (0, 10):
        first.evaluate(at(BEHIND, seconds))
    second.adopt(first.problems, NOW_S + 60)
    (problem,) = second.evaluate(at(BEHIND, 60))
    assert problem.since_s == NOW_S, "without waiting, and with the original start"
    second.adopt(first.problems, NOW_S + 60)
    assert kinds(second.evaluate(at(HEALTHY, 61))) == ["under-replicated"]
    assert second.evaluate(at(HEALTHY, 200)) == ()


def test_adopted_problem_is_kept_until_the_facts_are_complete() -> None:
    engine = HealthEngine()
    engine.adopt(assess(BEHIND), NOW_S)
    assert kinds(engine.evaluate(at(HEALTHY, ADOPTED_S - 1))) == ["under-replicated"]
    assert engine.evaluate(at(HEALTHY, ADOPTED_S)) == ()


def test_adopted_lag_continues_until_its_trend_is_known() -> None:
    engine = HealthEngine()
    (growing,) = assess(at(UNHEALTHY["lagging-group"][0], 0))
    engine.adopt([growing], NOW_S)
    unknown = (ObservedGroup("billing", (TimedValue(NOW_S, 72_000),), True),)
    for second in (0, 30, 59):
        (problem,) = engine.evaluate(HealthFacts(now_s=NOW_S + second, groups=unknown))
        assert (problem.kind, problem.since_s) == ("lagging-group", growing.since_s)


def test_clock_that_is_set_back_leaves_no_problem_behind() -> None:
    engine = HealthEngine()
    engine.evaluate(at(BEHIND, 0))
    (problem,) = engine.evaluate(at(BEHIND, 10))
    (problem,) = engine.evaluate(at(BEHIND, -5000))
    assert problem.since_s == NOW_S - 5000
    assert engine.evaluate(at(HEALTHY, -9000)) == ()


ratios = st.floats(0.0, 1.0)
steps = st.lists(st.tuples(ratios, st.floats(0.1, 120.0)), min_size=1, max_size=60)


@given(steps)
@settings(max_examples=150, deadline=None)
def test_problems_do_not_flicker(steps: list[tuple[float, float]]) -> None:
    """Between a problem's end and its next start, or its start and its end, its thresholds are really crossed."""
    engine = HealthEngine()
    now_s, was_raised, cleared_since_s = NOW_S, False, NOW_S
    for ratio, seconds in steps:
        now_s += seconds
        problems = engine.evaluate(disk(ratio, now_s))
        if not was_raised:
            assert bool(problems) == (ratio < 0.10)
        elif problems:
            assert problems[0].since_s <= now_s
        else:
            assert ratio >= 0.10 / 0.8
            assert now_s - cleared_since_s >= FULL.clear_after_s
        if ratio < 0.10 / 0.8:
            cleared_since_s = now_s
        was_raised = bool(problems)


@given(st.lists(st.integers(8, 12), min_size=1, max_size=80), st.integers(1, 50))
@settings(max_examples=100, deadline=None)
def test_value_near_its_threshold_changes_a_problem_at_most_once(values: list[int], step_s: int) -> None:
    """Between the lower threshold (8) and far above the upper one (10), a problem starts and never ends."""
    engine = HealthEngine()
    states = [
        bool(engine.evaluate(HealthFacts(now_s=NOW_S + number * step_s, stalls=(ObservedStalls(1, value),))))
        for number, value in enumerate(values)
    ]
    assert sum(before != after for before, after in pairwise(states)) <= 1
    assert states[-1] == any(value >= 10 for value in values)


@given(st.lists(st.sampled_from(sorted(UNHEALTHY)), min_size=1, max_size=30), st.floats(0.5, 200.0))
@settings(max_examples=80, deadline=None)
def test_evaluation_is_repeatable_and_survives_a_new_engine(sequence: list[str], step_s: float) -> None:
    """The same facts again change nothing, and an engine that adopts the problems reports the same ones."""
    engine = HealthEngine()
    for number, kind in enumerate(sequence):
        facts = at(UNHEALTHY[kind][0], number * step_s)
        problems = engine.evaluate(facts)
        assert engine.evaluate(facts) == problems
        assert list(problems) == sorted(problems, key=lambda each: -each.severity)
    successor = HealthEngine()
    successor.adopt(problems, facts.now_s)
    current = {each.id: each for each in successor.evaluate(facts)}
    for kept in (each for each in problems if each.id in current):
        assert current[kept.id].since_s == kept.since_s


@given(st.lists(st.lists(st.text(max_size=3), max_size=120, unique=True), max_size=12))
@settings(max_examples=30, deadline=None)
def test_memory_is_bounded_by_the_current_conditions(names: list[list[str]]) -> None:
    engine = HealthEngine()
    for number, current in enumerate(names):
        now_s = NOW_S + number * 100
        groups = tuple(ObservedGroup(name, (TimedValue(now_s, 1e6),), True) for name in current)
        problems = engine.evaluate(HealthFacts(now_s=now_s, groups=groups))
        assert len(problems) <= 51
        assert {each.severity for each in problems} <= {ProblemSeverity.INFO}

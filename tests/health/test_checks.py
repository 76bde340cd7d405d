"""Every health check, with facts that trigger it and facts that do not."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from chronik.health.checks import CHECKS, STALLS_MAX, SUBJECTS_MAX, find_conditions
from chronik.health.engine import assess
from chronik.health.facts import (
    HealthFacts,
    ObservedCertificate,
    ObservedClock,
    ObservedDisk,
    ObservedGroup,
    ObservedIsrShrinks,
    ObservedNode,
    ObservedPartitions,
    ObservedPipeline,
    ObservedQuorum,
    ObservedStalls,
    ObservedTransaction,
    PartitionTally,
    Series,
    TimedValue,
)
from chronik.health.history import SAMPLES_MAX, SampleHistory, measure_growth, predict_seconds_to_zero
from chronik.health.problems import DOCS_PAGE, KINDS, ProblemSeverity

NOW_S = 1_800_000_000.0
GIB = 1 << 30
DAY_S = 86_400.0


def series(*values: float, step_s: float = 30.0) -> Series:
    start_s = NOW_S - step_s * (len(values) - 1)
    return tuple(TimedValue(start_s + step_s * number, value) for number, value in enumerate(values))


def node(node_id: int, **changes: Any) -> ObservedNode:
    return ObservedNode(node_id, **changes)


HEALTHY = HealthFacts(
    now_s=NOW_S,
    quorum=ObservedQuorum(is_same_state=True, compared_index=100),
    nodes=(node(1), node(2), node(3)),
    partitions=ObservedPartitions(314),
    isr_shrinks=(ObservedIsrShrinks("orders-0", 1),),
    groups=(ObservedGroup("billing", series(9, 8, 7, 8), True), ObservedGroup("old", series(500), False)),
    transactions=(ObservedTransaction("pay", NOW_S - 60, 60.0, ("orders-0",)),),
    disks=(ObservedDisk(1, 100 * GIB, series(50 * GIB, 50 * GIB)),),
    clocks=(ObservedClock(1, 0.0), ObservedClock(2, 0.01), ObservedClock(3, -0.01)),
    stalls=(ObservedStalls(1, 1),),
    certificates=(ObservedCertificate("broker.pem", "CN=broker", NOW_S + 90 * DAY_S),),
    pipelines=(ObservedPipeline("lake", "orders", series(5, 6), reported_at_s=NOW_S - 5),),
)


def facts(**changes: Any) -> HealthFacts:
    return replace(HEALTHY, **changes)


def with_node(**changes: Any) -> HealthFacts:
    return facts(nodes=(node(1), node(2, **changes), node(3)))


def partitions(leader: int, isr: tuple[int, ...], count: int = 314) -> ObservedPartitions:
    tally = PartitionTally()
    tally.total = 314
    for index in range(count):
        tally.add("orders", index, leader, (1, 2, 3), isr, 2)
    return tally.result()


def group(*lag: float, members: bool | None = True) -> HealthFacts:
    return facts(groups=(ObservedGroup("billing", series(*lag), members),))


def pipeline(**changes: Any) -> HealthFacts:
    return facts(pipelines=(replace(HEALTHY.pipelines[0], **changes),))


INFO, WARNING, CRITICAL = ProblemSeverity.INFO, ProblemSeverity.WARNING, ProblemSeverity.CRITICAL

UNHEALTHY = {
    "no-leader": (facts(quorum=ObservedQuorum(has_controller=False)), CRITICAL, "has no controller"),
    "no-voter-to-spare": (with_node(status="offline"), WARNING, "2 of 3 voters are up, the minimum"),
    "diverged-states": (facts(quorum=ObservedQuorum(is_same_state=False, compared_index=7)), CRITICAL, "index 7"),
    "unreachable-node": (
        with_node(unreachable_why="h:9092: refused"),
        CRITICAL,
        "node 2 is unreachable at h:9092",
    ),
    "unresponsive-node": (with_node(unreachable_why="timeout", is_unresponsive=True), CRITICAL, "node 2 is unresp"),
    "fenced-node": (with_node(status="fenced"), CRITICAL, "node 2 is running but fenced"),
    "absent-node": (with_node(status="absent"), INFO, "node 2 was added but has not joined yet"),
    "drained-node": (with_node(is_drained=True), INFO, "node 2 is drained"),
    "damaged-logs": (with_node(damaged=("orders-1: [3, 9) lost",)), CRITICAL, "orders-1"),
    "offline-partitions": (
        facts(partitions=partitions(-1, (2,))),
        CRITICAL,
        "314 of 314 partitions without a leader: orders-0, orders-1, orders-2, orders-3, orders-4 and 309 more",
    ),
    "below-min-insync": (facts(partitions=partitions(1, (1,), 2)), CRITICAL, "2 of 314 partitions with fewer in-sync"),
    "under-replicated": (
        facts(partitions=partitions(1, (1, 2))),
        WARNING,
        "314 of 314 partitions under-replicated: orders-0",
    ),
    "isr-flapping": (facts(isr_shrinks=(ObservedIsrShrinks("orders-4", 5),)), WARNING, "orders-4 have left the ISR 5"),
    "lagging-group": (group(40_000, 50_000, 60_000, 72_000), WARNING, "72,000 records, which has grown by 20,000"),
    "steady-lag": (group(72_000, 72_000, 72_000, 72_000), INFO, "72,000 records, which does not shrink"),
    "stopped-group": (group(72_000, 72_000, 72_000, members=False), INFO, "has no members and a lag of 72,000"),
    "long-transaction": (
        facts(transactions=(ObservedTransaction("pay", NOW_S - 1800, 60.0, ("orders-3",)),)),
        WARNING,
        "pay is open for 30 minutes in orders-3",
    ),
    "full-disk": (facts(disks=(ObservedDisk(1, 100 * GIB, series(2 * GIB)),)), CRITICAL, "2.0 GiB of free disk space"),
    "filling-disk": (
        facts(disks=(ObservedDisk(1, 100 * GIB, series(60 * GIB, 58 * GIB, 56 * GIB, step_s=600)),)),
        WARNING,
        "full in about 5 hours",
    ),
    "different-clocks": (
        facts(clocks=(ObservedClock(1, 0.0), ObservedClock(2, 2.0))),
        WARNING,
        "node 2 is 2.0 s ahead",
    ),
    "event-loop-stalls": (facts(stalls=(ObservedStalls(3, STALLS_MAX),)), WARNING, "node 3 has stalled 10 times"),
    "expired-certificate": (
        facts(certificates=(ObservedCertificate("b.pem", "CN=b", NOW_S - 3 * DAY_S),)),
        CRITICAL,
        "CN=b in b.pem expired 3 days ago",
    ),
    "expiring-certificate": (
        facts(certificates=(ObservedCertificate("b.pem", "CN=b", NOW_S + 3.5 * DAY_S),)),
        WARNING,
        "CN=b in b.pem expires in 3 days",
    ),
    "failing-pipeline": (pipeline(is_failing=True, last_error="disk full"), WARNING, "write topic orders: disk full"),
    "silent-pipeline": (pipeline(reported_at_s=NOW_S - 60), WARNING, "has not reported topic orders for 60 seconds"),
    "lagging-pipeline": (
        pipeline(lag=series(20_000, 30_000, 40_000, 50_000)),
        WARNING,
        "50,000 records behind topic orders, 20,000 more than 90 seconds ago",
    ),
}


def test_healthy_facts_have_no_problem() -> None:
    assert assess(HEALTHY) == ()
    assert find_conditions(HealthFacts(now_s=NOW_S)) == []


@pytest.mark.parametrize("kind", UNHEALTHY)
def test_unhealthy_facts_have_a_problem_with_an_action(kind: str) -> None:
    observed, severity, text = UNHEALTHY[kind]
    (problem,) = [each for each in assess(observed) if each.kind == kind]
    assert problem.severity is severity
    assert text in problem.message
    assert problem.action
    assert problem.effect
    assert problem.console.startswith("/")
    assert "{}" not in problem.console
    assert problem.docs == f"docs/operate/health.md#{kind}"
    assert not problem.message.endswith(".")


def test_small_free_space_is_not_rounded_to_zero() -> None:
    (problem,) = assess(facts(disks=(ObservedDisk(1, GIB, series(3 << 20)),)))
    assert "node 1 has 3.0 MiB of free disk space" in problem.message


def test_every_kind_and_every_check_is_triggered() -> None:
    assert UNHEALTHY.keys() == KINDS.keys()
    fired = {check.__name__ for check in CHECKS for observed, *_ in UNHEALTHY.values() if [*check(observed)]}
    assert fired == {check.__name__ for check in CHECKS}


@pytest.mark.parametrize(
    ("observed", "kinds"),
    [
        pytest.param(group(90_000, 80_000, 75_000, 72_000), {"steady-lag"}, id="lag shrinks"),
        pytest.param(group(72_000), {"steady-lag"}, id="trend unknown"),
        pytest.param(group(40_000, 50_000, 60_000, 72_000, members=False), {"lagging-group"}, id="stopped and growing"),
        pytest.param(group(0, 12_000, 0, 12_000, 0, 12_000), {"steady-lag"}, id="commits once per minute"),
        pytest.param(group(100, 200, 300, 400), set(), id="grows within the budget"),
        pytest.param(group(72_000, 72_001, 72_001, 72_002), {"steady-lag"}, id="grows too slowly"),
        pytest.param(with_node(is_voter=False, status="offline"), {"unreachable-node"}, id="observer is down"),
        pytest.param(facts(partitions=partitions(1, (3, 2, 1))), set(), id="fully replicated"),
        pytest.param(facts(clocks=(ObservedClock(1, 0.0), ObservedClock(2, 0.9, 2.0))), set(), id="uncertain clocks"),
        pytest.param(pipeline(is_stopped=True, reported_at_s=0.0, is_failing=True), set(), id="stopped pipeline"),
        pytest.param(facts(transactions=(ObservedTransaction("p", NOW_S - 1000, 3600.0),)), set(), id="long timeout"),
    ],
)
def test_similar_facts_have_other_problems_or_none(observed: HealthFacts, kinds: set[str]) -> None:
    assert {problem.kind for problem in assess(observed)} == kinds


def test_group_may_have_its_own_lag_budget() -> None:
    grown = group(40_000, 50_000, 60_000, 72_000)
    tolerant = replace(grown, groups=(replace(grown.groups[0], lag_budget=100_000),))
    assert not assess(tolerant)
    strict = replace(group(1, 20, 40, 500), lag_budget=100_000)
    assert not assess(strict)
    (problem,) = assess(replace(strict, groups=(replace(strict.groups[0], lag_budget=50),)))
    assert problem.kind == "lagging-group"


def test_single_collection_assumes_that_lag_grows() -> None:
    once = replace(group(72_000), has_history=False)
    assert [problem.kind for problem in assess(once)] == ["lagging-group"]
    stopped = replace(group(72_000, members=False), has_history=False)
    assert [problem.kind for problem in assess(stopped)] == ["stopped-group"]


def test_partition_is_in_its_most_severe_set_only() -> None:
    tally = PartitionTally()
    for index, (leader, isr) in enumerate([(-1, ()), (1, (1,)), (1, (1, 2)), (1, (1, 2, 3))]):
        tally.add("__offsets" if index == 0 else "orders", index, leader, (1, 2, 3), isr, 2)
    found = tally.result()
    assert [each.names for each in (found.offline, found.under_min_isr, found.under_replicated)] == [
        ("__offsets-0",),
        ("orders-1",),
        ("orders-2",),
    ]
    assert found.under_min_isr.missing_nodes == (2, 3)


def test_conditions_of_a_kind_are_limited_and_summed_up() -> None:
    groups = tuple(ObservedGroup(f"g{number:03}", series(72_000 + number), True) for number in range(200))
    problems = assess(facts(groups=groups))
    assert len(problems) == SUBJECTS_MAX + 1
    (rest,) = [each for each in problems if not each.subject]
    assert rest.message.startswith("150 more problems of this kind, such as: group g149")
    assert rest.console == "/groups"


def test_history_bounds_keys_samples_and_age() -> None:
    history: SampleHistory[str] = SampleHistory(300.0, 2)
    for second in range(2000):
        history.record(second, {"a": second, "b": 1.0, "c": -1.0})
    assert len(history) == 2
    assert history.series("c") == ()
    found = history.series("a")
    assert len(found) <= SAMPLES_MAX
    assert found[-1] == (1999, 1999)
    assert 1699 <= found[0].at_s <= 1710
    history.record(2000, {"b": 1.0})
    assert history.series("a") == ()
    history.record(100, {"b": 5.0})
    assert history.series("b") == ((100, 5.0),), "a clock that was set back starts a new series"


def test_growth_and_prediction_need_a_minimum_span() -> None:
    assert measure_growth(series(1, 9), 60) is None
    assert measure_growth(series(1, 5, 9), 60) == 8
    assert predict_seconds_to_zero(series(100, 50, step_s=600), 600) == 600
    assert predict_seconds_to_zero(series(50, 100, step_s=600), 600) is None


def test_documentation_has_a_section_for_every_kind() -> None:
    page = (Path(__file__).parents[2] / DOCS_PAGE).read_text(encoding="utf-8")
    sections = re.findall(r"^### (.+)\n(\w+)[.\s]", page, re.MULTILINE)
    assert {kind: severity.upper() for kind, severity in sections} == {
        kind.id: kind.severity.name for kind in KINDS.values()
    }

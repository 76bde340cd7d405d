"""Aggregation of the nodes' reports into facts about the cluster, and the JSON view of problems."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from chronik.health.engine import assess
from chronik.health.facts import (
    HealthFacts,
    ObservedCertificate,
    ObservedNode,
    ObservedPartitions,
    ObservedQuorum,
)
from chronik.health.problems import KINDS, hide_subjects, problem_from_json, problem_to_json
from chronik.health.reports import (
    REPORT_VALID_SECONDS,
    TRACKED_GROUPS_MAX,
    HealthReport,
    NodeHealthReport,
    PipelineReport,
    ReportAggregator,
    WindowCounter,
)
from tests.health.test_checks import HEALTHY, NOW_S, UNHEALTHY


def report(node_id: int, **fields: Any) -> NodeHealthReport:
    return NodeHealthReport(node_id=node_id, time_s=NOW_S, **fields)


def build(
    aggregator: ReportAggregator,
    at_s: float = 0.0,
    nodes: tuple[ObservedNode, ...] | None = None,
    budgets: Mapping[str, int] | None = None,
) -> HealthFacts:
    return aggregator.build(
        NOW_S + at_s,
        nodes=(ObservedNode(1), ObservedNode(2)) if nodes is None else nodes,
        quorum=ObservedQuorum(),
        partitions=ObservedPartitions(7),
        transactions=(),
        find_membership=lambda name: name == "billing",
        lag_budget=100,
        find_lag_budget=lambda group: (budgets or {}).get(group, 100),
    )


def test_lag_of_a_group_is_summed_over_the_nodes() -> None:
    aggregator = ReportAggregator()
    aggregator.add(report(1, group_lags={"billing": 60, "old": 1}), NOW_S)
    aggregator.add(report(2, group_lags={"billing": 70}), NOW_S)
    groups = {each.name: each for each in build(aggregator).groups}
    assert groups["billing"].lag[-1].value == 130
    assert groups["billing"].has_members is True
    assert groups["old"].has_members is False


def test_lags_are_ranked_by_the_budgets_of_their_groups() -> None:
    aggregator = ReportAggregator()
    lags = {f"batch-{number}": 10_000 + number for number in range(TRACKED_GROUPS_MAX)}
    aggregator.add(report(1, group_lags={**lags, "payments": 50}), NOW_S)
    budgets = {**dict.fromkeys(lags, 1_000_000), "payments": 10}
    groups = {each.name: each for each in build(aggregator, nodes=(ObservedNode(1),), budgets=budgets).groups}
    assert len(groups) == TRACKED_GROUPS_MAX
    assert groups["payments"].lag_budget == 10
    assert "batch-0" not in groups


def test_lag_is_not_recorded_while_a_report_is_missing() -> None:
    aggregator = ReportAggregator()
    aggregator.add(report(1, group_lags={"billing": 60}), NOW_S)
    assert build(aggregator).groups == ()
    down = ObservedNode(2, "offline", unreachable_why="")
    (group,) = build(aggregator, 1, (ObservedNode(1), down)).groups
    assert group.lag[-1] == (NOW_S + 1, 60)


def test_old_reports_and_those_of_removed_nodes_are_dropped() -> None:
    aggregator = ReportAggregator()
    aggregator.add(report(1, stalls=3), NOW_S)
    aggregator.add(report(9, stalls=3), NOW_S)
    assert [each.node_id for each in build(aggregator).stalls] == [1]
    assert build(aggregator, REPORT_VALID_SECONDS + 1).stalls == ()


def test_reports_become_facts_of_every_kind() -> None:
    certificate = ObservedCertificate("node 2: b.pem", "CN=b", NOW_S)
    full = report(
        2,
        clock_ahead_s=1.5,
        is_fenced=True,
        disk_bytes=100,
        disk_free_bytes=40,
        stalls=11,
        isr_shrinks={"orders-0": 4},
        damaged=("orders-1: lost",),
        certificates=(certificate,),
        pipelines=(PipelineReport("lake", "orders", 500, is_failing=True),),
        state_hashes={7: "aa", 8: "bb"},
    )
    aggregator = ReportAggregator()
    aggregator.add(report(1, clock_ahead_s=0.0, isr_shrinks={"orders-0": 2}, state_hashes={7: "aa"}), NOW_S)
    aggregator.add(msgspec.msgpack.decode(msgspec.msgpack.encode(full), type=NodeHealthReport), NOW_S)
    facts = build(aggregator)
    assert facts.nodes[1] == ObservedNode(2, "fenced", damaged=("orders-1: lost",))
    assert facts.disks[0].free_bytes == ((NOW_S, 40),)
    assert [each.ahead_s for each in facts.clocks] == [0.0, 1.5]
    assert facts.stalls[0].stalls == 11
    assert facts.isr_shrinks[0].shrinks == 6
    assert facts.certificates == (certificate,)
    assert (facts.pipelines[0].lag[-1].value, facts.pipelines[0].is_failing) == (500, True)
    assert (facts.quorum.compared_index, facts.quorum.is_same_state) == (7, True)
    aggregator.add(report(1, state_hashes={8: "cc"}), NOW_S)
    assert build(aggregator).quorum.is_same_state is False


def test_successor_keeps_reports_but_no_history() -> None:
    aggregator = ReportAggregator()
    for node_id in (1, 2):
        aggregator.add(report(node_id, group_lags={"billing": 10}), NOW_S)
    build(aggregator)
    assert len(build(aggregator.successor(), 1).groups[0].lag) == 1


def test_window_counter_forgets_old_counts() -> None:
    counter = WindowCounter(100.0)
    counter.record(0.0, {"a": 2, "b": 1})
    counter.record(60.0, {"a": 1})
    assert counter.totals() == {"a": 3, "b": 1}
    counter.record(101.0, {})
    assert counter.totals() == {"a": 1}
    counter.record(5.0, {})
    assert counter.totals() == {}, "the clock was set back"


@pytest.mark.parametrize("kind", UNHEALTHY)
def test_problem_survives_its_json_form(kind: str) -> None:
    for problem in assess(UNHEALTHY[kind][0]):
        values = problem_to_json(problem)
        assert problem_from_json(values) == problem
        assert values["severity"] in ("critical", "warning", "info")


def test_status_is_the_worst_severity() -> None:
    assert HealthReport(node_id=1, checked_at_s=NOW_S).to_json()["status"] == "ok"
    problems = assess(UNHEALTHY["steady-lag"][0]) + assess(UNHEALTHY["isr-flapping"][0])
    assert HealthReport(node_id=1, checked_at_s=NOW_S, problems=problems).to_json()["status"] == "warning"


def test_hidden_problems_keep_kind_and_severity_without_names() -> None:
    problems = assess(UNHEALTHY["lagging-group"][0])
    (hidden,) = hide_subjects(problems, lambda each: False)
    assert "billing" not in str(problem_to_json(hidden))
    assert (hidden.kind, hidden.severity, hidden.since_s) == (
        "lagging-group",
        problems[0].severity,
        problems[0].since_s,
    )
    assert hide_subjects(problems, lambda each: True) == problems
    assert assess(HEALTHY) == hide_subjects((), lambda each: False)


def test_declared_severity_is_one_that_the_kind_has() -> None:
    for kind, (facts, _, _) in UNHEALTHY.items():
        assert KINDS[kind].severity <= max(each.severity for each in assess(facts) if each.kind == kind)

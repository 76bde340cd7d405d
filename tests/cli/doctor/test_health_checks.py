"""Problems that the cluster reports, together with those in the facts that the CLI has collected."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from chronik.cli.doctor.checks import run_cluster_checks
from chronik.cli.doctor.findings import Severity
from chronik.cli.doctor.health_checks import find_problems
from chronik.cli.monitoring.facts import ClusterFacts, GroupFacts
from chronik.cli.top.view import build_view
from chronik.health.engine import assess
from chronik.health.reports import HealthReport
from tests.cli.monitoring.healthy_facts import cluster, with_node
from tests.health.test_checks import NOW_S, UNHEALTHY


def reporting(*kinds: str, **facts: Any) -> ClusterFacts:
    """Return facts of a cluster that reports problems of these kinds."""
    problems = tuple(each for kind in kinds for each in assess(UNHEALTHY[kind][0]) if each.kind == kind)
    return cluster(health=HealthReport(node_id=1, checked_at_s=NOW_S, problems=problems).to_json(), **facts)


def ids_of(facts: ClusterFacts) -> list[str]:
    return [problem.id for problem in find_problems(facts)]


def test_every_reported_problem_is_a_finding() -> None:
    for kind in UNHEALTHY:
        (problem,) = find_problems(reporting(kind))
        assert problem.kind == kind
        (finding,) = run_cluster_checks(reporting(kind))
        assert (finding.what, finding.why, finding.do) == (problem.message, problem.effect, problem.action)


def test_top_shows_reported_problems_of_every_severity() -> None:
    (finding,) = build_view(reporting("steady-lag"), None).attention
    assert (finding.check, finding.severity) == ("lagging-group", Severity.NOTE)
    assert "72,000" in finding.what


def test_lag_of_a_single_collection_is_left_to_the_cluster() -> None:
    large = (GroupFacts("billing", "Stable", 72_000),)
    assert ids_of(cluster(groups=large)) == ["lagging-group:billing"]
    assert ids_of(reporting(groups=large)) == []
    assert ids_of(reporting("steady-lag", groups=large)) == ["steady-lag:billing"]


def test_node_is_reported_once_in_its_worst_state() -> None:
    silent = {"silence": "127.0.0.1:9093 accepts connections, but …", "status": "down"}
    paused = with_node(reporting("fenced-node"), 2, is_unresponsive=True, **silent)
    assert ids_of(paused) == ["unresponsive-node:2", "no-voter-to-spare"]
    assert ids_of(with_node(reporting("fenced-node"), 2, **silent)) == ["unreachable-node:2", "no-voter-to-spare"]


def test_malformed_health_is_ignored() -> None:
    malformed: tuple[dict[str, Any], ...] = ({}, {"problems": [{}]}, {"problems": None})
    for health in malformed:
        assert ids_of(replace(cluster(), health=health)) == []

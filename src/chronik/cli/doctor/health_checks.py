"""The problems of a cluster as findings: those that the cluster reports, and those in the facts that the CLI collected.

Both come from the checks of `chronik.health`. The cluster knows more, such as trends; the CLI sees nodes that the
cluster considers alive but that clients cannot reach, and clusters of earlier versions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from chronik.cli.doctor.findings import DoctorFinding, Severity
from chronik.cli.monitoring.facts import ClusterFacts, NodeFacts
from chronik.health.engine import assess
from chronik.health.facts import (
    HealthFacts,
    ObservedClock,
    ObservedDisk,
    ObservedGroup,
    ObservedNode,
    ObservedPartitions,
    ObservedQuorum,
    ObservedTransaction,
    PartitionTally,
    TimedValue,
)
from chronik.health.problems import Problem, ProblemSeverity, problem_from_json, sort_problems

SEVERITIES: Final = {
    ProblemSeverity.INFO: Severity.NOTE,
    ProblemSeverity.WARNING: Severity.WARNING,
    ProblemSeverity.CRITICAL: Severity.ERROR,
}
CHECK_NAMES: Final = {"steady-lag": "lagging-group", "stopped-group": "lagging-group"}
"""Names of checks that differ from the kind of the problem, because scripts depend on them."""

TREND_KINDS: Final = ("lagging-group", "steady-lag", "stopped-group")
"""Kinds of problems for which the cluster's own view replaces that of the CLI, which does not know trends."""
NODE_KINDS: Final = ("unresponsive-node", "unreachable-node", "fenced-node")
"""Kinds of problems of which a node has at most one: the first that is known."""


def check_health(facts: ClusterFacts) -> Iterator[DoctorFinding]:
    """Report the problems of the cluster."""
    for problem in find_problems(facts):
        yield DoctorFinding(
            CHECK_NAMES.get(problem.kind, problem.kind),
            SEVERITIES[problem.severity],
            problem.message,
            problem.effect,
            problem.action,
        )


def find_problems(facts: ClusterFacts) -> tuple[Problem, ...]:
    """Return the problems that the cluster reports, and those in the collected facts that it does not report."""
    reported = None if facts.health is None else read_problems(facts.health)
    own = assess(build_health_facts(facts))
    if reported is None:
        return own
    return merge_problems(reported, [each for each in own if each.kind not in TREND_KINDS])


def merge_problems(reported: Iterable[Problem], own: Iterable[Problem]) -> tuple[Problem, ...]:
    """Return the reported problems, and the own ones with other ids. A node is reported once, in its worst state."""
    found = {each.id: each for each in own} | {each.id: each for each in reported}
    for kind in NODE_KINDS:
        for problem in [each for each in found.values() if each.kind == kind]:
            for other in NODE_KINDS[NODE_KINDS.index(kind) + 1 :]:
                found.pop(f"{other}:{problem.subject}", None)
    return sort_problems(found.values())


def read_problems(health: Mapping[str, Any]) -> list[Problem] | None:
    """Return the problems of a JSON object, or None if it is malformed."""
    try:
        return [problem_from_json(each) for each in health["problems"]]
    except (KeyError, TypeError, ValueError):
        return None


def build_health_facts(facts: ClusterFacts) -> HealthFacts:
    """Return the facts that the CLI has collected in the form that the health checks examine."""
    now_s = facts.time_ms / 1000
    return HealthFacts(
        now_s=now_s,
        has_history=False,
        quorum=ObservedQuorum(
            has_controller=facts.controller is not None
            or any(node.role in ("leader", "standalone") for node in facts.nodes),
            is_same_state=facts.same_state,
            compared_index=facts.compared_index,
        ),
        nodes=tuple(map(_observe_node, facts.nodes)),
        partitions=_tally_partitions(facts),
        groups=tuple(
            ObservedGroup(group.name, (TimedValue(now_s, group.lag),), group.state not in ("Empty", "Dead", ""))
            for group in facts.groups
            if group.lag is not None
        ),
        transactions=tuple(
            ObservedTransaction(each.name, now_s - each.open_for_s, each.timeout_s, each.partitions)
            for each in facts.transactions
            if not each.is_hanging
        ),
        disks=tuple(
            ObservedDisk(node.id, node.disk_bytes, (TimedValue(now_s, node.disk_free_bytes),))
            for node in facts.nodes
            if node.disk_bytes and node.disk_free_bytes is not None
        ),
        clocks=tuple(
            ObservedClock(node.id, node.clock_ahead_ms / 1000, node.clock_doubt_ms / 1000)
            for node in facts.nodes
            if node.clock_ahead_ms is not None
        ),
    )


def _observe_node(node: NodeFacts) -> ObservedNode:
    is_silent = node.silence is not None
    return ObservedNode(
        node.id,
        "fenced" if node.status == "fenced" and not is_silent else "online",
        bool(node.is_voter),
        unreachable_why=node.silence if node.is_unresponsive or not is_silent else f"{node.kafka}: {node.silence}",
        is_unresponsive=node.is_unresponsive,
        damaged=node.damaged,
    )


def _tally_partitions(facts: ClusterFacts) -> ObservedPartitions:
    """Count the partitions that are not fully replicated, without those that are being reassigned."""
    moving, tally = set(facts.moving), PartitionTally()
    tally.total = len(facts.partitions)
    for each in facts.partitions:
        if each.leader < 0 or (len(each.isr) < len(each.replicas) and str(each) not in moving):
            tally.add(each.topic, each.index, each.leader, each.replicas, each.isr, each.min_in_sync)
    return tally.result()

"""Formatting of plans as text and as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from chronik.planning.cluster_plans import ClusterPlan
from chronik.planning.views import ReplicaMove, join_words
from chronik.wording import pluralize


def describe_plan(plan: ClusterPlan) -> list[str]:
    """Return one sentence for each step of the plan."""
    return list(_format_steps(plan))


def _format_steps(plan: ClusterPlan) -> Iterator[str]:
    if plan.adds is not None:
        yield f"add node {plan.adds}: it joins as an observer of the metadata log and can host replicas"
    if plan.drains is not None:
        yield f"drain node {plan.drains}: it gives up leadership where possible and gets no new replicas"
    if plan.undrains is not None:
        yield f"undrain node {plan.undrains}: it can lead partitions and get new replicas again"
    for node in plan.promotes:
        yield f"promote node {node} to a voter"
    if plan.moves:
        yield from _format_moves(plan.moves)
    for node in plan.demotes:
        yield f"demote node {node} to an observer"
    if plan.removes is not None:
        yield f"remove node {plan.removes} from the cluster"


def _format_moves(moves: tuple[ReplicaMove, ...]) -> Iterator[str]:
    copied = [move for move in moves if move.added_replicas]
    if copied:
        targets = sorted(Counter(node for move in copied for node in move.added_replicas).items())
        to = join_words(f"{count} to node {node}" for node, count in targets)
        yield f"copy replicas of {pluralize(len(copied), 'partition')}: {to}{_format_system_topics(copied)}"
    reordered = len(moves) - len(copied)
    if reordered:
        yield f"change the preferred leader of {pluralize(reordered, 'partition')} (copies nothing)"


def _format_system_topics(moves: list[ReplicaMove]) -> str:
    count = sum(move.partition.is_system_partition for move in moves)
    return f" ({count} of them of system topics, which have no records)" if count else ""


def plan_to_json(plan: ClusterPlan) -> dict[str, Any]:
    """Return the plan as a JSON object."""
    return {
        "adds": plan.adds,
        "drains": plan.drains,
        "undrains": plan.undrains,
        "promotes": plan.promotes,
        "moves": [
            {
                "topic": move.partition.topic,
                "partition": move.partition.index,
                "replicas": move.partition.replicas,
                "new_replicas": move.replicas,
            }
            for move in plan.moves
        ],
        "demotes": plan.demotes,
        "removes": plan.removes,
    }

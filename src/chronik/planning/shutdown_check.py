"""Safety check before nodes are stopped: quorum, leaders and min.insync.replicas."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from chronik.planning.views import PlannedNode, PlannedPartition, format_partitions, join_words
from chronik.planning.voter_selection import is_majority
from chronik.wording import pluralize


@dataclass(frozen=True, slots=True)
class ShutdownObstacle:
    """A reason why the given nodes cannot be stopped at the same time without losing availability."""

    kind: str
    """The kind of obstacle: "unknown", "quorum", "leaderless" or "too few in sync"."""
    sentence: str
    partitions: tuple[PlannedPartition, ...] = ()


def find_shutdown_obstacles(
    nodes: Sequence[PlannedNode], partitions: Iterable[PlannedPartition], stopping: Collection[int]
) -> tuple[ShutdownObstacle, ...]:
    """Return the reasons why the nodes cannot be stopped safely at the same time."""
    known = {node.id for node in nodes}
    unknown = sorted(set(stopping) - known)
    if unknown:
        return (ShutdownObstacle("unknown", f"no node {join_words(unknown)} exists in this cluster"),)
    left = {node.id for node in nodes if node.is_online and node.id not in stopping}
    leaderless, too_few = [], []
    for partition in partitions:
        in_sync = partition.replicas + partition.leaving if partition.is_system_partition else partition.in_sync
        if not set(stopping) & set(in_sync):
            continue  # not affected
        remaining = left & set(in_sync)
        if not remaining:
            leaderless.append(partition)
        elif len(remaining) < partition.min_in_sync and not partition.is_system_partition:
            too_few.append(partition)
    return (
        *_find_quorum_obstacles(nodes, left, stopping),
        *_find_leaderless_obstacles(leaderless, stopping),
        *_find_min_isr_obstacles(too_few),
    )


def _find_quorum_obstacles(
    nodes: Sequence[PlannedNode], left: Collection[int], stopping: Collection[int]
) -> Iterable[ShutdownObstacle]:
    voters = [node for node in nodes if node.is_voter]
    if not any(node.id in stopping for node in voters):
        return
    remaining = sum(node.id in left for node in voters)
    if not is_majority(remaining, len(voters)):
        yield ShutdownObstacle(
            "quorum",
            f"only {remaining} of {pluralize(len(voters), 'voter')} would be left, which is no majority:"
            " changes of topics, leaders, groups and committed offsets would fail",
        )


def _find_leaderless_obstacles(
    partitions: Sequence[PlannedPartition], stopping: Collection[int]
) -> Iterable[ShutdownObstacle]:
    if partitions:
        yield ShutdownObstacle(
            "leaderless",
            f"{pluralize(len(partitions), 'partition')} would have no leader until {_format_nodes(stopping)} back:"
            f" {format_partitions(partitions)}",
            tuple(partitions),
        )


def _find_min_isr_obstacles(partitions: Sequence[PlannedPartition]) -> Iterable[ShutdownObstacle]:
    if partitions:
        yield ShutdownObstacle(
            "too few in sync",
            f"{pluralize(len(partitions), 'partition')} would have fewer in-sync replicas than min.insync.replicas and"
            f" reject writes with acks=all: {format_partitions(partitions)}",
            tuple(partitions),
        )


def _format_nodes(ids: Collection[int]) -> str:
    return f"node {join_words(ids)} is" if len(ids) == 1 else f"nodes {join_words(sorted(ids))} are"

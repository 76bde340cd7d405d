"""Safety check before nodes are stopped: quorum, leaders and min.insync.replicas."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from chronik.planning.views import NodeView, PartitionView, enumerated, named
from chronik.planning.voting import has_majority
from chronik.wording import counted


@dataclass(frozen=True, slots=True)
class Reason:
    """A reason why nodes cannot be stopped safely."""

    kind: str
    """"unknown", "quorum", "leaderless" or "too few in sync"."""
    sentence: str
    partitions: tuple[PartitionView, ...] = ()


def why_not_stop(
    nodes: Sequence[NodeView], partitions: Iterable[PartitionView], stopping: Collection[int]
) -> tuple[Reason, ...]:
    """Return the reasons why the nodes cannot be stopped at the same time; empty if they can."""
    known = {node.id for node in nodes}
    unknown = sorted(set(stopping) - known)
    if unknown:
        return (Reason("unknown", f"no node {enumerated(unknown)} exists in this cluster"),)
    left = {node.id for node in nodes if node.is_online and node.id not in stopping}
    leaderless, too_few = [], []
    for partition in partitions:
        in_sync = partition.replicas + partition.leaving if partition.lives_in_metadata else partition.in_sync
        if not set(stopping) & set(in_sync):
            continue  # not affected
        remaining = left & set(in_sync)
        if not remaining:
            leaderless.append(partition)
        elif len(remaining) < partition.min_in_sync and not partition.lives_in_metadata:
            too_few.append(partition)
    return (*_check_quorum(nodes, left, stopping), *_check_leaders(leaderless, stopping), *_check_min_isr(too_few))


def _check_quorum(nodes: Sequence[NodeView], left: Collection[int], stopping: Collection[int]) -> Iterable[Reason]:
    voters = [node for node in nodes if node.is_voter]
    if not any(node.id in stopping for node in voters):
        return
    remaining = sum(node.id in left for node in voters)
    if not has_majority(remaining, len(voters)):
        yield Reason(
            "quorum",
            f"only {remaining} of {counted(len(voters), 'voter')} would be left, which is no majority:"
            " changes of topics, leaders, groups and committed offsets would fail",
        )


def _check_leaders(partitions: Sequence[PartitionView], stopping: Collection[int]) -> Iterable[Reason]:
    if partitions:
        yield Reason(
            "leaderless",
            f"{counted(len(partitions), 'partition')} would have no leader until {_nodes(stopping)} back:"
            f" {named(partitions)}",
            tuple(partitions),
        )


def _check_min_isr(partitions: Sequence[PartitionView]) -> Iterable[Reason]:
    if partitions:
        yield Reason(
            "too few in sync",
            f"{counted(len(partitions), 'partition')} would have fewer in-sync replicas than min.insync.replicas and"
            f" reject writes with acks=all: {named(partitions)}",
            tuple(partitions),
        )


def _nodes(ids: Collection[int]) -> str:
    return f"node {enumerated(ids)} is" if len(ids) == 1 else f"nodes {enumerated(sorted(ids))} are"

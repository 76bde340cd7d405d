"""Whether nodes can be stopped now: what would be without a leader, refuse writes, or be decided by nobody."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from chronik.planning.views import NodeView, PartitionView, enumerated, named
from chronik.planning.voting import has_majority
from chronik.wording import counted


@dataclass(frozen=True, slots=True)
class Reason:
    """Why not."""

    kind: str
    """"unknown", "quorum", "leaderless" or "too few in sync"."""
    sentence: str
    partitions: tuple[PartitionView, ...] = ()


def why_not_stop(
    nodes: Sequence[NodeView], partitions: Iterable[PartitionView], stopping: Collection[int]
) -> tuple[Reason, ...]:
    """Returns nothing when all of them can be stopped at the same time."""
    known = {node.id for node in nodes}
    unknown = sorted(set(stopping) - known)
    if unknown:
        return (Reason("unknown", f"there is no node {enumerated(unknown)} in this cluster"),)
    left = {node.id for node in nodes if node.is_online and node.id not in stopping}
    leaderless, too_few = [], []
    for partition in partitions:
        in_sync = partition.replicas + partition.leaving if partition.lives_in_metadata else partition.in_sync
        if not set(stopping) & set(in_sync):
            continue  # stopping them changes nothing for it
        remaining = left & set(in_sync)
        if not remaining:
            leaderless.append(partition)
        elif len(remaining) < partition.min_in_sync and not partition.lives_in_metadata:
            too_few.append(partition)
    return (*_quorum(nodes, left, stopping), *_leaderless(leaderless, stopping), *_too_few(too_few))


def _quorum(nodes: Sequence[NodeView], left: Collection[int], stopping: Collection[int]) -> Iterable[Reason]:
    voters = [node for node in nodes if node.is_voter]
    if not any(node.id in stopping for node in voters):
        return
    remaining = sum(node.id in left for node in voters)
    if not has_majority(remaining, len(voters)):
        yield Reason(
            "quorum",
            f"{remaining} of {counted(len(voters), 'voter')} would be left, which is no majority:"
            " topics, leaders, groups and offsets could not change any more",
        )


def _leaderless(partitions: Sequence[PartitionView], stopping: Collection[int]) -> Iterable[Reason]:
    if partitions:
        yield Reason(
            "leaderless",
            f"{counted(len(partitions), 'partition')} would have no leader until {_nodes(stopping)} back:"
            f" {named(partitions)}",
            tuple(partitions),
        )


def _too_few(partitions: Sequence[PartitionView]) -> Iterable[Reason]:
    if partitions:
        yield Reason(
            "too few in sync",
            f"{counted(len(partitions), 'partition')} would have fewer replicas in sync than min.insync.replicas, and"
            f" refuse acks=all: {named(partitions)}",
            tuple(partitions),
        )


def _nodes(ids: Collection[int]) -> str:
    return f"node {enumerated(ids)} is" if len(ids) == 1 else f"nodes {enumerated(sorted(ids))} are"

"""Random clusters for planning tests, and measures of their balance."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations

from hypothesis import strategies as st

from chronik.planning.views import NO_LEADER, PlannedNode, PlannedPartition, ReplicaMove

NODES_MAX = 7
PARTITIONS_MAX = 24

Replicas = tuple[int, ...]


def some_nodes(count: int, racks: str = "") -> list[PlannedNode]:
    """Return nodes 1 to `count`, in the racks given by letters; the first five are voters."""
    return [
        PlannedNode(number, racks[number - 1] if racks else None, is_voter=number <= 5, should_vote=number <= 5)
        for number in range(1, count + 1)
    ]


def partition(*replicas: int, topic: str = "orders", index: int = 0, min_in_sync: int = 1) -> PlannedPartition:
    return PlannedPartition(topic, index, replicas, replicas, replicas[0], min_in_sync)


@st.composite
def nodes(draw: st.DrawFn, *, racks: bool = True, all_well: bool = False, at_least: int = 1) -> list[PlannedNode]:
    """Draw random nodes."""
    count = draw(st.integers(at_least, NODES_MAX))
    names = draw(st.lists(st.sampled_from(["a", "b", "c", None]), min_size=count, max_size=count))
    found = []
    for number in range(count):
        votes = draw(st.booleans())
        node = PlannedNode(number + 1, names[number] if racks else None, is_voter=votes, should_vote=votes)
        if not all_well:
            node = replace(node, is_online=draw(st.integers(0, 5)) > 0, is_draining=draw(st.integers(0, 5)) == 0)
        found.append(node)
    return found


@st.composite
def clusters(
    draw: st.DrawFn, *, racks: bool = True, all_well: bool = False, at_least: int = 1, spare: int = 0
) -> tuple[list[PlannedNode], list[PlannedPartition]]:
    """Draw random nodes and partitions; with `spare`, at least that many nodes lack any given partition."""
    found = draw(nodes(racks=racks, all_well=all_well, at_least=at_least))
    ids = [node.id for node in found]
    partitions = []
    for number in range(draw(st.integers(0, PARTITIONS_MAX))):
        factor = draw(st.integers(1, max(1, min(3, len(ids) - spare))))
        replicas = tuple(draw(st.permutations(ids))[:factor])
        in_sync = tuple(each for each in replicas if found[each - 1].is_online) or replicas[:1]
        leader = in_sync[0] if found[in_sync[0] - 1].is_online else NO_LEADER
        topic = draw(st.sampled_from(["orders", "clicks"]))
        partitions.append(PlannedPartition(topic, number, replicas, in_sync, leader, draw(st.integers(1, 2))))
    return found, partitions


def after(partitions: Iterable[PlannedPartition], moves: Iterable[ReplicaMove]) -> list[PlannedPartition]:
    """Return the partitions after all moves."""
    done = {(move.partition.topic, move.partition.index): move.replicas for move in moves}
    return [
        replace(
            each, replicas=replicas, in_sync=replicas, leader=replicas[0] if each.leader != NO_LEADER else NO_LEADER
        )
        if (replicas := done.get((each.topic, each.index))) is not None
        else each
        for each in partitions
    ]


def replica_counts(found: Iterable[PlannedNode], partitions: Iterable[PlannedPartition]) -> dict[int, int]:
    counts = Counter(replica for each in partitions for replica in each.replicas)
    return {node.id: counts[node.id] for node in found}


def leader_counts(found: Iterable[PlannedNode], partitions: Iterable[PlannedPartition]) -> dict[int, int]:
    counts = Counter(each.replicas[0] for each in partitions)
    return {node.id: counts[node.id] for node in found}


def spread(counts: Mapping[int, int]) -> int:
    """Return the difference between the highest and the lowest count."""
    return max(counts.values()) - min(counts.values())


def crowding(found: Sequence[PlannedNode], replicas: Replicas) -> int:
    """Return the number of replicas that share a rack with another."""
    racks = {node.id: node.rack for node in found}
    return len(replicas) - len({racks[replica] for replica in replicas})


def legal_sets(found: Sequence[PlannedNode], factor: int) -> list[Replicas]:
    """Return all replica sets with the best possible rack diversity."""
    sets = list(combinations([node.id for node in found], factor))
    best = min(crowding(found, each) for each in sets)
    return [each for each in sets if crowding(found, each) == best]

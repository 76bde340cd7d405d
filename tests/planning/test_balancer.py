"""Rebalancing of random clusters: balanced, spread over racks, and idempotent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chronik.planning.placement import PlacementCandidate, place_replicas
from chronik.planning.replica_moves import plan_rebalance_moves
from chronik.planning.views import PlannedNode, PlannedPartition
from tests.planning.views import (
    after,
    clusters,
    crowding,
    leader_counts,
    legal_sets,
    partition,
    replica_counts,
    some_nodes,
    spread,
)
from tests.run_size import sized

Cluster = tuple[list[PlannedNode], list[PlannedPartition]]

EXAMPLES = sized(30, 3000)


def placed(nodes: list[PlannedNode], partitions: int, factor: int) -> list[PlannedPartition]:
    places = [PlacementCandidate(node.id, node.rack) for node in nodes]
    return [
        partition(*replicas, index=number)
        for number, replicas in enumerate(place_replicas(partitions, factor, places, 0))
    ]


@settings(max_examples=EXAMPLES, deadline=None)
@given(clusters(racks=False, all_well=True))
def test_rebalance_without_racks_balances_with_fewest_moves(cluster: Cluster) -> None:
    nodes, partitions = cluster
    moves = plan_rebalance_moves(nodes, partitions)
    rebalanced = after(partitions, moves)
    assert spread(replica_counts(nodes, rebalanced)) <= 1
    assert sum(len(move.added_replicas) for move in moves) == fewest_moves(replica_counts(nodes, partitions))


def fewest_moves(counts: dict[int, int]) -> int:
    share, larger = divmod(sum(counts.values()), len(counts))
    wanted = [share + 1] * larger + [share] * (len(counts) - larger)
    return sum(max(0, has - want) for has, want in zip(sorted(counts.values(), reverse=True), wanted, strict=True))


@settings(max_examples=EXAMPLES, deadline=None)
@given(clusters())
def test_rebalance_of_balanced_cluster_plans_nothing(cluster: Cluster) -> None:
    nodes, partitions = cluster
    moves = plan_rebalance_moves(nodes, partitions)
    assert plan_rebalance_moves(nodes, after(partitions, moves)) == ()


@settings(max_examples=EXAMPLES, deadline=None)
@given(clusters(all_well=True))
def test_rebalance_spreads_replicas_over_distinct_racks(cluster: Cluster) -> None:
    nodes, partitions = cluster
    racks = len({node.rack for node in nodes})
    for each in after(partitions, plan_rebalance_moves(nodes, partitions)):
        assert crowding(nodes, each.replicas) == max(0, len(each.replicas) - racks)


@settings(max_examples=EXAMPLES, deadline=None)
@given(clusters())
def test_rebalance_leaves_replicas_on_drained_or_offline_nodes(cluster: Cluster) -> None:
    nodes, partitions = cluster
    recipients = {node.id for node in nodes if node.can_receive_replicas}
    for move in plan_rebalance_moves(nodes, partitions):
        assert len(set(move.replicas)) == len(move.replicas) == len(move.partition.replicas)
        assert set(move.added_replicas) <= recipients
        assert set(move.partition.replicas) - set(move.replicas) <= recipients
        assert move.partition.leader >= 0


@settings(max_examples=sized(30, 1000), deadline=None)
@given(clusters(all_well=True), st.integers(1, 4))
def test_rebalance_with_racks_is_optimal(cluster: Cluster, few: int) -> None:
    """Compared with every possible layout of a few partitions."""
    nodes, partitions = cluster
    partitions = partitions[:few]
    if not partitions:
        return
    rebalanced = after(partitions, plan_rebalance_moves(nodes, partitions))
    choices = [legal_sets(nodes, len(each.replicas)) for each in partitions]
    layouts = (Counter(replica for replicas in layout for replica in replicas) for layout in product(*choices))
    assert imbalance(replica_counts(nodes, rebalanced)) == min(map(imbalance, layouts))
    leaders = product(*(each.replicas for each in rebalanced))
    assert imbalance(leader_counts(nodes, rebalanced)) == min(imbalance(Counter(layout)) for layout in leaders)


def imbalance(counts: Mapping[int, int]) -> int:
    return sum(each * each for each in counts.values())


@pytest.mark.parametrize(("before", "added"), [(3, 1), (3, 4), (5, 2)])
def test_rebalance_moves_replicas_to_new_nodes_only(before: int, added: int) -> None:
    nodes = some_nodes(before + added)
    partitions = placed(nodes[:before], 60, 3)
    moves = plan_rebalance_moves(nodes, partitions)
    counts = replica_counts(nodes, after(partitions, moves))
    assert spread(counts) <= 1
    assert spread(leader_counts(nodes, after(partitions, moves))) <= 1
    # No replica moves between old nodes: only the replicas of the new nodes are copied.
    assert sum(len(move.added_replicas) for move in moves) == sum(counts[node.id] for node in nodes[before:])


def test_rebalance_spreads_each_topic_over_all_nodes() -> None:
    nodes = some_nodes(4)
    sizes = {"large": 50, "larger": 60, "small": 6}
    partitions = [replace(each, topic=topic) for topic in sizes for each in placed(nodes[:3], sizes[topic], 3)]
    rebalanced = after(partitions, plan_rebalance_moves(nodes, partitions))
    for topic in sizes:
        of_topic = [each for each in rebalanced if each.topic == topic]
        assert spread(replica_counts(nodes, of_topic)) <= 2
        assert spread(leader_counts(nodes, of_topic)) <= 4


def test_rebalance_finds_chain_of_moves_when_racks_forbid_direct_move() -> None:
    """Racks prevent the direct move from node 4 to node 3, so one replica moves from 4 to 1 and another from 1 to 3."""
    nodes = some_nodes(4, "baab")
    partitions = [
        partition(*replicas, index=index) for index, replicas in enumerate([(2,), (3, 4), (4, 2), (4, 2), (1,)])
    ]
    moves = plan_rebalance_moves(nodes, partitions)
    assert set(replica_counts(nodes, after(partitions, moves)).values()) == {2}
    assert sum(len(move.added_replicas) for move in moves) == 2


def test_rebalance_of_ten_thousand_partitions_takes_seconds() -> None:
    nodes = some_nodes(12, "abcabcabcabc")
    partitions = placed(nodes[:9], 10_000, 3)
    rebalanced = after(partitions, plan_rebalance_moves(nodes, partitions))
    assert spread(replica_counts(nodes, rebalanced)) <= 1

"""Replica moves when a node is removed or replaced, and when random clusters are rebalanced."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chronik.planning.placement import PlacementCandidate, place_replicas
from chronik.planning.replica_moves import plan_evacuation, plan_placement, plan_rebalance_moves, plan_takeover
from chronik.planning.views import NO_LEADER, PlannedNode, PlannedPartition, PlanRejectedError, ReplicaMove
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

EXAMPLES = sized(30, 2000)
REBALANCING_EXAMPLES = sized(30, 3000)


def replica_recipients(nodes: list[PlannedNode]) -> set[int]:
    return {node.id for node in nodes if node.can_receive_replicas}


@settings(max_examples=EXAMPLES, deadline=None)
@given(clusters(at_least=2), st.data())
def test_removal_moves_only_replicas_of_the_leaving_node(cluster: Cluster, data: st.DataObject) -> None:
    nodes, partitions = cluster
    leaving = data.draw(st.sampled_from(nodes)).id
    affected = [each for each in partitions if leaving in each.replicas]
    online = {node.id for node in nodes if node.is_online}
    can_leave = all(
        replica_recipients(nodes) - {leaving} - set(each.replicas) and online & set(each.in_sync) for each in affected
    )
    try:
        moves = plan_evacuation(nodes, partitions, leaving)
    except PlanRejectedError:
        assert not can_leave
        return
    assert can_leave
    assert [move.partition for move in moves] == affected
    for move in moves:
        (recipient,) = move.added_replicas
        assert recipient in replica_recipients(nodes)
        expected = tuple(recipient if replica == leaving else replica for replica in move.partition.replicas)
        assert move.replicas == expected


@settings(max_examples=EXAMPLES, deadline=None)
@given(clusters(all_well=True, at_least=4, spare=1), st.data())
def test_removal_keeps_replicas_in_different_racks(cluster: Cluster, data: st.DataObject) -> None:
    nodes, partitions = cluster
    leaving = data.draw(st.sampled_from(nodes)).id
    others = [node for node in nodes if node.id != leaving]
    for move in plan_evacuation(nodes, partitions, leaving):
        stay = tuple(replica for replica in move.replicas if replica not in move.added_replicas)
        best = min(crowding(nodes, (*stay, node.id)) for node in others if node.id not in stay)
        assert crowding(nodes, move.replicas) == best


@settings(max_examples=EXAMPLES, deadline=None)
@given(clusters(racks=False, all_well=True, at_least=5, spare=3), st.data())
def test_removal_distributes_replicas_evenly_over_remaining_nodes(cluster: Cluster, data: st.DataObject) -> None:
    """No node gets a replica that a node with at least two fewer could have got."""
    nodes, partitions = cluster
    partitions = after(partitions, plan_rebalance_moves(nodes, partitions))
    leaving = data.draw(st.sampled_from(nodes)).id
    others = [node for node in nodes if node.id != leaving]
    moves = plan_evacuation(nodes, partitions, leaving)
    counts = replica_counts(others, after(partitions, moves))
    for move in moves:
        (recipient,) = move.added_replicas
        free = [node.id for node in others if node.id not in move.replicas]
        assert all(counts[recipient] <= counts[node] + 1 for node in free)


def test_balanced_cluster_stays_balanced_after_node_removal() -> None:
    nodes = some_nodes(6)
    partitions = [partition(1 + number % 6, 1 + (number + 1) % 6, index=number) for number in range(60)]
    counts = replica_counts(nodes[1:], after(partitions, plan_evacuation(nodes, partitions, 1)))
    assert spread(counts) <= 1


@settings(max_examples=EXAMPLES, deadline=None)
@given(clusters(racks=False, all_well=True, at_least=4, spare=2), st.data())
def test_replacement_node_takes_over_all_replicas_it_does_not_host(cluster: Cluster, data: st.DataObject) -> None:
    nodes, partitions = cluster
    old, new = data.draw(st.permutations([node.id for node in nodes]))[:2]
    for move in plan_takeover(nodes, partitions, old, new):
        assert old not in move.replicas
        assert new in move.replicas
        if new not in move.partition.replicas:
            assert move.replicas.index(new) == move.partition.replicas.index(old)


def test_replacement_node_gets_no_replica_that_would_share_its_rack() -> None:
    nodes = some_nodes(5, "abcbc")
    partitions = [partition(1, 2, index=0), partition(1, 3, index=1)]
    nodes.append(PlannedNode(6, "a"))
    moves = plan_takeover(nodes, partitions, 1, 4)
    assert [move.replicas for move in moves] == [(5, 2), (4, 3)]


def test_partition_already_leaving_the_node_needs_no_move() -> None:
    moving = replace(partition(2, 3), leaving=(1,))
    assert plan_evacuation(some_nodes(3), [moving], 1) == ()


@pytest.mark.parametrize(
    ("nodes", "partitions", "message"),
    [
        (
            some_nodes(3),
            [partition(1, 2, 3, index=index) for index in range(6)],
            "orders-0, orders-1, orders-2 and 3 more: no other node can host the replica of node 1"
            " (orders-0 has 3 replicas, and 2 other nodes can host replicas)",
        ),
        (
            [*some_nodes(2), PlannedNode(3, is_draining=True)],
            [partition(1, 2)],
            "orders-0: no other node can host the replica of node 1"
            " (orders-0 has 2 replicas, and 1 other node can host replicas)",
        ),
        (
            [PlannedNode(1, is_online=False), *some_nodes(3)[1:]],
            [replace(partition(1, 2), in_sync=(1,), leader=-1)],
            "orders-0: no in-sync replica is online, so the records cannot be copied; start the nodes that host them,"
            " or accept the loss of records with chronik topics elect-leaders --unclean",
        ),
    ],
)
def test_removal_is_rejected_when_replicas_cannot_be_moved(
    nodes: list[PlannedNode], partitions: list[PlannedPartition], message: str
) -> None:
    with pytest.raises(PlanRejectedError) as error:
        plan_evacuation(nodes, partitions, 1)
    assert str(error.value) == message


def test_system_partitions_can_be_moved_off_an_offline_node() -> None:
    nodes = [PlannedNode(1, is_online=False), *some_nodes(3)[1:]]
    lost = replace(partition(1, 2, topic="__consumer_offsets"), in_sync=(1,), is_system_partition=True)
    (move,) = plan_evacuation(nodes, [lost], 1)
    assert move.replicas == (3, 2)


def placed(nodes: list[PlannedNode], partitions: int, factor: int) -> list[PlannedPartition]:
    places = [PlacementCandidate(node.id, node.rack) for node in nodes]
    return [
        partition(*replicas, index=number)
        for number, replicas in enumerate(place_replicas(partitions, factor, places, 0))
    ]


@settings(max_examples=REBALANCING_EXAMPLES, deadline=None)
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


@settings(max_examples=REBALANCING_EXAMPLES, deadline=None)
@given(clusters())
def test_rebalance_of_balanced_cluster_plans_nothing(cluster: Cluster) -> None:
    nodes, partitions = cluster
    moves = plan_rebalance_moves(nodes, partitions)
    assert plan_rebalance_moves(nodes, after(partitions, moves)) == ()


@settings(max_examples=REBALANCING_EXAMPLES, deadline=None)
@given(clusters(all_well=True))
def test_rebalance_spreads_replicas_over_distinct_racks(cluster: Cluster) -> None:
    nodes, partitions = cluster
    racks = len({node.rack for node in nodes})
    for each in after(partitions, plan_rebalance_moves(nodes, partitions)):
        assert crowding(nodes, each.replicas) == max(0, len(each.replicas) - racks)


@settings(max_examples=REBALANCING_EXAMPLES, deadline=None)
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


def replicas_after(moves: Iterable[ReplicaMove], partitions: list[PlannedPartition]) -> list[tuple[int, ...]]:
    changed = {move.partition: move.replicas for move in moves}
    return [changed.get(each, each.replicas) for each in partitions]


@settings(max_examples=EXAMPLES, deadline=None)
@given(clusters(all_well=True, at_least=2), st.data())
def test_placement_uses_chosen_nodes_and_keeps_balance(cluster: Cluster, data: st.DataObject) -> None:
    nodes, partitions = cluster
    ids = [node.id for node in nodes]
    chosen = data.draw(st.lists(st.sampled_from(ids), min_size=1, unique=True))
    factor = data.draw(st.integers(1, len(chosen)))
    placed = replicas_after(plan_placement(nodes, partitions, chosen, factor), partitions)
    assert all(len(set(each)) == factor and set(each) <= set(chosen) for each in placed)


def test_placement_keeps_replicas_on_chosen_nodes() -> None:
    partitions = [partition(1, 2, 3), partition(2, 3, 1, index=1), partition(3, 1, 2, index=2)]
    assert plan_placement(some_nodes(4), partitions, [1, 2, 3], 3) == ()
    placed = replicas_after(plan_placement(some_nodes(4), partitions, [1, 2, 3], 2), partitions)
    counts = Counter(node for each in placed for node in each)
    assert sorted(counts.values()) == [2, 2, 2]
    assert Counter(each[0] for each in placed) == {1: 1, 2: 1, 3: 1}
    grown = replicas_after(plan_placement(some_nodes(4), partitions, [1, 2, 3, 4], 4), partitions)
    assert all(set(each) == {1, 2, 3, 4} for each in grown)


@pytest.mark.parametrize(
    ("chosen", "factor", "message"),
    [
        ([1], 2, "2 replicas per partition on 1 node"),
        ([1, 9], 1, "node 9 does not exist"),
        ([1, 3], 1, "node 3 cannot receive replicas"),
        ([1], 0, "choose at least 1 replica"),
    ],
)
def test_impossible_placement_is_rejected(chosen: list[int], factor: int, message: str) -> None:
    nodes = some_nodes(3)
    nodes[2] = replace(nodes[2], is_draining=True)
    with pytest.raises(PlanRejectedError, match=message):
        plan_placement(nodes, [partition(1, 2)], chosen, factor)


def test_placement_of_partition_without_leader_is_rejected() -> None:
    offline = replace(partition(1), leader=NO_LEADER)
    with pytest.raises(PlanRejectedError, match="orders-0: no leader"):
        plan_placement(some_nodes(2), [offline], [2], 1)

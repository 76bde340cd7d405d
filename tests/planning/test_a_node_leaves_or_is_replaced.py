"""Everything leaves a node: nothing else moves, racks are kept, the others share it, and what cannot go is told."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chronik.planning.moving import leave, rebalance, take_over
from chronik.planning.views import NodeView, PartitionView, Refused
from tests.long import count
from tests.planning.views import after, clusters, crowding, partition, replica_counts, some_nodes, spread

Cluster = tuple[list[NodeView], list[PartitionView]]

EXAMPLES = count(30, 2000)


def takers(nodes: list[NodeView]) -> set[int]:
    return {node.id for node in nodes if node.takes_replicas}


@settings(max_examples=EXAMPLES, deadline=None)
@given(clusters(at_least=2), st.data())
def test_all_replicas_leave_and_others_stay_where_they_are(cluster: Cluster, data: st.DataObject) -> None:
    nodes, partitions = cluster
    leaving = data.draw(st.sampled_from(nodes)).id
    concerned = [each for each in partitions if leaving in each.replicas]
    online = {node.id for node in nodes if node.is_online}
    can_leave = all(takers(nodes) - {leaving} - set(each.replicas) and online & set(each.in_sync) for each in concerned)
    try:
        moves = leave(nodes, partitions, leaving)
    except Refused:
        assert not can_leave
        return
    assert can_leave
    assert [move.partition for move in moves] == concerned
    for move in moves:
        (taker,) = move.added
        assert taker in takers(nodes)
        expected = tuple(taker if replica == leaving else replica for replica in move.partition.replicas)
        assert move.replicas == expected


@settings(max_examples=EXAMPLES, deadline=None)
@given(clusters(all_well=True, at_least=4, spare=1), st.data())
def test_no_rack_is_shared_that_need_not_be(cluster: Cluster, data: st.DataObject) -> None:
    nodes, partitions = cluster
    leaving = data.draw(st.sampled_from(nodes)).id
    others = [node for node in nodes if node.id != leaving]
    for move in leave(nodes, partitions, leaving):
        stay = tuple(replica for replica in move.replicas if replica not in move.added)
        best = min(crowding(nodes, (*stay, node.id)) for node in others if node.id not in stay)
        assert crowding(nodes, move.replicas) == best


@settings(max_examples=EXAMPLES, deadline=None)
@given(clusters(racks=False, all_well=True, at_least=5, spare=3), st.data())
def test_the_others_share_what_one_leaves_behind(cluster: Cluster, data: st.DataObject) -> None:
    """Nobody gets a replica that another, who has two less, could have got instead."""
    nodes, partitions = cluster
    partitions = after(partitions, rebalance(nodes, partitions))
    leaving = data.draw(st.sampled_from(nodes)).id
    others = [node for node in nodes if node.id != leaving]
    moves = leave(nodes, partitions, leaving)
    counts = replica_counts(others, after(partitions, moves))
    for move in moves:
        (taker,) = move.added
        free = [node.id for node in others if node.id not in move.replicas]
        assert all(counts[taker] <= counts[node] + 1 for node in free)


def test_a_balanced_cluster_is_balanced_after_a_node_has_left() -> None:
    nodes = some_nodes(6)
    partitions = [partition(1 + number % 6, 1 + (number + 1) % 6, index=number) for number in range(60)]
    counts = replica_counts(nodes[1:], after(partitions, leave(nodes, partitions, 1)))
    assert spread(counts) <= 1


@settings(max_examples=EXAMPLES, deadline=None)
@given(clusters(racks=False, all_well=True, at_least=4, spare=2), st.data())
def test_an_heir_gets_what_it_does_not_have_yet(cluster: Cluster, data: st.DataObject) -> None:
    nodes, partitions = cluster
    old, new = data.draw(st.permutations([node.id for node in nodes]))[:2]
    for move in take_over(nodes, partitions, old, new):
        assert old not in move.replicas
        assert new in move.replicas
        if new not in move.partition.replicas:
            assert move.replicas.index(new) == move.partition.replicas.index(old)


def test_an_heir_in_the_wrong_rack_does_not_get_what_is_there_already() -> None:
    nodes = some_nodes(5, "abcbc")
    partitions = [partition(1, 2, index=0), partition(1, 3, index=1)]
    nodes.append(NodeView(6, "a"))
    moves = take_over(nodes, partitions, 1, 4)
    assert [move.replicas for move in moves] == [(5, 2), (4, 3)]


def test_what_is_on_its_way_already_needs_no_move() -> None:
    moving = replace(partition(2, 3), leaving=(1,))
    assert leave(some_nodes(3), [moving], 1) == ()


@pytest.mark.parametrize(
    ("nodes", "partitions", "told"),
    [
        (
            some_nodes(3),
            [partition(1, 2, 3, index=index) for index in range(6)],
            "orders-0, orders-1, orders-2 and 3 more: no node is left that could take the replica of node 1"
            " (orders-0 has 3 replicas, and 2 other nodes can take some)",
        ),
        (
            [*some_nodes(2), NodeView(3, is_draining=True)],
            [partition(1, 2)],
            "orders-0: no node is left that could take the replica of node 1"
            " (orders-0 has 2 replicas, and 1 other node can take some)",
        ),
        (
            [NodeView(1, is_online=False), *some_nodes(3)[1:]],
            [replace(partition(1, 2), in_sync=(1,), leader=-1)],
            "orders-0: no replica that has everything is online, so nothing can be copied from there; start the nodes"
            " that hold it, or give up what is lost with chronik topics elect-leaders --unclean",
        ),
    ],
)
def test_what_cannot_leave_is_told(nodes: list[NodeView], partitions: list[PartitionView], told: str) -> None:
    with pytest.raises(Refused) as refused:
        leave(nodes, partitions, 1)
    assert str(refused.value) == told


def test_system_partitions_leave_a_node_that_is_away() -> None:
    nodes = [NodeView(1, is_online=False), *some_nodes(3)[1:]]
    lost = replace(partition(1, 2, topic="__consumer_offsets"), in_sync=(1,), lives_in_metadata=True)
    (move,) = leave(nodes, [lost], 1)
    assert move.replicas == (3, 2)

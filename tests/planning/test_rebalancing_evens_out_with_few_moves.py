"""Whatever a cluster looks like: after rebalancing it is even, spread over racks, and there is nothing left to do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chronik.planning.moving import rebalance
from chronik.planning.placement import Place, place_replicas
from chronik.planning.views import NodeView, PartitionView
from tests.long import count
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

Cluster = tuple[list[NodeView], list[PartitionView]]

EXAMPLES = count(30, 3000)


def placed(nodes: list[NodeView], partitions: int, factor: int) -> list[PartitionView]:
    places = [Place(node.id, node.rack) for node in nodes]
    return [
        partition(*replicas, index=number)
        for number, replicas in enumerate(place_replicas(partitions, factor, places, 0))
    ]


@settings(max_examples=EXAMPLES, deadline=None)
@given(clusters(racks=False, all_well=True))
def test_without_racks_all_nodes_are_even_and_no_replica_is_moved_in_vain(cluster: Cluster) -> None:
    nodes, partitions = cluster
    moves = rebalance(nodes, partitions)
    settled = after(partitions, moves)
    assert spread(replica_counts(nodes, settled)) <= 1
    assert sum(len(move.added) for move in moves) == fewest_moves(replica_counts(nodes, partitions))


def fewest_moves(counts: dict[int, int]) -> int:
    share, larger = divmod(sum(counts.values()), len(counts))
    wanted = [share + 1] * larger + [share] * (len(counts) - larger)
    return sum(max(0, has - want) for has, want in zip(sorted(counts.values(), reverse=True), wanted, strict=True))


@settings(max_examples=EXAMPLES, deadline=None)
@given(clusters())
def test_a_second_look_finds_nothing_to_do(cluster: Cluster) -> None:
    nodes, partitions = cluster
    moves = rebalance(nodes, partitions)
    assert rebalance(nodes, after(partitions, moves)) == ()


@settings(max_examples=EXAMPLES, deadline=None)
@given(clusters(all_well=True))
def test_no_two_replicas_share_a_rack_while_there_are_enough(cluster: Cluster) -> None:
    nodes, partitions = cluster
    racks = len({node.rack for node in nodes})
    for each in after(partitions, rebalance(nodes, partitions)):
        assert crowding(nodes, each.replicas) == max(0, len(each.replicas) - racks)


@settings(max_examples=EXAMPLES, deadline=None)
@given(clusters())
def test_partitions_keep_their_replicas_number_and_stay_where_nodes_are_drained_or_away(cluster: Cluster) -> None:
    nodes, partitions = cluster
    takers = {node.id for node in nodes if node.takes_replicas}
    for move in rebalance(nodes, partitions):
        assert len(set(move.replicas)) == len(move.replicas) == len(move.partition.replicas)
        assert set(move.added) <= takers
        assert set(move.partition.replicas) - set(move.replicas) <= takers
        assert move.partition.leader >= 0


@settings(max_examples=count(30, 1000), deadline=None)
@given(clusters(all_well=True), st.integers(1, 4))
def test_with_racks_it_is_as_even_as_any_layout_can_be(cluster: Cluster, few: int) -> None:
    """Compared with all layouts that there are, of a few partitions."""
    nodes, partitions = cluster
    partitions = partitions[:few]
    if not partitions:
        return
    settled = after(partitions, rebalance(nodes, partitions))
    choices = [legal_sets(nodes, len(each.replicas)) for each in partitions]
    layouts = (Counter(replica for replicas in layout for replica in replicas) for layout in product(*choices))
    assert unevenness(replica_counts(nodes, settled)) == min(map(unevenness, layouts))
    leaders = product(*(each.replicas for each in settled))
    assert unevenness(leader_counts(nodes, settled)) == min(unevenness(Counter(layout)) for layout in leaders)


def unevenness(counts: Mapping[int, int]) -> int:
    return sum(each * each for each in counts.values())


@pytest.mark.parametrize(("before", "added"), [(3, 1), (3, 4), (5, 2)])
def test_new_nodes_get_their_share(before: int, added: int) -> None:
    nodes = some_nodes(before + added)
    partitions = placed(nodes[:before], 60, 3)
    moves = rebalance(nodes, partitions)
    counts = replica_counts(nodes, after(partitions, moves))
    assert spread(counts) <= 1
    assert spread(leader_counts(nodes, after(partitions, moves))) <= 1
    # Nothing goes from an old node to another: only what the new ones get is copied.
    assert sum(len(move.added) for move in moves) == sum(counts[node.id] for node in nodes[before:])


def test_every_topic_is_spread_by_itself() -> None:
    nodes = some_nodes(4)
    sizes = {"large": 50, "larger": 60, "small": 6}
    partitions = [replace(each, topic=topic) for topic in sizes for each in placed(nodes[:3], sizes[topic], 3)]
    settled = after(partitions, rebalance(nodes, partitions))
    for topic in sizes:
        of_topic = [each for each in settled if each.topic == topic]
        assert spread(replica_counts(nodes, of_topic)) <= 2
        assert spread(leader_counts(nodes, of_topic)) <= 4


def test_where_racks_forbid_the_direct_way_a_chain_is_found() -> None:
    """With one partition moved, from 2 to 1, node 4 has too many and 3 too few; but each partition of 4 has a replica
    in the rack of 3 already. So one goes from 4 to 1, and the one before goes on to 3."""
    nodes = some_nodes(4, "baab")
    partitions = [
        partition(*replicas, index=index) for index, replicas in enumerate([(2,), (3, 4), (4, 2), (4, 2), (1,)])
    ]
    moves = rebalance(nodes, partitions)
    assert set(replica_counts(nodes, after(partitions, moves)).values()) == {2}
    assert sum(len(move.added) for move in moves) == 2


def test_many_partitions_are_planned_in_seconds() -> None:
    nodes = some_nodes(12, "abcabcabcabc")
    partitions = placed(nodes[:9], 10_000, 3)
    settled = after(partitions, rebalance(nodes, partitions))
    assert spread(replica_counts(nodes, settled)) <= 1

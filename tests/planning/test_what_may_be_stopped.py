"""A node may be stopped when everything is led, written and decided without it; if not, it is told why."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chronik.planning.stopping import why_not_stop
from chronik.planning.views import NodeView, PartitionView
from tests.long import count
from tests.planning.views import clusters, partition, some_nodes

Cluster = tuple[list[NodeView], list[PartitionView]]


def away(nodes: list[NodeView], *ids: int) -> list[NodeView]:
    return [replace(node, is_online=node.is_online and node.id not in ids) for node in nodes]


def sentences(nodes: list[NodeView], partitions: list[PartitionView], *stopping: int) -> list[str]:
    return [reason.sentence for reason in why_not_stop(nodes, partitions, stopping)]


def test_one_of_three_may_be_stopped() -> None:
    partitions = [partition(1, 2, 3, min_in_sync=2), partition(2, 1, index=1)]
    assert sentences(some_nodes(3), partitions, 1) == []


def test_one_that_is_down_already_may_be_stopped() -> None:
    partitions = [replace(partition(1, 2, 3, min_in_sync=2), in_sync=(2, 3), leader=2)]
    assert sentences(away(some_nodes(3), 1), partitions, 1) == []


def test_while_a_replica_is_away_no_other_may_be_stopped() -> None:
    orders = replace(partition(1, 2, 3, min_in_sync=2), in_sync=(1, 2))
    assert sentences(some_nodes(3), [orders], 3) == []
    assert sentences(some_nodes(3), [orders], 2) == [
        "1 partition would have fewer replicas in sync than min.insync.replicas, and refuse acks=all: orders-0"
    ]
    assert sentences(away(some_nodes(3), 3), [orders], 2) == [
        "1 of 3 voters would be left, which is no majority:"
        " topics, leaders, groups and offsets could not change any more",
        "1 partition would have fewer replicas in sync than min.insync.replicas, and refuse acks=all: orders-0",
    ]


def test_the_last_replica_in_sync_may_not_be_stopped() -> None:
    alone = [partition(2, index=index) for index in range(5)]
    (reason,) = why_not_stop(some_nodes(3), alone, [2])
    assert reason.kind == "leaderless"
    assert reason.sentence == (
        "5 partitions would have no leader until node 2 is back: orders-0, orders-1, orders-2 and 2 more"
    )
    assert reason.partitions == tuple(alone)


def test_two_at_a_time_are_more_than_one() -> None:
    partitions = [partition(1, 2)]
    assert sentences(some_nodes(5), partitions, 1) == []
    assert sentences(some_nodes(5), partitions, 3, 4) == []
    assert sentences(some_nodes(5), partitions, 1, 2) == [
        "1 partition would have no leader until nodes 1 and 2 are back: orders-0"
    ]


def test_system_partitions_need_any_replica_that_is_online() -> None:
    offsets = replace(
        partition(1, 2, 3, topic="__consumer_offsets", min_in_sync=2), in_sync=(1,), lives_in_metadata=True
    )
    assert sentences(some_nodes(3), [offsets], 1) == []
    assert len(sentences(away(some_nodes(5), 2, 3), [offsets], 1)) == 2


def test_observers_do_not_count_for_the_quorum() -> None:
    nodes = [*some_nodes(3), NodeView(4), NodeView(5)]
    assert sentences(away(nodes, 1), [], 4, 5) == []
    assert [reason.kind for reason in why_not_stop(away(nodes, 1), [], [2])] == ["quorum"]


def test_nobody_knows_a_node_of_another_cluster() -> None:
    assert sentences(some_nodes(3), [], 7) == ["there is no node 7 in this cluster"]


@settings(max_examples=count(50, 3000), deadline=None)
@given(clusters(), st.data())
def test_what_is_said_to_be_safe_is_safe(cluster: Cluster, data: st.DataObject) -> None:
    nodes, partitions = cluster
    stopping = data.draw(st.sets(st.sampled_from([node.id for node in nodes]), min_size=1))
    reasons = why_not_stop(nodes, partitions, stopping)
    left = {node.id for node in nodes if node.is_online} - stopping
    harmed = {each for reason in reasons for each in reason.partitions}
    for each in partitions:
        is_concerned = bool(stopping & set(each.in_sync))
        is_served = len(left & set(each.in_sync)) >= each.min_in_sync
        assert (each in harmed) == (is_concerned and not is_served)
    voters = {node.id for node in nodes if node.is_voter}
    costs_quorum = bool(voters & stopping) and 2 * len(voters & left) <= len(voters)
    assert any(reason.kind == "quorum" for reason in reasons) == costs_quorum


@pytest.mark.parametrize("stopping", [1, 2, 3])
def test_in_a_healthy_cluster_any_node_may_be_stopped(stopping: int) -> None:
    partitions = [partition(*order, index=index, min_in_sync=2) for index, order in enumerate([(1, 2, 3), (3, 1, 2)])]
    assert sentences(some_nodes(3), partitions, stopping) == []

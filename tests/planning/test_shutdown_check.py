"""The safety check before nodes are stopped."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chronik.planning.shutdown_check import find_shutdown_obstacles
from chronik.planning.views import PlannedNode, PlannedPartition
from tests.planning.views import clusters, partition, some_nodes
from tests.run_size import sized

Cluster = tuple[list[PlannedNode], list[PlannedPartition]]

TOO_FEW_IN_SYNC = (
    "1 partition would have fewer in-sync replicas than min.insync.replicas and reject writes with acks=all: orders-0"
)


def with_offline(nodes: list[PlannedNode], *ids: int) -> list[PlannedNode]:
    return [replace(node, is_online=node.is_online and node.id not in ids) for node in nodes]


def sentences(nodes: list[PlannedNode], partitions: list[PlannedPartition], *stopping: int) -> list[str]:
    return [reason.sentence for reason in find_shutdown_obstacles(nodes, partitions, stopping)]


def test_one_of_three_nodes_can_be_stopped() -> None:
    partitions = [partition(1, 2, 3, min_in_sync=2), partition(2, 1, index=1)]
    assert sentences(some_nodes(3), partitions, 1) == []


def test_node_that_is_already_offline_can_be_stopped() -> None:
    partitions = [replace(partition(1, 2, 3, min_in_sync=2), in_sync=(2, 3), leader=2)]
    assert sentences(with_offline(some_nodes(3), 1), partitions, 1) == []


def test_node_cannot_be_stopped_while_isr_is_at_minimum() -> None:
    orders = replace(partition(1, 2, 3, min_in_sync=2), in_sync=(1, 2))
    assert sentences(some_nodes(3), [orders], 3) == []
    assert sentences(some_nodes(3), [orders], 2) == [TOO_FEW_IN_SYNC]
    assert sentences(with_offline(some_nodes(3), 3), [orders], 2) == [
        "only 1 of 3 voters would be left, which is no majority:"
        " changes of topics, leaders, groups and committed offsets would fail",
        TOO_FEW_IN_SYNC,
    ]


def test_node_with_last_in_sync_replica_cannot_be_stopped() -> None:
    alone = [partition(2, index=index) for index in range(5)]
    (reason,) = find_shutdown_obstacles(some_nodes(3), alone, [2])
    assert reason.kind == "leaderless"
    assert reason.sentence == (
        "5 partitions would have no leader until node 2 is back: orders-0, orders-1, orders-2 and 2 more"
    )
    assert reason.partitions == tuple(alone)


def test_two_nodes_that_share_a_partition_cannot_be_stopped_together() -> None:
    partitions = [partition(1, 2)]
    assert sentences(some_nodes(5), partitions, 1) == []
    assert sentences(some_nodes(5), partitions, 3, 4) == []
    assert sentences(some_nodes(5), partitions, 1, 2) == [
        "1 partition would have no leader until nodes 1 and 2 are back: orders-0"
    ]


def test_system_partitions_need_only_one_online_replica() -> None:
    offsets = replace(
        partition(1, 2, 3, topic="__consumer_offsets", min_in_sync=2), in_sync=(1,), is_system_partition=True
    )
    assert sentences(some_nodes(3), [offsets], 1) == []
    assert len(sentences(with_offline(some_nodes(5), 2, 3), [offsets], 1)) == 2


def test_stopping_observers_does_not_affect_quorum() -> None:
    nodes = [*some_nodes(3), PlannedNode(4), PlannedNode(5)]
    assert sentences(with_offline(nodes, 1), [], 4, 5) == []
    assert [reason.kind for reason in find_shutdown_obstacles(with_offline(nodes, 1), [], [2])] == ["quorum"]


def test_unknown_node_is_reported() -> None:
    assert sentences(some_nodes(3), [], 7) == ["no node 7 exists in this cluster"]


@settings(max_examples=sized(50, 3000), deadline=None)
@given(clusters(), st.data())
def test_safety_check_agrees_with_model_for_random_clusters(cluster: Cluster, data: st.DataObject) -> None:
    nodes, partitions = cluster
    stopping = data.draw(st.sets(st.sampled_from([node.id for node in nodes]), min_size=1))
    reasons = find_shutdown_obstacles(nodes, partitions, stopping)
    left = {node.id for node in nodes if node.is_online} - stopping
    harmed = {each for reason in reasons for each in reason.partitions}
    for each in partitions:
        is_affected = bool(stopping & set(each.in_sync))
        is_served = len(left & set(each.in_sync)) >= each.min_in_sync
        assert (each in harmed) == (is_affected and not is_served)
    voters = {node.id for node in nodes if node.is_voter}
    costs_quorum = bool(voters & stopping) and 2 * len(voters & left) <= len(voters)
    assert any(reason.kind == "quorum" for reason in reasons) == costs_quorum


@pytest.mark.parametrize("stopping", [1, 2, 3])
def test_any_node_of_healthy_cluster_can_be_stopped(stopping: int) -> None:
    partitions = [partition(*order, index=index, min_in_sync=2) for index, order in enumerate([(1, 2, 3), (3, 1, 2)])]
    assert sentences(some_nodes(3), partitions, stopping) == []

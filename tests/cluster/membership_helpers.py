"""Helpers to add, remove, promote, demote and drain nodes of a cluster."""

from __future__ import annotations

from collections.abc import Callable

from chronik.admin.nodes import NodeAction
from chronik.client.connection import BrokerConnection
from chronik.config import Address
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.alter_nodes import AlterNodesRequest, AlterNodesResponse, NodeToAlter
from chronik.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from chronik.protocol.messages.describe_nodes import DescribedNode, DescribeNodesRequest, DescribeNodesResponse
from chronik.protocol.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponsePartition
from chronik.testing.cluster import Cluster, ClusterNode


def request_change(
    node: ClusterNode, node_id: int, action: NodeAction, address: Address | None = None
) -> tuple[ErrorCode, str]:
    """Send one change request, without retries."""
    host, port = address or (None, 0)
    change = NodeToAlter(node_id=node_id, action=action, host=host, port=port)
    with BrokerConnection(node.kafka) as connection:
        answer = connection.request(AlterNodesRequest(changes=[change]), AlterNodesResponse)
    assert answer.error_code == ErrorCode.NONE, answer
    return ErrorCode(answer.results[0].error_code), answer.results[0].error_message or ""


def change_node(node: ClusterNode, node_id: int, action: NodeAction, address: Address | None = None) -> None:
    assert request_change(node, node_id, action, address) == (ErrorCode.NONE, "")


def described_nodes(node: ClusterNode) -> dict[int, DescribedNode]:
    """Return the nodes according to this node, which asks the leader."""
    with BrokerConnection(node.kafka) as connection:
        answer = connection.request(DescribeNodesRequest(), DescribeNodesResponse)
    return {each.node_id: each for each in answer.nodes} if answer.error_code == ErrorCode.NONE else {}


def voter_letters(node: ClusterNode) -> str:
    """Return a letter for each node from 1 on: V for voters, o for observers, - for others."""
    nodes = described_nodes(node)
    letters = {each.node_id: "V" if each.is_voter else "o" for each in nodes.values() if each.is_member}
    return "".join(letters.get(node_id, "-") for node_id in range(1, 1 + max(nodes, default=0)))


def wait_for_voter_letters(cluster: Cluster, expected: str) -> None:
    def missing() -> str | None:
        found = {node.node_id: voter_letters(node) for node in cluster.live_nodes}
        return None if set(found.values()) == {expected} else f"seats: {found}"

    cluster.wait_until(missing, f"seats to be {expected}")


def move_replicas(cluster: Cluster, asked: ClusterNode, node_id: int, successor: int) -> None:
    """Move all replicas of a node to another one and wait until they are moved."""
    with BrokerConnection(asked.kafka) as connection:
        topics = connection.request(MetadataRequest(topics=None), MetadataResponse).topics
        moved = []
        for topic in topics:
            held = [each for each in topic.partitions if node_id in each.replica_nodes]
            moves = [
                ReassignablePartition(
                    partition_index=each.partition_index,
                    replicas=[successor if replica == node_id else replica for replica in each.replica_nodes],
                )
                for each in held
            ]
            moved.append(ReassignableTopic(name=topic.name or "", partitions=moves))
        request = AlterPartitionReassignmentsRequest(
            timeout_ms=10_000, topics=[each for each in moved if each.partitions]
        )
        answer = connection.request(request, AlterPartitionReassignmentsResponse)
    codes = {each.error_code for topic in answer.responses for each in topic.partitions}
    assert answer.error_code == ErrorCode.NONE
    assert codes == {ErrorCode.NONE}
    cluster.wait_until(lambda: partitions_on(asked, node_id), f"node {node_id} holds nothing")


def partitions_on(asked: ClusterNode, node_id: int) -> str | None:
    """Return the partitions that have a replica on the node, or None."""
    return _partitions(asked, lambda each: node_id in each.replica_nodes)


def partitions_led_by(asked: ClusterNode, node_id: int) -> str | None:
    """Return the partitions that the node leads, or None."""
    return _partitions(asked, lambda each: each.leader_id == node_id)


def _partitions(asked: ClusterNode, is_meant: Callable[[MetadataResponsePartition], bool]) -> str | None:
    with BrokerConnection(asked.kafka) as connection:
        topics = connection.request(MetadataRequest(topics=None), MetadataResponse).topics
    found = [f"{topic.name}-{each.partition_index}" for topic in topics for each in topic.partitions if is_meant(each)]
    return ", ".join(found[:5]) or None

"""The current state of a cluster as input for plans."""

from __future__ import annotations

from typing import Final, NamedTuple

from chronik.client.admin import list_topics_with_configs
from chronik.client.cluster import ClusterClient
from chronik.client.nodes import describe_nodes, to_planned_node
from chronik.client.partitions import list_reassignments
from chronik.client.records import TopicPartition
from chronik.metadata.names import SYSTEM_TOPICS
from chronik.planning.views import PlannedNode, PlannedPartition
from chronik.protocol.messages.describe_nodes import DescribeNodesResponse

MIN_IN_SYNC_REPLICAS_KEY: Final = "min.insync.replicas"


class ClusterState(NamedTuple):
    """A snapshot of the nodes and partitions of a cluster."""

    described: DescribeNodesResponse
    nodes: list[PlannedNode]
    """Member nodes, without nodes that are being removed."""
    partitions: list[PlannedPartition]


def describe_cluster_state(cluster: ClusterClient) -> ClusterState:
    """Request the current nodes and partitions of the cluster. Raise ClientError or KafkaError on failure."""
    described = describe_nodes(cluster)
    nodes = [to_planned_node(node) for node in described.nodes if node.host]
    return ClusterState(described, nodes, describe_partitions(cluster))


def describe_partitions(cluster: ClusterClient) -> list[PlannedPartition]:
    """Request the current partitions of the cluster. Raise ClientError or KafkaError on failure."""
    return cluster.retry(lambda: _fetch_partitions(cluster))


def _fetch_partitions(cluster: ClusterClient) -> list[PlannedPartition]:
    topics, configs = list_topics_with_configs(cluster, [MIN_IN_SYNC_REPLICAS_KEY])
    moves = {move.partition: move for move in list_reassignments(cluster)}
    views = []
    for topic in topics:
        name = topic.name or ""
        min_in_sync = next((int(config.value or 1) for config in configs[name]), 1)
        for each in sorted(topic.partitions, key=lambda each: each.partition_index):
            move = moves.get(TopicPartition(name, each.partition_index))
            leaving = tuple(move.removing) if move is not None else ()
            views.append(
                PlannedPartition(
                    name,
                    each.partition_index,
                    tuple(replica for replica in each.replica_nodes if replica not in leaving),
                    tuple(each.isr_nodes),
                    each.leader_id,
                    min_in_sync,
                    name in SYSTEM_TOPICS,
                    leaving,
                )
            )
    return views

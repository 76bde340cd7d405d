"""The state of the cluster according to the Metadata of each node: leaders and in-sync replicas."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from chronik.client.connection import BrokerConnection
from chronik.client.errors import ClientError
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from chronik.testing.cluster import Cluster, ClusterNode
from tests.chaos.history import Place

ASK_SECONDS_MAX = 3.0
NOBODY = -1


class PartitionState(NamedTuple):
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]

    @property
    def is_fully_in_sync(self) -> bool:
        return self.leader != NOBODY and set(self.in_sync) == set(self.replicas)


def read_partition_states(node: ClusterNode, topics: Iterable[str]) -> dict[Place, PartitionState]:
    """Return the partition states according to one node. Raises ClientError."""
    return {
        Place(topic.name or "", partition.partition_index): PartitionState(
            partition.leader_id,
            partition.leader_epoch,
            tuple(partition.replica_nodes),
            tuple(partition.isr_nodes),
        )
        for topic in _metadata(node, topics)
        for partition in topic.partitions
    }


def topic_ids(node: ClusterNode, topics: Iterable[str]) -> dict[str, bytes]:
    """Return the topic ids. Raises ClientError."""
    return {topic.name or "": topic.topic_id for topic in _metadata(node, topics)}


def _metadata(node: ClusterNode, topics: Iterable[str]) -> list[MetadataResponseTopic]:
    connection = BrokerConnection(node.kafka, client_id="chaos", timeout_s=ASK_SECONDS_MAX)
    try:
        wanted = [MetadataRequestTopic(name=topic) for topic in topics]
        answer = connection.request(MetadataRequest(topics=wanted, allow_auto_topic_creation=False), MetadataResponse)
    finally:
        connection.close()
    return [topic for topic in answer.topics if topic.error_code == ErrorCode.NONE]


def leader_of(cluster: Cluster, place: Place) -> int:
    """Return the leader according to the first node that responds, or NOBODY."""
    for node in cluster.live_nodes:
        try:
            return read_partition_states(node, [place.topic])[place].leader
        except (ClientError, KeyError):
            continue
    return NOBODY


def out_of_sync_reason(cluster: Cluster, places: Iterable[Place]) -> str | None:
    """Return which replica is not in sync according to any node, or None if all are."""
    places = list(places)
    topics = sorted({place.topic for place in places})
    for node in cluster.nodes.values():
        if not node.is_live:
            return f"node {node.node_id} is down"
        try:
            standing = read_partition_states(node, topics)
        except ClientError as silent:
            return f"node {node.node_id}: {silent}"
        for place in places:
            if place not in standing:
                return f"node {node.node_id} does not know {place}"
            if not standing[place].is_fully_in_sync:
                return f"node {node.node_id} says {place} has {standing[place]}"
    return None

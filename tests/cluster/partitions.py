"""Helpers to create, reassign and observe the partitions of a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from chronik.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from chronik.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions
from chronik.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
)
from chronik.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from chronik.testing.cluster import Cluster, ClusterNode
from tests.raw import ConnectionClosed, RawClient


@dataclass(frozen=True)
class PartitionView:
    """The state of a partition as a client sees it."""

    leader: int
    replicas: list[int]
    isr: list[int]
    error: ErrorCode = ErrorCode.NONE


def create_topic(node: ClusterNode, topic: str, *replicas: list[int], **configs: str) -> None:
    """Create a topic with the given replicas. In config names, '_' stands for '.'."""
    wanted = CreatableTopic(
        name=topic,
        num_partitions=-1,
        replication_factor=-1,
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=ids) for index, ids in enumerate(replicas)
        ],
        configs=[CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()],
    )
    with RawClient(node.bootstrap) as client:
        answer = client.request(CreateTopicsRequest(topics=[wanted]), 7, CreateTopicsResponse).topics[0]
    assert answer.error_code == ErrorCode.NONE, answer


def read_partitions(node: ClusterNode, topic: str) -> list[PartitionView]:
    """Return the partitions according to this node."""
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
    with RawClient(node.bootstrap) as client:
        partitions = client.request(request, 12, MetadataResponse).topics[0].partitions
    return [
        PartitionView(each.leader_id, each.replica_nodes, each.isr_nodes, ErrorCode(each.error_code))
        for each in sorted(partitions, key=lambda each: each.partition_index)
    ]


def wait_until_seen(cluster: Cluster, topic: str, *expected: PartitionView) -> None:
    """Wait until every live node reports these partitions; the ISR may be in any order."""

    def missing() -> str | None:
        for node in cluster.live_nodes:
            try:
                seen = read_partitions(node, topic)
            except ConnectionClosed:  # the node has lost its directory and is not admitted again yet
                return f"node {node.node_id} disconnects its clients"
            if [_sorted(each) for each in seen] != [_sorted(each) for each in expected]:
                return f"node {node.node_id} sees {seen}"
        return None

    cluster.wait_until(missing, f"{topic} as {list(expected)}")


def wait_until_in_sync(cluster: Cluster, topic: str) -> None:
    """Wait until all replicas of all partitions are in sync according to all live nodes."""

    def missing() -> str | None:
        views = [read_partitions(node, topic) for node in cluster.live_nodes]
        for seen in views:
            is_whole = seen and all(each.leader >= 0 and sorted(each.isr) == sorted(each.replicas) for each in seen)
            if not is_whole or seen != views[0]:
                return f"{topic} is {seen}"
        return None

    cluster.wait_until(missing, f"all replicas of {topic} in sync")


def _sorted(seen: PartitionView) -> PartitionView:
    return PartitionView(seen.leader, seen.replicas, sorted(seen.isr), seen.error)


def reassign(node: ClusterNode, topic: str, **replicas: list[int] | None) -> list[ErrorCode]:
    """Reassign partitions: `p0=[2, 3]` moves partition 0, `p0=None` cancels its reassignment."""
    return reassign_all(node, topic, {int(name[1:]): ids for name, ids in replicas.items()})


def reassign_all(
    node: ClusterNode, topic: str, replicas: Mapping[int, list[int] | None], version: int = 1
) -> list[ErrorCode]:
    wanted = [ReassignablePartition(partition_index=index, replicas=ids) for index, ids in replicas.items()]
    request = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name=topic, partitions=wanted)])
    with RawClient(node.bootstrap) as client:
        response = client.request(request, version, AlterPartitionReassignmentsResponse)
    assert response.error_code == ErrorCode.NONE, response
    return [ErrorCode(each.error_code) for each in response.responses[0].partitions]


def list_reassignments(node: ClusterNode) -> dict[tuple[str, int], OngoingPartitionReassignment]:
    with RawClient(node.bootstrap) as client:
        response = client.request(ListPartitionReassignmentsRequest(), 0, ListPartitionReassignmentsResponse)
    assert response.error_code == ErrorCode.NONE, response
    return {(topic.name, each.partition_index): each for topic in response.topics for each in topic.partitions}


def wait_until_reassigned(cluster: Cluster) -> None:
    def missing() -> str | None:
        moving = {node.node_id: list_reassignments(node) for node in cluster.live_nodes}
        return f"under way: {moving}" if any(moving.values()) else None

    cluster.wait_until(missing, "no reassignment under way")


def elect_leaders(
    node: ClusterNode, *partitions: tuple[str, int], unclean: bool = False, version: int = 2
) -> dict[tuple[str, int], ErrorCode]:
    """Elect leaders of the given partitions, or of all."""
    wanted = [TopicPartitions(topic=topic, partitions=[index]) for topic, index in partitions]
    request = ElectLeadersRequest(election_type=int(unclean), topic_partitions=wanted or None)
    with RawClient(node.bootstrap) as client:
        response = client.request(request, version, ElectLeadersResponse)
    assert response.error_code == ErrorCode.NONE, response
    return {
        (topic.topic, each.partition_id): ErrorCode(each.error_code)
        for topic in response.replica_election_results
        for each in topic.partition_result
    }

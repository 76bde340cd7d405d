"""Nodes, the Raft quorum and the feature level of a cluster: describe and alter them.

`describe_cluster`, `describe_quorum` and the feature levels use Kafka's own APIs, which older versions and other
brokers support too.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Any, Final, NamedTuple

import msgspec

import chronik
from chronik.client.cluster import ClusterClient, raise_for_code
from chronik.client.connection import BrokerConnection
from chronik.planning.views import PlannedNode
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.protocol.messages.alter_nodes import AlterNodesRequest, AlterNodesResponse, NodeToAlter
from chronik.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from chronik.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from chronik.protocol.messages.describe_health import DescribeHealthRequest, DescribeHealthResponse
from chronik.protocol.messages.describe_nodes import DescribedNode, DescribeNodesRequest, DescribeNodesResponse
from chronik.protocol.messages.describe_quorum import (
    DescribeQuorumPartition,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    DescribeQuorumTopic,
    QuorumPartitionData,
)
from chronik.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest, UpdateFeaturesResponse

ONLINE_STATUSES: Final = ("online", "maintenance")
"""Statuses of cluster nodes whose heartbeats reach the controller."""

METADATA_TOPIC: Final = "__cluster_metadata"
"""Topic name that stands for the metadata log in Kafka's protocol."""

FEATURE_NAME = "chronik.version"
FIRST_LEVEL = 1
"""Feature level that is assumed for cluster nodes that do not report one."""


class AlterNodesAction(IntEnum):
    """The actions of AlterNodes, with their protocol values."""

    ADD = 0
    REMOVE = 1
    PROMOTE = 2
    DEMOTE = 3
    DRAIN = 4
    UNDRAIN = 5


class AlterNodesChange(NamedTuple):
    """A change of one node in an AlterNodes request."""

    action: AlterNodesAction
    node_id: int
    host: str | None = None
    port: int = 0
    """Port of the peer address of an added node. Together with `host`, it is set only for ADD."""


def describe_nodes(cluster: ClusterClient) -> DescribeNodesResponse:
    """Return the desired and actual state of all nodes, sorted by id.

    Raises:
        ClientError: If the broker is not Chronik, or is too old.
        KafkaError: If no node knows the state at the moment.
    """

    def send() -> DescribeNodesResponse:
        response = cluster.any_broker().request(DescribeNodesRequest(), DescribeNodesResponse)
        raise_for_code(response.error_code, "nodes", response.error_message)
        return response

    response = cluster.retry(send)
    response.nodes.sort(key=lambda node: node.node_id)
    return response


def describe_health(cluster: ClusterClient) -> dict[str, Any]:
    """Return the problems of the cluster as a JSON object: see `HealthReport.to_json`.

    Raises:
        ClientError: If the broker is not Chronik, or is too old.
        KafkaError: If the caller may not describe the cluster.
    """

    def send() -> DescribeHealthResponse:
        response = cluster.any_broker().request(DescribeHealthRequest(), DescribeHealthResponse)
        raise_for_code(response.error_code, "health", response.error_message)
        return response

    return msgspec.json.decode(cluster.retry(send).health, type=dict[str, Any])


def alter_nodes(cluster: ClusterClient, changes: Sequence[AlterNodesChange]) -> None:
    """Apply node changes in order. Stop at the first rejected change and raise its KafkaError.

    Returns once the changes are committed; use `describe_nodes` to see when they have taken effect.
    """
    wanted = [NodeToAlter(node_id=each.node_id, action=each.action, host=each.host, port=each.port) for each in changes]
    request = AlterNodesRequest(changes=wanted, timeout_ms=int(cluster.timeout_s * 1000))

    def send() -> AlterNodesResponse:
        response = cluster.any_broker().request(request, AlterNodesResponse)
        raise_for_code(response.error_code, "nodes", response.error_message)
        for result in response.results:
            raise_for_code(result.error_code, f"node {result.node_id}", result.error_message)
        return response

    cluster.retry(send)


def to_planned_node(node: DescribedNode) -> PlannedNode:
    """Convert a node of a DescribeNodes response to the type that is used to plan reassignments."""
    return PlannedNode(
        node.node_id,
        node.rack,
        is_online=node.status in ONLINE_STATUSES,
        is_draining=node.draining,
        is_member=node.is_member,
        is_voter=node.is_voter,
        should_vote=node.meant_to_vote,
    )


def describe_cluster(connection: BrokerConnection) -> DescribeClusterResponse:
    """Return a broker's DescribeCluster response, including fenced brokers.

    Raise ClientError or KafkaError on failure.
    """
    request = DescribeClusterRequest(include_fenced_brokers=True)
    response = connection.request(request, DescribeClusterResponse)
    raise_for_code(response.error_code, "cluster", response.error_message)
    response.brokers.sort(key=lambda broker: broker.broker_id)
    return response


def describe_quorum(connection: BrokerConnection) -> QuorumPartitionData:
    """Return the state of the Raft quorum. Chronik nodes forward the request to the leader.

    Raises:
        ClientError: If the request fails.
        KafkaError: If the quorum has no known leader at the moment.
    """
    topic_request = DescribeQuorumTopic(
        topic_name=METADATA_TOPIC, partitions=[DescribeQuorumPartition(partition_index=0)]
    )
    response = connection.request(DescribeQuorumRequest(topics=[topic_request]), DescribeQuorumResponse)
    raise_for_code(response.error_code, "quorum", response.error_message)
    results = [result for topic in response.topics for result in topic.partitions]
    if not results:
        raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, "quorum: the response contains no partition")
    raise_for_code(results[0].error_code, "quorum", results[0].error_message)
    return results[0]


def describe_nodes_from_quorum(cluster: ClusterClient) -> list[PlannedNode]:
    """Return the nodes from the state of the Raft quorum, for clusters that do not support DescribeNodes.

    Raises:
        ClientError: If a request fails.
        KafkaError: If the quorum is unknown, because plans must not be made without it.
    """
    described = cluster.retry(lambda: describe_cluster(cluster.any_broker()))
    quorum = cluster.retry(lambda: describe_quorum(cluster.controller()))
    voters = {state.replica_id for state in quorum.current_voters}
    members = voters | {state.replica_id for state in quorum.observers}
    brokers = {broker.broker_id: broker for broker in described.brokers}
    return [
        PlannedNode(
            node_id,
            brokers[node_id].rack if node_id in brokers else None,
            is_online=node_id in brokers and not brokers[node_id].is_fenced,
            is_member=node_id in members,
            is_voter=node_id in voters,
            should_vote=node_id in voters,
        )
        for node_id in sorted({*brokers, *voters})
    ]


class FeatureLevels(NamedTuple):
    """The finalized feature level of a cluster and the levels that one broker supports."""

    lowest: int
    highest: int
    """The highest level that the broker supports."""
    level: int
    """The finalized level of the cluster."""


def describe_feature_levels(connection: BrokerConnection) -> FeatureLevels | None:
    """Request the broker's feature levels. Return None if the broker does not report any, such as a Kafka broker."""
    request = ApiVersionsRequest(client_software_name="chronik", client_software_version=chronik.__version__)
    response = connection.request(request, ApiVersionsResponse)
    supported = {each.name: (each.min_version, each.max_version) for each in response.supported_features}
    finalized = {each.name: each.max_version_level for each in response.finalized_features}
    return FeatureLevels(*supported[FEATURE_NAME], finalized[FEATURE_NAME]) if FEATURE_NAME in supported else None


def raise_feature_level(cluster: ClusterClient, level: int) -> None:
    """Increase the cluster's feature level. Raise KafkaError if the cluster rejects the level."""
    update = FeatureUpdateKey(feature=FEATURE_NAME, max_version_level=level)
    request = UpdateFeaturesRequest(feature_updates=[update], timeout_ms=int(cluster.timeout_s * 1000))
    response = cluster.retry(lambda: cluster.any_broker().request(request, UpdateFeaturesResponse))
    raise_for_code(response.error_code, "feature level not raised", response.error_message)

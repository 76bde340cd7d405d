"""The cluster and its Raft quorum, described with Kafka's own APIs. Works with older versions and other brokers too."""

from __future__ import annotations

from typing import Final

from chronik.client.cluster import ClusterClient, raise_for_code
from chronik.client.connection import BrokerConnection
from chronik.planning.views import PlannedNode
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from chronik.protocol.messages.describe_quorum import (
    DescribeQuorumPartition,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    DescribeQuorumTopic,
    QuorumPartitionData,
)

METADATA_TOPIC: Final = "__cluster_metadata"
"""Kafka's name of the metadata log."""


def describe_cluster(connection: BrokerConnection) -> DescribeClusterResponse:
    """Return the DescribeCluster response of a broker, including fenced brokers. Raises ClientError, KafkaError."""
    request = DescribeClusterRequest(include_fenced_brokers=True)
    response = connection.request(request, DescribeClusterResponse)
    raise_for_code(response.error_code, "cluster", response.error_message)
    response.brokers.sort(key=lambda broker: broker.broker_id)
    return response


def describe_quorum(connection: BrokerConnection) -> QuorumPartitionData:
    """Return the state of the Raft quorum. A Chronik node forwards the request to the leader.

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
    """Return the nodes as input for plans, for clusters without DescribeNodes.

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

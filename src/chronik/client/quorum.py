"""What brokers say about the cluster and its quorum by Kafka's own APIs: those of earlier versions, too, and others."""

from __future__ import annotations

from typing import Final

from chronik.client.cluster import Cluster, raise_for
from chronik.client.connection import Connection
from chronik.planning.views import NodeView
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
"""Kafka's name for the log that the quorum agrees on."""


def cluster_told_by(connection: Connection) -> DescribeClusterResponse:
    """Returns it with brokers that are fenced, too. Raises ClientError, KafkaError."""
    request = DescribeClusterRequest(include_fenced_brokers=True)
    response = connection.request(request, DescribeClusterResponse)
    raise_for(response.error_code, "the cluster", response.error_message)
    response.brokers.sort(key=lambda broker: broker.broker_id)
    return response


def quorum_told_by(connection: Connection) -> QuorumPartitionData:
    """Any node of Chronik's asks the leader. Raises ClientError, and KafkaError when nobody knows at the moment."""
    asked = DescribeQuorumTopic(topic_name=METADATA_TOPIC, partitions=[DescribeQuorumPartition(partition_index=0)])
    response = connection.request(DescribeQuorumRequest(topics=[asked]), DescribeQuorumResponse)
    raise_for(response.error_code, "the quorum", response.error_message)
    answers = [answer for topic in response.topics for answer in topic.partitions]
    if not answers:
        raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, "the quorum: nothing is told of it")
    raise_for(answers[0].error_code, "the quorum", answers[0].error_message)
    return answers[0]


def nodes_by_quorum(cluster: Cluster) -> list[NodeView]:
    """Returns nodes as plans see them, from a cluster that cannot tell what they are meant to be. Raises ClientError,
    KafkaError: a quorum that is not known is none that could be judged."""
    told = cluster.retrying(lambda: cluster_told_by(cluster.any_broker()))
    quorum = cluster.retrying(lambda: quorum_told_by(cluster.controller()))
    voters = {state.replica_id for state in quorum.current_voters}
    members = voters | {state.replica_id for state in quorum.observers}
    brokers = {broker.broker_id: broker for broker in told.brokers}
    return [
        NodeView(
            node_id,
            brokers[node_id].rack if node_id in brokers else None,
            is_online=node_id in brokers and not brokers[node_id].is_fenced,
            is_member=node_id in members,
            is_voter=node_id in voters,
            meant_to_vote=node_id in voters,
        )
        for node_id in sorted({*brokers, *voters})
    ]

"""Retries of cluster state that a broker does not know yet; stop plans need all voters and partitions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from chronik.client.cluster import ClusterClient
from chronik.client.cluster_view import describe_partitions
from chronik.client.nodes import describe_nodes_from_quorum
from chronik.protocol.apis import APIS
from chronik.protocol.codec import RequestHeader, encode_response
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.protocol.messages.describe_cluster import DescribeClusterBroker, DescribeClusterResponse
from chronik.protocol.messages.describe_configs import DescribeConfigsResponse, DescribeConfigsResult
from chronik.protocol.messages.describe_quorum import (
    DescribeQuorumResponse,
    QuorumPartitionData,
    QuorumReplicaState,
    QuorumTopicData,
)
from chronik.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsResponse
from chronik.protocol.messages.metadata import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic
from chronik.protocol.schema import Response
from tests.client.scripted_broker import scripted_broker

LONG_TIMEOUT_SECONDS, SHORT_TIMEOUT_SECONDS = 10.0, 0.3


def quorum_response(error: ErrorCode, *voter_ids: int) -> DescribeQuorumResponse:
    states = [QuorumReplicaState(replica_id=voter) for voter in voter_ids]
    partition_data = QuorumPartitionData(partition_index=0, error_code=error, error_message=None, current_voters=states)
    return DescribeQuorumResponse(
        topics=[QuorumTopicData(topic_name="__cluster_metadata", partitions=[partition_data])]
    )


def metadata_response(error: ErrorCode, *partitions: int) -> MetadataResponse:
    partition_list = [
        MetadataResponsePartition(partition_index=each, replica_nodes=[1], isr_nodes=[1]) for each in partitions
    ]
    return MetadataResponse(topics=[MetadataResponseTopic(name="orders", error_code=error, partitions=partition_list)])


class ScriptedResponses:
    """A broker that gives its responses in order, and repeats the last."""

    def __init__(self, *responses: Response) -> None:
        self._name = type(responses[0]).__name__.removesuffix("Response")
        self._responses, self._last = iter(responses), responses[-1]

    def __call__(self, header: RequestHeader) -> bytes:
        response = self._respond(APIS[header.api_key].name)
        return b"".join(encode_response(header.correlation_id, header.api_version, response))

    def _respond(self, api: str) -> Response:
        if api == self._name:
            return next(self._responses, self._last)
        match api:
            case "DescribeCluster":
                script = DescribeClusterBroker(broker_id=1, host="localhost", port=9092)
                return DescribeClusterResponse(cluster_id="c", controller_id=-1, brokers=[script], error_message=None)
            case "DescribeConfigs":
                result = DescribeConfigsResult(resource_type=2, resource_name="orders", error_message=None)
                return DescribeConfigsResponse(results=[result])
            case "ListPartitionReassignments":
                return ListPartitionReassignmentsResponse(error_message=None)
            case _:
                return MetadataResponse(controller_id=-1)


@contextmanager
def connect(script: ScriptedResponses, timeout_s: float) -> Iterator[ClusterClient]:
    with scripted_broker(script) as address, ClusterClient(str(address), timeout_s=timeout_s) as cluster:
        yield cluster


def list_voters(cluster: ClusterClient) -> list[int]:
    return [node.id for node in describe_nodes_from_quorum(cluster) if node.is_voter]


def list_partition_indexes(cluster: ClusterClient) -> list[int]:
    return [partition.index for partition in describe_partitions(cluster)]


def test_voters_are_retried_until_known() -> None:
    script = ScriptedResponses(quorum_response(ErrorCode.LEADER_NOT_AVAILABLE), quorum_response(ErrorCode.NONE, 1, 2))
    with connect(script, LONG_TIMEOUT_SECONDS) as cluster:
        assert list_voters(cluster) == [1, 2]


def test_partitions_are_retried_until_known() -> None:
    """A node whose metadata is behind lists topics without partitions."""
    script = ScriptedResponses(
        metadata_response(ErrorCode.LEADER_NOT_AVAILABLE), metadata_response(ErrorCode.NONE, 0, 1)
    )
    with connect(script, LONG_TIMEOUT_SECONDS) as cluster:
        assert list_partition_indexes(cluster) == [0, 1]


@pytest.mark.parametrize(
    ("script", "query"),
    [
        (ScriptedResponses(quorum_response(ErrorCode.LEADER_NOT_AVAILABLE)), list_voters),
        (ScriptedResponses(metadata_response(ErrorCode.LEADER_NOT_AVAILABLE)), list_partition_indexes),
    ],
    ids=["voters", "partitions"],
)
def test_unknown_cluster_state_raises_after_timeout(
    script: ScriptedResponses, query: Callable[[ClusterClient], list[int]]
) -> None:
    with connect(script, SHORT_TIMEOUT_SECONDS) as cluster, pytest.raises(KafkaError) as raised:
        query(cluster)
    assert raised.value.code == ErrorCode.LEADER_NOT_AVAILABLE

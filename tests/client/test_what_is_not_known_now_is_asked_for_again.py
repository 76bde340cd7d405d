"""Whether a node may be stopped is decided by voters and partitions: never without them, because a broker did not know
them at the moment."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from chronik.client.cluster import Cluster
from chronik.client.cluster_views import view_partitions
from chronik.client.quorum import nodes_by_quorum
from chronik.protocol.apis import APIS
from chronik.protocol.codec import RequestHeader, encode_response
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.protocol.messages.describe_cluster import DescribeClusterBroker, DescribeClusterResponse
from chronik.protocol.messages.describe_configs import DescribeConfigsResponse, DescribeConfigsResult
from chronik.protocol.messages.describe_quorum import (
    DescribeQuorumResponse,
    QuorumPartitionData,
    QuorumTopicData,
    ReplicaState,
)
from chronik.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsResponse
from chronik.protocol.messages.metadata import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic
from chronik.protocol.schema import Response
from tests.client.scripted import scripted_broker

PATIENT_SECONDS, HASTY_SECONDS = 10.0, 0.3


def quorum(error: ErrorCode, *voters: int) -> DescribeQuorumResponse:
    states = [ReplicaState(replica_id=voter) for voter in voters]
    answer = QuorumPartitionData(partition_index=0, error_code=error, error_message=None, current_voters=states)
    return DescribeQuorumResponse(topics=[QuorumTopicData(topic_name="__cluster_metadata", partitions=[answer])])


def topics(error: ErrorCode, *partitions: int) -> MetadataResponse:
    told = [MetadataResponsePartition(partition_index=each, replica_nodes=[1], isr_nodes=[1]) for each in partitions]
    return MetadataResponse(topics=[MetadataResponseTopic(name="orders", error_code=error, partitions=told)])


class Broker:
    """Knows something after it was asked for it once."""

    def __init__(self, *answers: Response) -> None:
        self._name = type(answers[0]).__name__.removesuffix("Response")
        self._answers, self._last = iter(answers), answers[-1]

    def __call__(self, header: RequestHeader) -> bytes:
        response = self._answer(APIS[header.api_key].name)
        return b"".join(encode_response(header.correlation_id, header.api_version, response))

    def _answer(self, api: str) -> Response:
        if api == self._name:
            return next(self._answers, self._last)
        match api:
            case "DescribeCluster":
                broker = DescribeClusterBroker(broker_id=1, host="localhost", port=9092)
                return DescribeClusterResponse(cluster_id="c", controller_id=-1, brokers=[broker], error_message=None)
            case "DescribeConfigs":
                result = DescribeConfigsResult(resource_type=2, resource_name="orders", error_message=None)
                return DescribeConfigsResponse(results=[result])
            case "ListPartitionReassignments":
                return ListPartitionReassignmentsResponse(error_message=None)
            case _:
                return MetadataResponse(controller_id=-1)


@contextmanager
def asking(broker: Broker, timeout_s: float) -> Iterator[Cluster]:
    with scripted_broker(broker) as address, Cluster(str(address), timeout_s=timeout_s) as cluster:
        yield cluster


def voters(cluster: Cluster) -> list[int]:
    return [node.id for node in nodes_by_quorum(cluster) if node.is_voter]


def indexes(cluster: Cluster) -> list[int]:
    return [partition.index for partition in view_partitions(cluster)]


def test_voters_are_asked_for_until_somebody_knows_them() -> None:
    broker = Broker(quorum(ErrorCode.LEADER_NOT_AVAILABLE), quorum(ErrorCode.NONE, 1, 2))
    with asking(broker, PATIENT_SECONDS) as cluster:
        assert voters(cluster) == [1, 2]


def test_partitions_are_asked_for_until_somebody_knows_them() -> None:
    """A node that may be behind names its topics, and none of their partitions."""
    broker = Broker(topics(ErrorCode.LEADER_NOT_AVAILABLE), topics(ErrorCode.NONE, 0, 1))
    with asking(broker, PATIENT_SECONDS) as cluster:
        assert indexes(cluster) == [0, 1]


@pytest.mark.parametrize(
    ("broker", "look"),
    [
        (Broker(quorum(ErrorCode.LEADER_NOT_AVAILABLE)), voters),
        (Broker(topics(ErrorCode.LEADER_NOT_AVAILABLE)), indexes),
    ],
    ids=["voters", "partitions"],
)
def test_it_is_an_error_when_nobody_does(broker: Broker, look: Callable[[Cluster], list[int]]) -> None:
    with asking(broker, HASTY_SECONDS) as cluster, pytest.raises(KafkaError) as raised:
        look(cluster)
    assert raised.value.code == ErrorCode.LEADER_NOT_AVAILABLE

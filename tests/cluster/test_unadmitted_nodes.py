"""Clients that bootstrap from a node which is not admitted to the cluster yet switch to another node."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from aiokafka import AIOKafkaConsumer
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from kafka import KafkaConsumer

from chronik.admin.nodes import NodeAction
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from chronik.protocol.messages.describe_cluster import DescribeClusterRequest
from chronik.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from chronik.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from chronik.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from chronik.protocol.schema import Request
from chronik.testing.cluster import Cluster, ClusterNode
from chronik.testing.plugin import ClusterFactory
from tests.cluster import membership_helpers
from tests.cluster.partitions import create_topic
from tests.raw import RawClient

pytestmark = pytest.mark.xdist_group("cluster")

TOPIC = "topic"
CLIENT_SECONDS = 30.0
FAILS_SECONDS = 4.0


def topics_of_confluent(bootstrap: str, seconds: float = CLIENT_SECONDS) -> set[str]:
    listed = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0}).list_topics(timeout=seconds)
    assert len(listed.brokers) == 3
    return set(listed.topics)


def topics_of_kafka_python(bootstrap: str) -> set[str]:
    consumer = KafkaConsumer(bootstrap_servers=bootstrap.split(","))
    try:
        return set(consumer.topics())
    finally:
        consumer.close()


def topics_of_aiokafka(bootstrap: str) -> set[str]:
    async def ask() -> set[str]:
        consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap.split(","))
        await consumer.start()
        try:
            return set(await consumer.topics())
        finally:
            await consumer.stop()

    return asyncio.run(asyncio.wait_for(ask(), CLIENT_SECONDS))


CLIENTS: list[Callable[[str], set[str]]] = [topics_of_confluent, topics_of_kafka_python, topics_of_aiokafka]


def cluster_with_newcomer(factory: ClusterFactory) -> tuple[Cluster, ClusterNode]:
    cluster = factory()
    create_topic(cluster[1], TOPIC, [1, 2, 3])
    newcomer = cluster.add_node(4)
    newcomer.start()
    waits = "does not belong to cluster"
    cluster.wait_until(lambda: None if waits in newcomer.log else "not logged", "the new node to wait for admission")
    return cluster, newcomer


def test_clients_switch_to_admitted_node(chronik_cluster_factory: ClusterFactory) -> None:
    cluster, newcomer = cluster_with_newcomer(chronik_cluster_factory)
    bootstrap = f"{newcomer.bootstrap},{cluster[1].bootstrap}"
    for topics in CLIENTS:
        assert TOPIC in topics(bootstrap), topics.__name__


def test_client_of_unadmitted_node_gets_error_until_admission(
    chronik_cluster_factory: ClusterFactory,
) -> None:
    cluster, newcomer = cluster_with_newcomer(chronik_cluster_factory)
    with pytest.raises(KafkaException):
        topics_of_confluent(newcomer.bootstrap, FAILS_SECONDS)
    membership_helpers.change_node(cluster[1], 4, NodeAction.ADD, cluster.raft_address(4))
    cluster.wait_until_ready()
    assert TOPIC in topics_of_kafka_python(newcomer.bootstrap)


@pytest.mark.parametrize(
    ("request_", "version"),
    [
        (MetadataRequest(topics=None), 12),
        (MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)]), 1),
        (DescribeClusterRequest(), 1),
        (DescribeTopicPartitionsRequest(), 0),
    ],
    ids=["all topics", "one topic", "the cluster", "partitions"],
)
def test_unadmitted_node_disconnects_metadata_requests(
    chronik_cluster_factory: ClusterFactory, request_: Request, version: int
) -> None:
    _, newcomer = cluster_with_newcomer(chronik_cluster_factory)
    with RawClient(newcomer.bootstrap) as client:
        assert client.request(ApiVersionsRequest(), 0, ApiVersionsResponse).api_keys
        coordinator = client.request(FindCoordinatorRequest(key="group"), 2, FindCoordinatorResponse)
        assert coordinator.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        client.send(request_, version)
        assert client.wait_for_close()

"""Named listeners: responses contain the addresses of the client's own listener, and only brokers that have it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from chronik.config import Address
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from chronik.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsTopic,
)
from chronik.protocol.messages.fetch import FetchResponse
from chronik.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from chronik.protocol.messages.metadata import MetadataRequest, MetadataResponse
from chronik.protocol.messages.produce import ProduceResponse
from chronik.testing.cluster import Cluster, ClusterNode, NodeAddresses
from chronik.testing.ports import HOST, ReservedPorts
from tests.api import request_builders
from tests.api.test_configs import describe_configs
from tests.cluster.partitions import create_topic, wait_until_in_sync
from tests.raw import RawClient

pytestmark = pytest.mark.xdist_group("cluster")

DEADLINE_SECONDS = 60
OUTSIDE = (1, 2)
"""The nodes with a listener for external clients; node 3 has none."""
EVERYWHERE = {"everywhere-1": [1, 2, 3], "everywhere-2": [2, 1, 3]}
INSIDE_ONLY = {"inside": [3, 1, 2]}


class ListeningCluster(Cluster):
    """A cluster whose main listener is INTERNAL; `outside` has the addresses of the EXTERNAL listeners."""

    def _addresses(self, ids: Iterable[int]) -> dict[int, NodeAddresses]:
        self._more = ReservedPorts(len(OUTSIDE))
        self.outside = {node_id: Address(HOST, port) for node_id, port in zip(OUTSIDE, self._more.ports, strict=True)}
        return super()._addresses(ids)

    def _new_node(self, folder: Path, kafka: Address, http: Address, **config: Any) -> ClusterNode:
        outside = self.outside.get(config["node_id"])
        listeners = {"INTERNAL": kafka} | ({"EXTERNAL": outside} if outside is not None else {})
        broker = {
            "listeners": ",".join(f"{name}://{address}" for name, address in listeners.items()),
            "listener.security.protocol.map": "INTERNAL:PLAINTEXT,EXTERNAL:PLAINTEXT",
            "inter.broker.listener.name": "INTERNAL",
        }
        return ClusterNode(folder, kafka, http, broker=broker, **config)

    def close(self) -> None:
        super().close()
        self._more.release()


@pytest.fixture(scope="module")
def cluster() -> Iterator[ListeningCluster]:
    with ListeningCluster(3) as cluster:
        assert isinstance(cluster, ListeningCluster)
        for name, replicas in {**EVERYWHERE, **INSIDE_ONLY}.items():
            create_topic(cluster[1], name, replicas)
            wait_until_in_sync(cluster, name)
        yield cluster


@pytest.fixture
def inside(cluster: ListeningCluster) -> Iterator[RawClient]:
    with RawClient(cluster[1].bootstrap) as client:
        yield client


@pytest.fixture
def outside(cluster: ListeningCluster) -> Iterator[RawClient]:
    with RawClient(str(cluster.outside[1])) as client:
        yield client


def all_inside(cluster: ListeningCluster) -> dict[int, Address]:
    return {node_id: node.kafka for node_id, node in cluster.nodes.items()}


def listed(client: RawClient, version: int = 12) -> dict[int, Address]:
    answer = client.request(MetadataRequest(topics=[]), version, MetadataResponse)
    return {broker.node_id: Address(broker.host, broker.port) for broker in answer.brokers}


def test_metadata_lists_broker_addresses_of_listener(
    cluster: ListeningCluster, inside: RawClient, outside: RawClient
) -> None:
    for version in (1, 5, 6, 12):
        assert listed(inside, version) == all_inside(cluster)
        assert listed(outside, version) == cluster.outside


def test_leader_without_listener_is_not_reported(inside: RawClient, outside: RawClient) -> None:
    for _ in range(2):  # from the encoder and from its cache
        for version, code in ((5, ErrorCode.LEADER_NOT_AVAILABLE), (6, ErrorCode.LISTENER_NOT_FOUND), (12, 72)):
            (partition,) = request_builders.describe_topic(outside, "inside", version=version).partitions
            assert (partition.error_code, partition.leader_id) == (code, -1)
            assert partition.offline_replicas == [3]
            (partition,) = request_builders.describe_topic(inside, "inside", version=version).partitions
            assert (partition.error_code, partition.leader_id) == (ErrorCode.NONE, 3)
            assert partition.offline_replicas == []
        (partition,) = request_builders.describe_topic(outside, "everywhere-2").partitions
        assert (partition.error_code, partition.leader_id) == (ErrorCode.NONE, 2)


def test_describe_topic_partitions_uses_listener_brokers(inside: RawClient, outside: RawClient) -> None:
    request = DescribeTopicPartitionsRequest(topics=[DescribeTopicPartitionsTopic(name="inside")])
    (topic,) = outside.request(request, 0, DescribeTopicPartitionsResponse).topics
    (partition,) = topic.partitions
    assert (partition.error_code, partition.leader_id) == (ErrorCode.LISTENER_NOT_FOUND, -1)
    assert partition.offline_replicas == [3]
    (topic,) = inside.request(request, 0, DescribeTopicPartitionsResponse).topics
    assert (topic.partitions[0].error_code, topic.partitions[0].leader_id) == (ErrorCode.NONE, 3)


def test_describe_cluster_uses_listener_addresses(
    cluster: ListeningCluster, inside: RawClient, outside: RawClient
) -> None:
    """The reported controller is reachable, whichever node is the Raft leader."""
    for client, expected in ((inside, all_inside(cluster)), (outside, cluster.outside)):
        answer = client.request(DescribeClusterRequest(), 1, DescribeClusterResponse)
        assert {each.broker_id: Address(each.host, each.port) for each in answer.brokers} == expected
        assert answer.controller_id in expected
        metadata = client.request(MetadataRequest(topics=[]), 12, MetadataResponse)
        assert metadata.controller_id in expected


def test_find_coordinator_uses_listener_addresses(
    cluster: ListeningCluster, inside: RawClient, outside: RawClient
) -> None:
    keys = [f"group-{number}" for number in range(40)]
    request = FindCoordinatorRequest(key_type=0, coordinator_keys=keys)
    found = {each.key: each for each in inside.request(request, 4, FindCoordinatorResponse).coordinators}
    assert {each.node_id for each in found.values()} == {1, 2, 3}
    assert all(Address(each.host, each.port) == cluster[each.node_id].kafka for each in found.values())
    for each in outside.request(request, 4, FindCoordinatorResponse).coordinators:
        if found[each.key].node_id in OUTSIDE:
            assert Address(each.host, each.port) == cluster.outside[each.node_id]
        else:
            assert (each.error_code, each.node_id) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)


@pytest.mark.parametrize(("topic", "is_there"), [("everywhere-2", True), ("inside", False)])
def test_not_leader_response_contains_listener_address(
    cluster: ListeningCluster, outside: RawClient, topic: str, is_there: bool
) -> None:
    topic_id = request_builders.describe_topic(outside, topic).topic_id
    expected = {2: cluster.outside[2]} if is_there else {}
    produced = outside.request(
        request_builders.produce_request(topic_id, request_builders.batch(b"x")), 13, ProduceResponse
    )
    (answer,) = produced.responses[0].partition_responses
    assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert answer.current_leader.leader_id == (2 if is_there else 3)
    assert {each.node_id: Address(each.host, each.port) for each in produced.node_endpoints} == expected
    fetched = outside.request(request_builders.fetch_request((topic_id, 0, 0)), 16, FetchResponse)
    (data,) = fetched.responses[0].partitions
    assert data.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert {each.node_id: Address(each.host, each.port) for each in fetched.node_endpoints} == expected


def test_broker_configs_contain_listeners(cluster: ListeningCluster, outside: RawClient) -> None:
    both = f"INTERNAL://{cluster[1].kafka},EXTERNAL://{cluster.outside[1]}"
    configs = describe_configs(outside, request_builders.BROKER, "1", [])
    assert configs["listeners"].value == both
    assert configs["advertised.listeners"].value == both
    assert configs["listener.security.protocol.map"].value == "INTERNAL:PLAINTEXT,EXTERNAL:PLAINTEXT"
    assert configs["inter.broker.listener.name"].value == "INTERNAL"
    other = describe_configs(outside, request_builders.BROKER, "3", ["advertised.listeners"])
    assert other["advertised.listeners"].value == f"INTERNAL://{cluster[3].kafka}"


def test_every_node_knows_all_listeners(cluster: ListeningCluster) -> None:
    for node in cluster.nodes.values():
        brokers = {broker["id"]: broker["listeners"] for broker in node.status()["brokers"]}
        assert brokers[3] == {"INTERNAL": str(cluster[3].kafka)}
        assert brokers[1] == {"INTERNAL": str(cluster[1].kafka), "EXTERNAL": str(cluster.outside[1])}


def test_external_client_produces_and_consumes_through_listener(cluster: ListeningCluster) -> None:
    group = "outside"
    with RawClient(cluster[1].bootstrap) as client:
        request = FindCoordinatorRequest(key_type=0, coordinator_keys=[f"outside-{number}" for number in range(40)])
        found = client.request(request, 4, FindCoordinatorResponse).coordinators
        group = next(each.key for each in found if each.node_id in OUTSIDE)
    servers = {"bootstrap.servers": str(cluster.outside[1])}
    producer = Producer(servers | {"acks": "all", "enable.idempotence": True})
    for topic in EVERYWHERE:
        producer.produce(topic, topic.encode())
    assert producer.flush(DEADLINE_SECONDS) == 0
    consumer = Consumer(servers | {"group.id": group, "auto.offset.reset": "earliest"})
    try:
        consumer.subscribe(list(EVERYWHERE))
        read: set[bytes | None] = set()
        while len(read) < len(EVERYWHERE):
            message = consumer.poll(DEADLINE_SECONDS)
            assert message is not None
            assert message.error() is None, message.error()
            read.add(message.value())
        assert read == {topic.encode() for topic in EVERYWHERE}
    finally:
        consumer.close()

"""Metadata of a fenced or restarted node: topics that exist are never reported as missing."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from contextlib import closing

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition

from chronik.client.errors import ClientError
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from chronik.testing.cluster import Cluster, ClusterNode
from chronik.testing.plugin import ClusterFactory
from tests.cluster import replication_helpers
from tests.cluster.partitions import create_topic, wait_until_in_sync
from tests.raw import RawClient

pytestmark = pytest.mark.xdist_group("cluster")

TOPIC = "topic"
PARTITIONS = [[1, 2, 3]] * 3
"""Node 1 leads all partitions: librdkafka sends requests to no other node while it needs no other connection."""

REFRESH_MS = 100
FENCED_SECONDS = 5.0
"""Dozens of refreshes, some of which go to the fenced node."""

DEADLINE_SECONDS = 60.0

RESTARTS = 2
ANSWERS = 5
PAUSE_SECONDS = 0.001


class Subscriber:
    """A consumer that refreshes its metadata ten times a second and records errors and revoked partitions."""

    def __init__(self, bootstrap: str) -> None:
        self.assigned: set[int] = set()
        self.revoked: list[int] = []
        self.errors: list[KafkaError] = []
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "group",
                "topic.metadata.refresh.interval.ms": REFRESH_MS,
                "topic.metadata.propagation.max.ms": 0,
                "log_level": 0,
            }
        )
        self._consumer.subscribe([TOPIC], on_assign=self._on_assign, on_revoke=self._on_revoke)

    def _on_assign(self, _: Consumer, partitions: Iterable[TopicPartition]) -> None:
        self.assigned |= {each.partition for each in partitions}

    def _on_revoke(self, _: Consumer, partitions: Iterable[TopicPartition]) -> None:
        self.revoked += [each.partition for each in partitions]

    def poll(self) -> None:
        message = self._consumer.poll(0.05)
        error = message.error() if message is not None else None
        if error is not None:
            self.errors.append(error)

    @property
    def missing_topics(self) -> list[KafkaError]:
        return [error for error in self.errors if error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART]

    def close(self) -> None:
        self._consumer.close()


def metadata_requests(node: ClusterNode) -> int:
    """Count the Metadata requests that librdkafka has sent to the node, by its debug log."""
    return node.log.count("client_id=rdkafka api=Metadata")


def wait_until_fenced(cluster: Cluster, node: ClusterNode) -> None:
    cluster.wait_until(lambda: None if node.status()["fenced"] else "not yet", f"node {node.node_id} is fenced")


def wait_until_assigned(subscriber: Subscriber) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while len(subscriber.assigned) < len(PARTITIONS):
        subscriber.poll()
        assert time.monotonic() < deadline, f"no partitions were assigned; errors: {subscriber.errors}"


def cluster_with_topic(factory: ClusterFactory) -> Cluster:
    cluster = factory(links=True, log_level="debug")
    create_topic(cluster[1], TOPIC, *PARTITIONS)
    wait_until_in_sync(cluster, TOPIC)
    return cluster


def test_subscriber_keeps_topic_while_node_is_fenced(chronik_cluster_factory: ClusterFactory) -> None:
    cluster = cluster_with_topic(chronik_cluster_factory)
    subscriber = Subscriber(cluster[1].bootstrap)
    try:
        wait_until_assigned(subscriber)
        asked_before = metadata_requests(cluster[1])
        cluster.isolate(1)
        while not cluster[1].status()["fenced"]:
            subscriber.poll()
        until = time.monotonic() + FENCED_SECONDS
        while time.monotonic() < until:
            subscriber.poll()
        asked = metadata_requests(cluster[1]) - asked_before
        cluster.restore_links()
    finally:
        subscriber.close()
    assert asked > 0, "the fenced node got no requests"
    assert subscriber.missing_topics == []


def test_subscriber_starting_at_fenced_node_finds_topic(chronik_cluster_factory: ClusterFactory) -> None:
    cluster = cluster_with_topic(chronik_cluster_factory)
    cluster.isolate(1)
    wait_until_fenced(cluster, cluster[1])
    subscriber = Subscriber(cluster[1].bootstrap)
    try:
        wait_until_assigned(subscriber)
    finally:
        subscriber.close()
        cluster.restore_links()
    assert metadata_requests(cluster[1]) > 0
    assert subscriber.missing_topics == []


@pytest.mark.parametrize("version", [1, 9, 12])
def test_fenced_node_lists_partitions_without_leaders(chronik_cluster_factory: ClusterFactory, version: int) -> None:
    cluster = cluster_with_topic(chronik_cluster_factory)
    cluster.isolate(1)
    wait_until_fenced(cluster, cluster[1])
    with RawClient(cluster[1].bootstrap) as client:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)])
        response = client.request(request, version, MetadataResponse)
    cluster.restore_links()
    (topic,) = response.topics
    assert topic.error_code == ErrorCode.NONE
    assert [(each.partition_index, each.leader_id, each.error_code) for each in topic.partitions] == [
        (index, -1, ErrorCode.LEADER_NOT_AVAILABLE) for index in range(len(PARTITIONS))
    ]
    assert [each.replica_nodes for each in topic.partitions] == PARTITIONS
    assert [broker.node_id for broker in response.brokers] == [1, 2, 3]


class FirstAnswers:
    """Requests the topic before the port is open, and records the first responses."""

    def __init__(self, node: ClusterNode) -> None:
        self._node = node
        self.error_codes: list[ErrorCode] = []
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        deadline = time.monotonic() + replication_helpers.DEADLINE_SECONDS
        while len(self.error_codes) < ANSWERS and time.monotonic() < deadline:
            try:
                self._ask()
            except (OSError, ClientError):
                time.sleep(PAUSE_SECONDS)

    def _ask(self) -> None:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)], allow_auto_topic_creation=False)
        with RawClient(self._node.bootstrap) as client:
            while len(self.error_codes) < ANSWERS:
                answer = client.request(request, 12, MetadataResponse)
                self.error_codes.append(ErrorCode(answer.topics[0].error_code))

    def close(self) -> None:
        self._thread.join()


def test_restarted_node_never_reports_existing_topic_as_unknown(chronik_cluster_factory: ClusterFactory) -> None:
    cluster = chronik_cluster_factory()
    replication_helpers.create_topic(cluster, TOPIC, 1)
    for _ in range(RESTARTS):
        for node in cluster.nodes.values():
            node.stop()
            with closing(FirstAnswers(node)) as answers:
                node.start()
            assert len(answers.error_codes) == ANSWERS
            assert ErrorCode.UNKNOWN_TOPIC_OR_PARTITION not in answers.error_codes
        cluster.wait_until_ready()

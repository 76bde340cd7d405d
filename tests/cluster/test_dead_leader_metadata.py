"""Between a leader's death and the next election, clients are told to retry and do not get the dead node's address.

The Java admin client sends a call to the broker that Metadata named, or to none: when the dead broker is fenced and no
longer listed, the call waits for it until its timeout (KAFKA-20673).
"""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from chronik.console.http_client import http_get
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsTopic,
)
from chronik.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse, FoundCoordinator
from chronik.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from chronik.testing.cluster import REQUEST_SECONDS_MAX, Cluster, ClusterNode
from chronik.testing.plugin import ClusterFactory
from tests.clients.client_catalog import CLIENTS
from tests.clients.client_process import ClientProcess, wait_for
from tests.raw import RawClient

from .partitions import create_topic, wait_until_in_sync

pytestmark = pytest.mark.xdist_group("cluster")

LONG_SESSION_MS = 60_000
WAITED_FOR_SECONDS = 20
"""Less than the 30 s (`default.api.timeout.ms` of the driver) of a call that waits for the dead broker."""

LED_BY_2 = [2, 3, 1]
LED_BY_1 = [1, 2, 3]


def wait_until_equal(cluster: Cluster, expected: object, state: Callable[[], object]) -> None:
    def missing() -> str | None:
        found = state()
        return None if found == expected else f"it is {found}"

    cluster.wait_until(missing, str(expected))


def with_topics(cluster: Cluster) -> Cluster:
    create_topic(cluster[1], "moves", LED_BY_2)
    create_topic(cluster[1], "stays", LED_BY_1)
    wait_until_in_sync(cluster, "moves")
    wait_until_in_sync(cluster, "stays")
    return cluster


def leave_node_1_alone(cluster: Cluster) -> ClusterNode:
    """Stop the other nodes: without a majority, no broker can be fenced and there is no leader."""
    for node_id in (2, 3):
        cluster[node_id].kill()
    return cluster[1]


TopicView = tuple[ErrorCode, list[tuple[int, ErrorCode]]]
"""The error of a topic, and the leader and error of each partition."""

NOT_CONFIRMED: TopicView = (ErrorCode.NONE, [(-1, ErrorCode.LEADER_NOT_AVAILABLE)])
PAGE_NOT_CONFIRMED: TopicView = (ErrorCode.LEADER_NOT_AVAILABLE, [])


def read_metadata(node: ClusterNode, name: str) -> TopicView:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
    with RawClient(node.bootstrap) as client:
        topic = client.request(request, 12, MetadataResponse).topics[0]
    leaders = [(each.leader_id, ErrorCode(each.error_code)) for each in topic.partitions]
    return ErrorCode(topic.error_code), leaders


def read_topic_partitions(node: ClusterNode, name: str) -> TopicView:
    request = DescribeTopicPartitionsRequest(topics=[DescribeTopicPartitionsTopic(name=name)])
    with RawClient(node.bootstrap) as client:
        topic = client.request(request, 0, DescribeTopicPartitionsResponse).topics[0]
    leaders = [(each.leader_id, ErrorCode(each.error_code)) for each in topic.partitions]
    return ErrorCode(topic.error_code), leaders


def coordinator(node: ClusterNode, group: str) -> FoundCoordinator:
    with RawClient(node.bootstrap) as client:
        request = FindCoordinatorRequest(key_type=0, coordinator_keys=[group])
        return client.request(request, 4, FindCoordinatorResponse).coordinators[0]


def metadata_requests(node: ClusterNode) -> int:
    _, body = http_get(node.http, "/metrics", REQUEST_SECONDS_MAX)
    (found,) = re.findall(r'^chronik_requests_total{api="Metadata"} (\d+)$', body.decode(), re.MULTILINE)
    return int(found)


def test_metadata_has_no_leader_for_dead_leaders_partitions(
    chronik_cluster_factory: ClusterFactory,
) -> None:
    cluster = with_topics(chronik_cluster_factory(broker_session_ms=LONG_SESSION_MS))
    node = leave_node_1_alone(cluster)
    for topic in ("moves", "stays"):
        wait_until_equal(cluster, NOT_CONFIRMED, lambda topic=topic: read_metadata(node, topic))  # type: ignore[misc]
        assert read_topic_partitions(node, topic) == PAGE_NOT_CONFIRMED
    cluster.start()
    wait_until_in_sync(cluster, "moves")
    assert read_metadata(node, "moves") == read_topic_partitions(node, "moves")


def test_find_coordinator_does_not_return_dead_node(
    chronik_cluster_factory: ClusterFactory,
) -> None:
    cluster = with_topics(chronik_cluster_factory(broker_session_ms=LONG_SESSION_MS))
    names = (f"group-{number}" for number in itertools.count())
    group = next(name for name in names if coordinator(cluster[1], name).node_id == 2)
    node = leave_node_1_alone(cluster)
    wait_until_equal(cluster, ErrorCode.COORDINATOR_NOT_AVAILABLE, lambda: coordinator(node, group).error_code)
    assert coordinator(node, group).node_id == -1
    cluster.start()
    wait_until_equal(cluster, ErrorCode.NONE, lambda: coordinator(node, group).error_code)


@pytest.mark.parametrize("name", ["java-3.9", "java-4"])
def test_java_admin_client_lists_offsets_after_leader_election(
    chronik_cluster_factory: ClusterFactory, name: str
) -> None:
    if (reason := CLIENTS[name].missing_reason()) is not None:
        pytest.skip(reason)
    cluster = with_topics(chronik_cluster_factory(broker_session_ms=LONG_SESSION_MS))
    client = ClientProcess(CLIENTS[name], cluster[1].bootstrap)
    try:
        node = leave_node_1_alone(cluster)
        wait_until_equal(cluster, NOT_CONFIRMED, lambda: read_metadata(node, "moves"))
        before = metadata_requests(node)
        with ThreadPoolExecutor(1) as thread:
            listed = thread.submit(client.admin, "list_offsets", topic="moves", partition=0, spec="latest")
            wait_for("requests for the leader", lambda: metadata_requests(node) >= before + 4)
            cluster[3].start()
            assert listed.result()["offset"] == 0
    finally:
        client.close()


def test_java_admin_client_does_not_wait_for_dying_leader(
    chronik_cluster_factory: ClusterFactory,
) -> None:
    """The client knows the leader from an earlier call. (Version 3.9 is excluded: a response in the milliseconds before
    the death is noticed makes it wait for the dead broker.)
    """
    java = CLIENTS["java-4"]
    if (reason := java.missing_reason()) is not None:
        pytest.skip(reason)
    cluster = with_topics(chronik_cluster_factory())
    client = ClientProcess(java, cluster[1].bootstrap)
    try:
        assert client.admin("list_offsets", topic="moves", partition=0, spec="latest")["offset"] == 0
        cluster[2].kill()
        began = time.monotonic()
        assert client.admin("list_offsets", topic="moves", partition=0, spec="latest")["offset"] == 0
        assert time.monotonic() - began < WAITED_FOR_SECONDS
    finally:
        client.close()

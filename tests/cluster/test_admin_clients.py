"""Admin clients that bootstrap from the leader and from each follower of a cluster.

After a response of one node, every node must list the change: each step is checked against all three nodes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from chronik.testing.cluster import Cluster, ClusterNode
from tests.clients.client_catalog import CLIENTS
from tests.clients.client_process import ClientProcess, unique_name, wait_for
from tests.clients.drivers.wire import Record
from tests.cluster.group_helpers import ClientPool, offsets_held_by, wait_until_held_everywhere
from tests.cluster.topic_views import leader_then_followers, metadata_of, wait_until_all_have, wait_until_deleted
from tests.raw import RawClient
from tests.run_size import IS_LONG_RUN

pytestmark = pytest.mark.xdist_group("cluster")

ADMINS = ("kafka-python", "kafka-python-2.6.0", "confluent", "kafkajs", "java-3.9", "java-4")
OLDEST = ("kafka-python-0.10.1",)
"""Clients pinned to the first protocol version with CreateTopics and DeleteTopics."""
PRODUCERS = (*ADMINS, *OLDEST, "kafka-python-0.10.0", "aiokafka", "kcat")
NODES = ("leader", "follower", "other-follower")
REPLACES_CONFIGS = ("kafkajs",)
"""Clients that cannot change a single config of a resource."""
SETS_OFFSETS_SLOWLY = ("kafkajs",)
"""Clients that join the group to set its offsets and then wait seconds for a fetch: in `make long` only."""
DAY_MS = "86400000"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(3) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def drivers(cluster: Cluster) -> Iterator[ClientPool]:
    with ClientPool(cluster) as drivers:
        yield drivers


@pytest.fixture(params=NODES)
def node(request: pytest.FixtureRequest, cluster: Cluster) -> ClusterNode:
    return leader_then_followers(cluster)[NODES.index(request.param)]


@pytest.fixture
def client(request: pytest.FixtureRequest, drivers: ClientPool, node: ClusterNode) -> Iterator[ClientProcess]:
    """A client whose commands bootstrap from this node alone."""
    if (reason := CLIENTS[request.param].missing_reason()) is not None:
        pytest.skip(reason)
    with drivers.borrow(request.param) as client:
        client.set_bootstrap(node.bootstrap)
        yield client


def create(client: ClientProcess, cluster: Cluster, **fields: Any) -> str:
    """Create a topic with three replicas, wait until every node lists it, and return its name."""
    name = unique_name(client.name)
    client.admin("create_topics", topics={name: {"replication_factor": 3, **fields}})
    wait_until_all_have(cluster, name)
    return name


def partitions_by_node(cluster: Cluster, topic: str) -> list[int]:
    """Return how many partitions of the topic each node lists."""
    return [
        len(each.partitions) for node in cluster.live_nodes for each in metadata_of(node).topics if each.name == topic
    ]


@pytest.mark.parametrize("client", ADMINS, indirect=True)
def test_topic_through_any_node_is_created_listed_described_and_deleted(
    client: ClientProcess, cluster: Cluster
) -> None:
    topic = create(client, cluster, partitions=3)
    assert topic in client.admin("list_topics")
    partitions = client.admin("describe_topics", topics=[topic])[topic]
    assert [each["partition"] for each in partitions] == [0, 1, 2]
    assert [sorted(each["replicas"]) for each in partitions] == [[1, 2, 3]] * 3
    assert {each["leader"] for each in partitions} <= {1, 2, 3}
    client.admin("delete_topics", topics=[topic])
    wait_until_deleted(cluster, topic)
    assert topic not in client.admin("list_topics")


@pytest.mark.parametrize("client", OLDEST, indirect=True)
def test_topic_through_any_node_is_created_and_deleted_by_oldest_version(
    client: ClientProcess, cluster: Cluster
) -> None:
    topic = create(client, cluster, partitions=3)
    assert partitions_by_node(cluster, topic) == [3, 3, 3]
    client.admin("delete_topics", topics=[topic])
    wait_until_deleted(cluster, topic)


@pytest.mark.parametrize("client", ADMINS, indirect=True)
def test_partitions_through_any_node_are_added_on_every_node(client: ClientProcess, cluster: Cluster) -> None:
    topic = create(client, cluster, partitions=1)
    client.admin("create_partitions", topic=topic, total=4)
    wait_for("four partitions on every node", lambda: partitions_by_node(cluster, topic) == [4, 4, 4])
    assert len(client.admin("describe_topics", topics=[topic])[topic]) == 4


@pytest.mark.parametrize("client", ADMINS, indirect=True)
def test_configs_altered_through_any_node_are_described_by_every_node(client: ClientProcess, cluster: Cluster) -> None:
    topic = create(client, cluster, partitions=1, configs={"segment.bytes": "2097152"})
    if client.name in REPLACES_CONFIGS:
        configs = {"segment.bytes": "2097152", "retention.ms": DAY_MS}
        client.admin("alter_configs_whole", kind="topic", name=topic, configs=configs)
    else:
        changes = [("retention.ms", "set", DAY_MS)]
        client.admin("alter_configs_incrementally", kind="topic", name=topic, changes=changes)

    def has_configs() -> bool:
        described = client.admin("describe_configs", kind="topic", name=topic)
        return all(
            (described[key]["value"], described[key]["source"]) == (value, "DYNAMIC_TOPIC_CONFIG")
            for key, value in (("retention.ms", DAY_MS), ("segment.bytes", "2097152"))
        )

    for each in cluster.live_nodes:
        client.set_bootstrap(each.bootstrap)
        wait_for(f"the configs through node {each.node_id}", has_configs)


@pytest.mark.parametrize("client", ADMINS, indirect=True)
def test_group_through_any_node_is_created_described_and_deleted(
    client: ClientProcess, cluster: Cluster, drivers: ClientPool, node: ClusterNode
) -> None:
    topic, group = create(client, cluster, partitions=2), unique_name("group")
    with drivers.borrow(
        client.name if IS_LONG_RUN or client.name not in SETS_OFFSETS_SLOWLY else "confluent"
    ) as writer:
        writer.set_bootstrap(node.bootstrap)
        writer.admin("alter_group_offsets", group=group, offsets=[(topic, 0, 5, ""), (topic, 1, 7, "")])
    wait_until_held_everywhere(cluster, group, {(topic, 0): (5, ""), (topic, 1): (7, "")})
    for each in cluster.live_nodes:
        client.set_bootstrap(each.bootstrap)
        assert [at[:3] for at in sorted(client.admin("group_offsets", group=group))] == [[topic, 0, 5], [topic, 1, 7]]
        assert group in client.admin("list_groups")
        assert client.admin("describe_group", group=group)["state"] == "Empty"
    client.admin("delete_group", group=group)
    assert group not in client.admin("list_groups")
    wait_for("no node holds an offset", lambda: not any(offsets_held_by(each, group) for each in cluster.live_nodes))


@pytest.mark.parametrize("client", ADMINS, indirect=True)
def test_cluster_described_through_any_node_has_every_broker(client: ClientProcess, cluster: Cluster) -> None:
    described = client.admin("describe_cluster")
    found = {each["id"]: f"{each['host']}:{each['port']}" for each in described["nodes"]}
    assert found == {each.node_id: each.bootstrap for each in cluster.live_nodes}
    assert described["controller"] in found


@pytest.mark.parametrize("client", PRODUCERS, indirect=True)
def test_first_produce_through_any_node_creates_topic_on_every_node(client: ClientProcess, cluster: Cluster) -> None:
    topic = unique_name(f"produced-{client.name}")
    client.produce(topic, [Record(b"key", b"first")])
    wait_until_all_have(cluster, topic)
    group = None if client.client.reads_without_group else unique_name("readers")
    received, problem = client.consume({topic: 1}, group)
    assert problem is None
    assert [each.value for each in received] == [b"first"]


def test_metadata_request_to_any_node_creates_topic_on_every_node(node: ClusterNode, cluster: Cluster) -> None:
    """A client may send the request to any node; this one uses only the given node."""
    topic = unique_name("asked-for")
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=True)

    def is_led() -> bool:
        with RawClient(node.bootstrap) as raw:
            (answer,) = raw.request(request, 12, MetadataResponse).topics
        return answer.error_code == ErrorCode.NONE and all(each.leader_id > 0 for each in answer.partitions)

    wait_for(f"leaders of {topic} according to node {node.node_id}", is_led)
    wait_until_all_have(cluster, topic)

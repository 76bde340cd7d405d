"""Topics created through any node exist on every node within a second, also after restarts.

System topics are the same on all nodes.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from statistics import median

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from bench.cluster.nodes import open_connections
from bench.cluster.visibility import build_auto_create_request, build_create_request, measure_delays
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from chronik.protocol.schema import Request
from chronik.testing.cluster import Cluster
from chronik.testing.plugin import ClusterFactory
from tests.cluster.topic_views import metadata_of, topics_of, wait_until_all_have
from tests.raw import RawClient
from tests.run_size import sized

pytestmark = pytest.mark.xdist_group("cluster")

TOPICS = sized(400, 3000)

NEW_TOPICS = 30
LISTED_SECONDS_MAX = 1.0
"""The documented limit. The median must meet it on any machine; `make bench-cluster` reports the maximum."""

SLOWEST_SECONDS_MAX = 10.0
"""The limit for a single topic on a busy machine."""


def test_topic_created_through_any_node_exists_on_every_node(chronik_cluster_factory: ClusterFactory) -> None:
    cluster = chronik_cluster_factory(replication_factor=3)
    for node_id, node in cluster.nodes.items():
        admin = AdminClient({"bootstrap.servers": node.bootstrap})
        admin.create_topics([NewTopic(f"made-{node_id}", 6, 3)])[f"made-{node_id}"].result(30)
        wait_until_all_have(cluster, f"made-{node_id}")
    for node_id, node in cluster.nodes.items():
        producer = Producer({"bootstrap.servers": node.bootstrap})
        producer.produce(f"produced-{node_id}", b"first")
        assert producer.flush(30) == 0
        view = wait_until_all_have(cluster, f"produced-{node_id}")
        assert len([name for name in view if name.startswith("produced-")]) == node_id
    before = topics_of(cluster[1])
    cluster.restart()
    cluster.wait_until_ready()
    assert {name: topic_id for name, (topic_id, _) in topics_of(cluster[2]).items()} == {
        name: topic_id for name, (topic_id, _) in before.items()
    }


def test_system_topics_have_same_leaders_on_every_node(
    chronik_cluster_factory: ClusterFactory,
) -> None:
    cluster = chronik_cluster_factory(replication_factor=3)
    wanted = {"__consumer_offsets": 50, "__transaction_state": 50, "__meta": 1}

    def missing() -> str | None:
        leader = cluster.leader().status()["node_id"]
        for node in cluster.live_nodes:
            topics = {topic.name: topic for topic in metadata_of(node).topics}
            for name, partitions in wanted.items():
                if name not in topics or len(topics[name].partitions) != partitions:
                    return f"{name} on {node!r}"
                for partition in topics[name].partitions:
                    if sorted(partition.replica_nodes) != [1, 2, 3] or sorted(partition.isr_nodes) != [1, 2, 3]:
                        return f"a replica or in-sync member of {name}"
                    if partition.leader_id not in (1, 2, 3) or not topics[name].is_internal:
                        return f"a leader of {name}"
            if topics["__meta"].partitions[0].leader_id != leader:
                return "the Raft leader as the leader of __meta"
        return None

    cluster.wait_until(missing, "the system topics")
    wait_until_all_have(cluster, *wanted)
    spread = {leaders for _, leaders in [(0, tuple(topics_of(cluster[1])["__consumer_offsets"][1]))]}
    assert {leader for leaders in spread for leader in leaders} == {1, 2, 3}


def test_topics_created_through_every_node_survive_restart(
    chronik_cluster_factory: ClusterFactory,
) -> None:
    """CreateTopics goes to all three nodes, in one request, over ten connections, and over a hundred.

    Admin clients send it to the controller only (see `test_many_topics.py`).
    """
    cluster = chronik_cluster_factory(replication_factor=3)
    made = [name for threads in (1, 10, 100) for name in make_topics(cluster, threads)]
    assert len(made) == 3 * TOPICS
    wait_until_all_have(cluster, *made)
    cluster.restart()
    cluster.wait_until_ready()
    wait_until_all_have(cluster, *made)
    cluster.wait_until_agreed()


def make_topics(cluster: Cluster, threads: int) -> list[str]:
    nodes = list(cluster.nodes.values())
    names = [f"topic-{threads}-{number:04d}" for number in range(TOPICS)]

    def create(share: int) -> list[int]:
        mine = names[share::threads]
        at_once = TOPICS if threads == 1 else 1
        codes = []
        with RawClient(nodes[share % 3].bootstrap) as client:
            for first in range(0, len(mine), at_once):
                wanted = [
                    CreatableTopic(name=name, num_partitions=1, replication_factor=3)
                    for name in mine[first : first + at_once]
                ]
                response = client.request(CreateTopicsRequest(topics=wanted), 7, CreateTopicsResponse)
                codes += [topic.error_code for topic in response.topics]
        return codes

    with ThreadPoolExecutor(threads) as pool:
        codes = [code for share in pool.map(create, range(threads)) for code in share]
    assert codes == [ErrorCode.NONE] * TOPICS
    return names


@pytest.mark.parametrize("request_for", [build_create_request, build_auto_create_request])
def test_new_topic_is_listed_by_every_node_within_a_second(
    request_for: Callable[[str], Request],
    chronik_cluster_factory: ClusterFactory,
    record_property: Callable[[str, object], None],
) -> None:
    cluster = chronik_cluster_factory(replication_factor=3)
    with open_connections(cluster.live_nodes) as opened:
        delays = measure_delays(opened, NEW_TOPICS, request_for).after_request
    assert len(delays) == NEW_TOPICS * len(cluster.live_nodes)
    middle, slowest = median(delays), max(delays)
    figures = f"median {1000 * middle:.0f} ms, maximum {1000 * slowest:.0f} ms"
    record_property("summary", f"{request_for.__name__}: topics were listed by every node after: {figures}")
    assert middle <= LISTED_SECONDS_MAX
    assert slowest <= SLOWEST_SECONDS_MAX

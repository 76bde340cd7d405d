"""Replicated topics: creation, leaders and in-sync replicas."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from bench.cluster.nodes import NODES
from chronik.bench.arguments import CLIENT_ID
from chronik.bench.errors import BenchmarkError
from chronik.bench.librdkafka_config import generate_name
from chronik.client.admin import NewTopic, create_topics, delete_topics
from chronik.client.cluster import ClusterClient
from chronik.protocol.messages.metadata import MetadataResponsePartition
from chronik.testing.cluster import Cluster as Nodes
from chronik.testing.cluster import ClusterNode

PARTITIONS_PER_TOPIC: Final = 100
IN_SYNC_SECONDS_MAX: Final = 120.0


def connect_client(nodes: Nodes) -> ClusterClient:
    return ClusterClient(nodes.bootstrap, client_id=CLIENT_ID)


def create_partitions(nodes: Nodes, count: int) -> None:
    """Create partitions with a replica on each node, in several topics."""
    sizes = [min(PARTITIONS_PER_TOPIC, count - first) for first in range(0, count, PARTITIONS_PER_TOPIC)]
    if sizes:
        with connect_client(nodes) as cluster:
            create_topics(cluster, [NewTopic(generate_name("many"), size, NODES) for size in sizes])
    wait_until_in_sync(nodes)


@contextmanager
def replicated_topic(nodes: Nodes, what: str, partitions: int, copies: int = NODES) -> Iterator[str]:
    """Create a replicated topic, yield its name, and delete it on exit."""
    topic = generate_name(what)
    with connect_client(nodes) as cluster:
        create_topics(cluster, [NewTopic(topic, partitions, copies)])
    wait_until_in_sync(nodes)
    yield topic
    with connect_client(nodes) as cluster:
        delete_topics(cluster, [topic])


def wait_until_in_sync(nodes: Nodes) -> None:
    """Wait until every live node reports that all partitions have a leader and all replicas are in sync."""

    def missing() -> str | None:
        for node in nodes.live_nodes:
            with ClusterClient(node.bootstrap, client_id=CLIENT_ID) as cluster:
                for topic in cluster.metadata(None).topics:
                    for partition in topic.partitions:
                        if not is_fully_in_sync(partition):
                            return f"node {node.node_id}: {topic.name}-{partition.partition_index} is not in sync"
        return None

    nodes.wait_until(missing, "all replicas in sync", IN_SYNC_SECONDS_MAX)


def is_fully_in_sync(partition: MetadataResponsePartition) -> bool:
    return partition.leader_id >= 0 and len(partition.isr_nodes) == len(partition.replica_nodes)


def find_partition_led_by(nodes: Nodes, topic: str, leader: ClusterNode) -> int:
    """Return a partition of the topic that the node leads. Raises BenchFailed."""
    with connect_client(nodes) as cluster:
        for partition in cluster.retry(lambda: cluster.topic(topic)).partitions:
            if partition.leader_id == leader.node_id:
                return partition.partition_index
    raise BenchmarkError(f"node {leader.node_id} leads no partition of {topic}")

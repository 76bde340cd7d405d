"""Clusters as `chronik cluster up` starts them, connections to their nodes, and replicated topics."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

from bench.cluster.figures import ClusterBenchmarkPlan
from bench.servers import RETRY_SECONDS, START_SECONDS_MAX, responds_to_api_versions
from chronik.bench.arguments import CLIENT_ID
from chronik.bench.errors import BenchmarkError
from chronik.bench.librdkafka_config import generate_name
from chronik.cli.cluster.local_nodes import LocalNode, write_configs
from chronik.client.admin import NewTopic, create_topics, delete_topics
from chronik.client.cluster import ClusterClient
from chronik.client.connection import BrokerConnection
from chronik.config import Address, load_config
from chronik.protocol.messages.metadata import MetadataResponsePartition
from chronik.testing.cluster import Cluster, ClusterNode
from chronik.testing.cluster import Cluster as Nodes
from chronik.testing.ports import HOST

NODES: Final = 3

PARTITIONS_PER_TOPIC: Final = 100
IN_SYNC_SECONDS_MAX: Final = 120.0


class UserNode(ClusterNode):
    """A node as users run it.

    The node of the tests records every request, which increases the cost of a small request by half.
    """

    def __init__(self, like: ClusterNode) -> None:
        config = {key: value for key, value in like.config.items() if key not in ("kafka", "http")}
        super().__init__(like._folder, like.kafka, like.http, **config)
        self._local = LocalNode(self._folder, load_config(None, {}, **self._config, data_dir=self.data_dir))
        self._log_path = self._local.log_file

    def start(self) -> UserNode:
        """Start the node and wait for its first response. Raises BenchFailed."""
        write_configs([self._local])
        process = self._process = self._local.start()
        deadline = time.monotonic() + START_SECONDS_MAX
        while not responds_to_api_versions(self.port):
            if process.poll() is not None or time.monotonic() > deadline:
                raise BenchmarkError(f"node {self.node_id} did not start: {self._local.last_log_line()}")
            time.sleep(RETRY_SECONDS)
        return self


@contextmanager
def create_cluster(plan: ClusterBenchmarkPlan, nodes: int = NODES, **config: Any) -> Iterator[Cluster]:
    """Create a cluster without starting it. `config` is added to the configuration of every node.

    Data is on the disk of `plan.directory`, because a temporary directory may be in memory, where syncs are free.
    """
    os.sync()  # earlier measurements' dirty pages must not slow this one
    with tempfile.TemporaryDirectory(prefix="cluster-", dir=plan.directory, ignore_cleanup_errors=True) as folder:
        cluster = Cluster(nodes, Path(folder), **config)
        cluster.nodes = {node_id: UserNode(node) for node_id, node in cluster.nodes.items()}
        try:
            yield cluster
        finally:
            cluster.close()


@contextmanager
def running_cluster(plan: ClusterBenchmarkPlan, nodes: int = NODES, **config: Any) -> Iterator[Cluster]:
    with create_cluster(plan, nodes, **config) as cluster:
        start_nodes(cluster)
        cluster.wait_until_ready()
        yield cluster


def add_user_node(cluster: Cluster, node_id: int) -> ClusterNode:
    """Add a node to the cluster object, neither started nor admitted; see `Cluster.add_node`."""
    node = cluster.nodes[node_id] = UserNode(cluster.add_node(node_id))
    return node


def start_nodes(cluster: Cluster) -> None:
    """Start all stopped nodes concurrently, without waiting for a leader. Raises BenchFailed."""
    with ThreadPoolExecutor(len(cluster.nodes)) as threads:
        for _ in threads.map(
            lambda node: node.start(), [node for node in cluster.nodes.values() if not node.is_running]
        ):
            pass


def connect(node: ClusterNode) -> BrokerConnection:
    return BrokerConnection(Address(HOST, node.port), client_id=CLIENT_ID)


@contextmanager
def open_connections(nodes: list[ClusterNode]) -> Iterator[list[BrokerConnection]]:
    with ExitStack() as stack:
        opened = []
        for node in nodes:
            opened.append(connect(node))
            stack.callback(opened[-1].close)
        yield opened


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

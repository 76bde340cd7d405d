"""Clusters as `chronik cluster up` starts them, and connections to their nodes."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

from bench.cluster.figures import Plan
from bench.servers import RETRY_SECONDS, START_SECONDS_MAX, answers_api_versions
from chronik.bench.arguments import CLIENT_ID
from chronik.bench.errors import BenchFailed
from chronik.cli.cluster.local_nodes import LocalNode, write_configs
from chronik.client.connection import Connection
from chronik.config import Address, load_config
from chronik.testing.cluster import Cluster, ClusterNode
from chronik.testing.ports import HOST

NODES: Final = 3


class PlainNode(ClusterNode):
    """A node as users run it.

    The node of the tests records every request, which increases the cost of a small request by half.
    """

    def __init__(self, like: ClusterNode) -> None:
        config = {key: value for key, value in like.config.items() if key not in ("kafka", "http")}
        super().__init__(like._folder, like.kafka, like.http, **config)
        self._local = LocalNode(self._folder, load_config(None, {}, **self._config, data_dir=self.data_dir))
        self._log_path = self._local.log_file

    def start(self) -> PlainNode:
        """Start the node and wait for its first response. Raises BenchFailed."""
        write_configs([self._local])
        process = self._process = self._local.start()
        deadline = time.monotonic() + START_SECONDS_MAX
        while not answers_api_versions(self.port):
            if process.poll() is not None or time.monotonic() > deadline:
                raise BenchFailed(f"node {self.node_id} did not start: {self._local.last_words()}")
            time.sleep(RETRY_SECONDS)
        return self


@contextmanager
def fresh_cluster(plan: Plan, nodes: int = NODES, **config: Any) -> Iterator[Cluster]:
    """Create a cluster without starting it. `config` is added to the configuration of every node.

    Data is on the disk of `plan.directory`, because a temporary directory may be in memory, where syncs are free.
    """
    os.sync()  # earlier measurements' dirty pages must not slow this one
    with tempfile.TemporaryDirectory(prefix="cluster-", dir=plan.directory, ignore_cleanup_errors=True) as folder:
        cluster = Cluster(nodes, Path(folder), **config)
        cluster.nodes = {node_id: PlainNode(node) for node_id, node in cluster.nodes.items()}
        try:
            yield cluster
        finally:
            cluster.close()


@contextmanager
def running_cluster(plan: Plan, nodes: int = NODES, **config: Any) -> Iterator[Cluster]:
    with fresh_cluster(plan, nodes, **config) as cluster:
        start(cluster)
        cluster.wait_until_ready()
        yield cluster


def add_plain_node(cluster: Cluster, node_id: int) -> ClusterNode:
    """Add a node to the cluster object, neither started nor admitted; see `Cluster.add_node`."""
    node = cluster.nodes[node_id] = PlainNode(cluster.add_node(node_id))
    return node


def start(cluster: Cluster) -> None:
    """Start all stopped nodes concurrently, without waiting for a leader. Raises BenchFailed."""
    with ThreadPoolExecutor(len(cluster.nodes)) as threads:
        for _ in threads.map(lambda node: node.start(), [node for node in cluster.nodes.values() if not node.running]):
            pass


def connect(node: ClusterNode) -> Connection:
    return Connection(Address(HOST, node.port), client_id=CLIENT_ID)


@contextmanager
def connections(nodes: list[ClusterNode]) -> Iterator[list[Connection]]:
    with ExitStack() as stack:
        opened = []
        for node in nodes:
            opened.append(connect(node))
            stack.callback(opened[-1].close)
        yield opened

"""Three nodes as `chronik cluster up` starts them, and connections to each of them."""

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
    """A node as users run it. The one that tests run keeps every request for them to look at, which costs half as much
    again as answering a small one."""

    def __init__(self, like: ClusterNode) -> None:
        config = {key: value for key, value in like.config.items() if key not in ("kafka", "http")}
        super().__init__(like._folder, like.kafka, like.http, **config)
        self._local = LocalNode(self._folder, load_config(None, {}, **self._config, data_dir=self.data_dir))
        self._log_path = self._local.log_file

    def start(self) -> PlainNode:
        """Raises BenchFailed."""
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
    """Not started yet. On the disk of `plan.folder`, for a temporary folder may be in memory, where syncs are free.
    `config` is added to that of every node."""
    os.sync()  # what was measured before must not slow this
    with tempfile.TemporaryDirectory(prefix="cluster-", dir=plan.folder, ignore_cleanup_errors=True) as folder:
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
    """Not started yet, nor let in: see `Cluster.add_node`."""
    node = cluster.nodes[node_id] = PlainNode(cluster.add_node(node_id))
    return node


def start(cluster: Cluster) -> None:
    """All nodes that are down, at the same time; they may not have met yet. Raises BenchFailed."""
    with ThreadPoolExecutor(len(cluster.nodes)) as threads:
        for _ in threads.map(lambda node: node.start(), [node for node in cluster.nodes.values() if not node.running]):
            pass


def connect(node: ClusterNode) -> Connection:
    return Connection(Address(HOST, node.port), client_id=CLIENT_ID)


@contextmanager
def connections(nodes: list[ClusterNode]) -> Iterator[list[Connection]]:
    with ExitStack() as undo:
        opened = []
        for node in nodes:
            opened.append(connect(node))
            undo.callback(opened[-1].close)
        yield opened

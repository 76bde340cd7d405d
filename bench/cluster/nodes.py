"""Three nodes as processes of their own, and connections to each of them."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from bench.cluster.figures import Plan
from chronik.bench.arguments import CLIENT_ID
from chronik.client.connection import Connection
from chronik.config import Address
from chronik.testing.cluster import Cluster, ClusterNode
from chronik.testing.ports import HOST

NODES = 3


@contextmanager
def fresh_cluster(plan: Plan, **config: Any) -> Iterator[Cluster]:
    """Not started yet. On the disk of `plan.folder`, for a temporary folder may be in memory, where syncs are free."""
    os.sync()  # what was measured before must not slow this
    with tempfile.TemporaryDirectory(prefix="cluster-", dir=plan.folder, ignore_cleanup_errors=True) as folder:
        cluster = Cluster(NODES, Path(folder), log_level="warning", **config)
        try:
            yield cluster
        finally:
            cluster.close()


@contextmanager
def running_cluster(plan: Plan, **config: Any) -> Iterator[Cluster]:
    with fresh_cluster(plan, **config) as cluster:
        cluster.start()
        cluster.wait_until_ready()
        yield cluster


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

"""Chronik and Apache Kafka for direct comparison: long-running servers with one node or three."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench.apache_kafka import DEFAULT_JVM_OPTIONS, ApacheKafka
from bench.cluster.figures import ClusterBenchmarkPlan
from bench.cluster.nodes import create_cluster, start_nodes
from bench.servers import BenchmarkServer
from chronik.config import Address


@dataclass(frozen=True, slots=True)
class RunningServer:
    """A running server or cluster."""

    bootstrap: str
    http: Sequence[Address] = ()
    """HTTP addresses of Chronik's nodes, which report slow disk syncs; Kafka has none."""
    pids: Sequence[int] = ()
    first_response_seconds: float = 0.0
    """Time from starting the processes until each has responded."""


ServerFactory = Callable[[Path], AbstractContextManager[RunningServer]]


@contextmanager
def _one_node(name: str, folder: Path) -> Iterator[RunningServer]:
    with BenchmarkServer(name, folder, with_http=True) as server:
        assert server.http is not None
        yield RunningServer(server.bootstrap, [server.http], [server.pid], server.first_response_seconds)


@contextmanager
def _three_nodes(flush: str, folder: Path) -> Iterator[RunningServer]:
    plan = ClusterBenchmarkPlan(
        directory=folder, rounds=1, seconds=0.0, idle_seconds=0.0, topics=0, offsets=0, megabytes=0
    )
    with create_cluster(plan, flush=flush) as cluster:
        started = time.perf_counter()
        start_nodes(cluster)
        first_answer_seconds = time.perf_counter() - started
        cluster.wait_until_ready()
        nodes = cluster.nodes.values()
        http, pids = [node.http for node in nodes], [node.pid for node in nodes]
        yield RunningServer(cluster.bootstrap, http, pids, first_answer_seconds)


@contextmanager
def _kafka(nodes: int, folder: Path) -> Iterator[RunningServer]:
    with (
        tempfile.TemporaryDirectory(prefix="kafka-", dir=folder, ignore_cleanup_errors=True) as data,
        ApacheKafka(Path(data), nodes, DEFAULT_JVM_OPTIONS) as kafka,
    ):
        yield RunningServer(kafka.bootstrap, pids=kafka.pids, first_response_seconds=kafka.first_response_seconds)


def chronik_node(server: str) -> ServerFactory:
    """Return a function that starts one of the servers in `bench.servers`."""
    return partial(_one_node, server)


def chronik_cluster(flush: str) -> ServerFactory:
    return partial(_three_nodes, flush)


def apache_kafka_cluster(nodes: int) -> ServerFactory:
    """Return a function that starts Apache Kafka with its default JVM options."""
    return partial(_kafka, nodes)


def print_progress(progress: str) -> None:
    print(f"== {progress}", file=sys.stderr, flush=True)

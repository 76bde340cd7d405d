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

from bench.apache_kafka import AS_SHIPPED, ApacheKafka
from bench.cluster.figures import Plan
from bench.cluster.nodes import fresh_cluster, start
from bench.servers import Server
from chronik.config import Address


@dataclass(frozen=True, slots=True)
class Running:
    """A running server or cluster."""

    bootstrap: str
    http: Sequence[Address] = ()
    """HTTP addresses of Chronik's nodes, which report slow disk syncs; Kafka has none."""
    pids: Sequence[int] = ()
    first_answer_seconds: float = 0.0
    """Time from starting the processes until each has responded."""


Start = Callable[[Path], AbstractContextManager[Running]]


@contextmanager
def _one_node(name: str, folder: Path) -> Iterator[Running]:
    with Server(name, folder, tells_status=True) as server:
        assert server.http is not None
        yield Running(server.bootstrap, [server.http], [server.pid], server.first_answer_seconds)


@contextmanager
def _three_nodes(flush: str, folder: Path) -> Iterator[Running]:
    plan = Plan(directory=folder, rounds=1, seconds=0.0, idle_seconds=0.0, topics=0, offsets=0, megabytes=0)
    with fresh_cluster(plan, flush=flush) as cluster:
        started = time.perf_counter()
        start(cluster)
        first_answer_seconds = time.perf_counter() - started
        cluster.wait_until_ready()
        nodes = cluster.nodes.values()
        http, pids = [node.http for node in nodes], [node.pid for node in nodes]
        yield Running(cluster.bootstrap, http, pids, first_answer_seconds)


@contextmanager
def _kafka(nodes: int, folder: Path) -> Iterator[Running]:
    with (
        tempfile.TemporaryDirectory(prefix="kafka-", dir=folder, ignore_cleanup_errors=True) as data,
        ApacheKafka(Path(data), nodes, AS_SHIPPED) as kafka,
    ):
        yield Running(kafka.bootstrap, pids=kafka.pids, first_answer_seconds=kafka.first_answer_seconds)


def one_node(server: str) -> Start:
    """Return a function that starts one of the servers in `bench.servers`."""
    return partial(_one_node, server)


def three_nodes(flush: str) -> Start:
    return partial(_three_nodes, flush)


def kafka(nodes: int) -> Start:
    """Return a function that starts Apache Kafka with its default JVM options."""
    return partial(_kafka, nodes)


def say(progress: str) -> None:
    print(f"== {progress}", file=sys.stderr, flush=True)

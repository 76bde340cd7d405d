"""Chronik and Apache Kafka side by side: servers that run all the time and take turns, each of one node or of three."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench.apache_kafka import AS_SHIPPED, ApacheKafka
from bench.cluster.figures import Plan
from bench.cluster.nodes import running_cluster
from bench.servers import Server
from chronik.config import Address


@dataclass(frozen=True, slots=True)
class Running:
    bootstrap: str
    http: Sequence[Address] = ()
    """Where its nodes tell how long their disks took; Kafka's do not."""


Start = Callable[[Path], AbstractContextManager[Running]]


@contextmanager
def _one_node(name: str, folder: Path) -> Iterator[Running]:
    with Server(name, folder, tells_status=True) as server:
        assert server.http is not None
        yield Running(server.bootstrap, [server.http])


@contextmanager
def _three_nodes(flush: str, folder: Path) -> Iterator[Running]:
    plan = Plan(folder=folder, rounds=1, seconds=0.0, idle_seconds=0.0, topics=0, offsets=0, megabytes=0)
    with running_cluster(plan, flush=flush) as cluster:
        yield Running(cluster.bootstrap, [node.http for node in cluster.nodes.values()])


@contextmanager
def _kafka(nodes: int, folder: Path) -> Iterator[Running]:
    with (
        tempfile.TemporaryDirectory(prefix="kafka-", dir=folder, ignore_cleanup_errors=True) as data,
        ApacheKafka(Path(data), nodes, AS_SHIPPED) as kafka,
    ):
        yield Running(kafka.bootstrap)


def one_node(server: str) -> Start:
    """One of `bench.servers`."""
    return partial(_one_node, server)


def three_nodes(flush: str) -> Start:
    return partial(_three_nodes, flush)


def kafka(nodes: int) -> Start:
    """As shipped."""
    return partial(_kafka, nodes)


def say(progress: str) -> None:
    print(f"== {progress}", file=sys.stderr, flush=True)

"""The servers of `make bench-peers`: Chronik with each flush setting and Apache Kafka, with one node and with three."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from bench.cluster.nodes import NODES
from bench.kafka_comparison import ServerFactory, apache_kafka_cluster, chronik_cluster, chronik_node
from bench.servers import CHRONIK_GROUP, CHRONIK_OS

OS, GROUP, KAFKA = "Chronik, os", "Chronik, group", "Apache Kafka"
SERVERS: Final = (OS, GROUP, KAFKA)
SIZES: Final = (1, NODES)
"""Cluster sizes."""


@dataclass(frozen=True, slots=True)
class PeerSubject:
    """A server under test."""

    server: str
    nodes: int
    start: ServerFactory

    @property
    def name(self) -> str:
        return format_name(self.server, self.nodes)


def format_name(server: str, nodes: int) -> str:
    return f"{server}, {'one node' if nodes == 1 else f'{nodes} nodes'}"


def create_subjects(*, with_kafka: bool, sizes: tuple[int, ...] = SIZES) -> list[PeerSubject]:
    chronik = [
        PeerSubject(OS, 1, chronik_node(CHRONIK_OS)),
        PeerSubject(GROUP, 1, chronik_node(CHRONIK_GROUP)),
        PeerSubject(OS, NODES, chronik_cluster("os")),
        PeerSubject(GROUP, NODES, chronik_cluster("group")),
    ]
    references = [PeerSubject(KAFKA, nodes, apache_kafka_cluster(nodes)) for nodes in SIZES] if with_kafka else []
    return [subject for subject in (*chronik, *references) if subject.nodes in sizes]

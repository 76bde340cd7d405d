"""The servers of `make bench-peers`: Chronik with each flush setting and Apache Kafka, with one node and with three."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from bench.beside_kafka import Start, kafka, one_node, three_nodes
from bench.cluster.nodes import NODES
from bench.servers import CHRONIK_GROUP, CHRONIK_OS

OS, GROUP, KAFKA = "Chronik, os", "Chronik, group", "Apache Kafka"
SERVERS: Final = (OS, GROUP, KAFKA)
SIZES: Final = (1, NODES)
"""Cluster sizes."""


@dataclass(frozen=True, slots=True)
class Subject:
    """A server under test."""

    server: str
    nodes: int
    start: Start

    @property
    def name(self) -> str:
        return name_of(self.server, self.nodes)


def name_of(server: str, nodes: int) -> str:
    return f"{server}, {'one node' if nodes == 1 else f'{nodes} nodes'}"


def subjects(*, with_kafka: bool, sizes: tuple[int, ...] = SIZES) -> list[Subject]:
    chronik = [
        Subject(OS, 1, one_node(CHRONIK_OS)),
        Subject(GROUP, 1, one_node(CHRONIK_GROUP)),
        Subject(OS, NODES, three_nodes("os")),
        Subject(GROUP, NODES, three_nodes("group")),
    ]
    references = [Subject(KAFKA, nodes, kafka(nodes)) for nodes in SIZES] if with_kafka else []
    return [subject for subject in (*chronik, *references) if subject.nodes in sizes]

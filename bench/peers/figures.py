"""Servers under comparison, their results by round, their JSON file, and their ratios to Apache Kafka's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

import msgspec

from bench.cluster.nodes import NODES
from bench.kafka_comparison import ServerFactory, apache_kafka_cluster, chronik_cluster, chronik_node
from bench.results import BenchmarkRun, Cell, ResultTable, encode, results_file
from bench.servers import CHRONIK_GROUP, CHRONIK_OS, ROOT
from chronik.bench.report import median_ratio

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


NAME: Final = "apache-kafka"
"""The name of the page and of the JSON file."""
SETTINGS: Final = "Medians of {rounds} interleaved rounds after a warm-up, about {seconds:g} s per load. {kafka}."
RECORD_BYTES: Final = (100, 1000)


@dataclass(frozen=True, slots=True)
class PeerMetric:
    """A metric and how its rounds are summarized."""

    key: str
    title: str
    unit: str
    more_is_better: bool = False
    by_most: bool = False
    """Use the maximum of all rounds instead of the median."""


METRICS: Final = (
    *(PeerMetric(f"produce_{size}", f"Produce, {size} B", "records/s", True) for size in RECORD_BYTES),
    *(PeerMetric(f"consume_{size}", f"Consume, {size} B", "records/s", True) for size in RECORD_BYTES),
    PeerMetric("trip_p50", "Round trip of one record, median", "ms"),
    PeerMetric("trip_p99", "Round trip, p99", "ms"),
    PeerMetric("trip_p999", "Round trip, p99.9", "ms"),
    PeerMetric("trip_longest", "Round trip, longest", "ms", by_most=True),
    PeerMetric("start", "Start, until all nodes answer", "s"),
    PeerMetric("memory_idle", "Memory of all nodes, idle", "MB"),
    PeerMetric("memory_loaded", "Memory of all nodes, after the load", "MB", by_most=True),
    *(PeerMetric(f"produce_cpu_{size}", f"CPU of all nodes, produce {size} B", "s/million") for size in RECORD_BYTES),
    *(PeerMetric(f"consume_cpu_{size}", f"CPU of all nodes, consume {size} B", "s/million") for size in RECORD_BYTES),
)


class ServerResults(msgspec.Struct):
    """The results of one server: one value per round, by metric."""

    server: str
    nodes: int
    rounds: dict[str, list[float]] = {}

    def add(self, key: str, value: float) -> None:
        self.rounds.setdefault(key, []).append(value)

    def value(self, metric: PeerMetric) -> float | None:
        values = self.rounds.get(metric.key)
        if not values:
            return None
        return max(values) if metric.by_most else median(values)


class PeerResults(msgspec.Struct):
    """The results of one run, as stored in docs/internals/benchmarks/apache-kafka.json."""

    machine: str
    load_before: float
    rounds: int
    seconds: float
    kafka: str
    """The version of Apache Kafka, or why it is left out."""
    measured: list[ServerResults]
    version: str = ""
    """The version of Chronik."""

    def find(self, server: str, nodes: int) -> ServerResults | None:
        return next((each for each in self.measured if (each.server, each.nodes) == (server, nodes)), None)

    def servers(self, nodes: int) -> list[str]:
        """Return the servers with Kafka first, because the others are compared with it."""
        names = [each.server for each in self.measured if each.nodes == nodes]
        return sorted(names, key=lambda server: (server != KAFKA, names.index(server)))

    def cluster_sizes(self) -> list[int]:
        return sorted({each.nodes for each in self.measured})


def compute_ratio(metric: PeerMetric, own: ServerResults, kafkas: ServerResults) -> float | None:
    """Return how many times better than Kafka's a value is: the median of per-round ratios, or the ratio of maxima."""
    own_values, kafka_values = own.rounds.get(metric.key), kafkas.rounds.get(metric.key)
    if not own_values or not kafka_values:
        return None
    if metric.by_most:
        own_values, kafka_values = [max(own_values)], [max(kafka_values)]
    if not all(own_values) or not all(kafka_values):
        return None
    return median_ratio(own_values, kafka_values) if metric.more_is_better else median_ratio(kafka_values, own_values)


def build_tables(peers: PeerResults) -> list[ResultTable]:
    return [build_table(peers, nodes) for nodes in peers.cluster_sizes()]


def build_table(peers: PeerResults, nodes: int) -> ResultTable:
    """Return the values and their ratios to a Kafka cluster of the same size."""
    servers = peers.servers(nodes)
    kafkas = peers.find(KAFKA, nodes)
    headings = [""]
    for server in servers:
        headings += [server] if kafkas is None or server == KAFKA else [server, "ratio"]
    title = {1: "One node", 3: "Three nodes"}.get(nodes, f"{nodes} nodes")
    settings = SETTINGS.format(rounds=peers.rounds, seconds=peers.seconds, kafka=peers.kafka)
    run = BenchmarkRun(peers.machine, peers.version, settings, peers.load_before)
    return ResultTable(title, headings, [_row(peers, metric, servers, nodes, kafkas) for metric in METRICS], run)


def _row(
    peers: PeerResults, metric: PeerMetric, servers: Sequence[str], nodes: int, kafkas: ServerResults | None
) -> list[Cell]:
    row: list[Cell] = [f"{metric.title}, {metric.unit}"]
    for server in servers:
        measured = peers.find(server, nodes)
        row.append(None if measured is None else measured.value(metric))
        if kafkas is not None and server != KAFKA:
            ratio = None if measured is None else compute_ratio(metric, measured, kafkas)
            row.append(None if ratio is None else f"{ratio:.2f}")
    return row


def store_results(peers: PeerResults, root: Path = ROOT) -> None:
    path = root / results_file(NAME)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(encode(peers), encoding="utf-8")


def load_results(root: Path = ROOT) -> PeerResults | None:
    path = root / results_file(NAME)
    return msgspec.json.decode(path.read_bytes(), type=PeerResults) if path.exists() else None

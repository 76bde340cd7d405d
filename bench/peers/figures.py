"""Results of each server by round, their JSON file, and their ratios to Apache Kafka's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Final

import msgspec

from bench.peers.servers import KAFKA, format_name
from chronik.bench.report import format_number
from chronik.bench.rounds import format_markdown_table, median_ratio

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
    """The results of one run, as stored in docs/internals/benchmarks/peers.json."""

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


def format_table(peers: PeerResults, nodes: int) -> str:
    """Format the values and their ratios to a Kafka cluster of the same size."""
    servers = peers.servers(nodes)
    kafkas = peers.find(KAFKA, nodes)
    headings = [format_name("", nodes).removeprefix(", ")]
    for server in servers:
        headings += [server] if kafkas is None or server == KAFKA else [server, "ratio"]
    return format_markdown_table(headings, [_row(peers, metric, servers, nodes, kafkas) for metric in METRICS])


def _row(
    peers: PeerResults, metric: PeerMetric, servers: Sequence[str], nodes: int, kafkas: ServerResults | None
) -> list[str]:
    row = [f"{metric.title}, {metric.unit}"]
    for server in servers:
        measured = peers.find(server, nodes)
        value = None if measured is None else measured.value(metric)
        row.append("" if value is None else format_number(value))
        if kafkas is not None and server != KAFKA:
            ratio_value = None if measured is None else compute_ratio(metric, measured, kafkas)
            row.append("" if ratio_value is None else f"{ratio_value:.2f}")
    return row


def encode(peers: PeerResults) -> str:
    return msgspec.json.format(msgspec.json.encode(_round_floats(msgspec.to_builtins(peers))), indent=1).decode() + "\n"


def decode(text: str) -> PeerResults:
    return msgspec.json.decode(text, type=PeerResults)


def _round_floats(value: Any) -> Any:
    """Round floats to six significant digits, which exceeds the precision of the measurements."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {key: _round_floats(each) for key, each in value.items()}
    return [_round_floats(each) for each in value] if isinstance(value, list) else value

"""The workloads of one round, the cost of an idle node, and the results of all rounds by server."""

from __future__ import annotations

import os
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from bench.servers import CHRONIK_GROUP, CHRONIK_OS, MINIMAL_SERVER, BenchmarkServer
from chronik.bench import consume, metadata, produce, round_trip, topics
from chronik.bench.consume import ConsumeLoad, ConsumeResult
from chronik.bench.librdkafka_config import ensure_topic
from chronik.bench.metadata import MetadataResult
from chronik.bench.produce import ProduceLoad, ProduceResult
from chronik.bench.report import rotate_servers
from chronik.bench.round_trip import RoundTripResult
from chronik.bench.statistics import MEGABYTE, read_cpu_seconds, read_resident_bytes
from chronik.bench.topics import TopicsResult
from chronik.client.cluster import ClusterClient

SERVERS: Final = (MINIMAL_SERVER, CHRONIK_OS, CHRONIK_GROUP)
CHRONIK: Final = (CHRONIK_OS, CHRONIK_GROUP)
SIZES: Final = (100, 1000)
TOPIC: Final = "load"
TRIPS_TOPIC: Final = "trips"

SETTLED_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class WorkloadPlan:
    """Sizes of the workloads."""

    rounds: int
    bytes_written: int
    """Per measurement. Much more would measure the disk: Linux throttles writers when a tenth of memory is dirty."""
    trips: int
    topics: int
    requests: int


@dataclass(slots=True)
class WorkloadResults:
    """Results of all rounds."""

    produced: dict[tuple[str, int], list[ProduceResult]] = field(default_factory=lambda: defaultdict(list))
    consumed: dict[tuple[str, int], list[ConsumeResult]] = field(default_factory=lambda: defaultdict(list))
    trips: dict[str, list[RoundTripResult]] = field(default_factory=lambda: defaultdict(list))
    topics: list[TopicsResult] = field(default_factory=list)
    metadata: list[MetadataResult] = field(default_factory=list)


def run_round(plan: WorkloadPlan, number: int, parent: Path, figures: WorkloadResults) -> None:
    """Run every server with every record size, each freshly started, in rotated order."""
    for size in SIZES:
        for name in rotate_servers(SERVERS, number):
            with BenchmarkServer(name, parent) as server:
                _produce_and_consume(plan, name, size, server, figures)
                if name != MINIMAL_SERVER and size == SIZES[0]:
                    figures.trips[name].append(_round_trips(plan, server))


def run_single_measurements(plan: WorkloadPlan, parent: Path, figures: WorkloadResults) -> None:
    """Measure what has no baseline and therefore needs only one run."""
    with BenchmarkServer(CHRONIK_GROUP, parent) as server:
        figures.topics = topics.measure(server.bootstrap, plan.topics)
        with ClusterClient(server.bootstrap) as cluster:
            figures.metadata = [metadata.measure(cluster, plan.topics, plan.requests)]


def _produce_and_consume(
    plan: WorkloadPlan, name: str, size: int, server: BenchmarkServer, figures: WorkloadResults
) -> None:
    with ClusterClient(server.bootstrap) as cluster:
        ensure_topic(cluster, TOPIC, partitions=1)
    os.sync()  # an earlier server's dirty pages must not slow this one
    load = ProduceLoad(server.bootstrap, TOPIC, plan.bytes_written // size, size, broker_pid=server.pid)
    figures.produced[name, size].append(produce.measure(load))
    if name != MINIMAL_SERVER:
        read = ConsumeLoad(server.bootstrap, TOPIC, 1, load.records, server.pid)
        figures.consumed[name, size].append(consume.measure(read))


def _round_trips(plan: WorkloadPlan, server: BenchmarkServer) -> RoundTripResult:
    with ClusterClient(server.bootstrap) as cluster:
        ensure_topic(cluster, TRIPS_TOPIC, partitions=1)
    return round_trip.measure(server.bootstrap, TRIPS_TOPIC, plan.trips)


@dataclass(frozen=True, slots=True)
class IdleResult:
    """Start times, memory and CPU of an idle node."""

    start_ms: list[float]
    resident_mb: float
    cpu_percent: float


def measure_idle(parent: Path, starts: int, idle_seconds: float) -> IdleResult:
    """Measure Chronik with its default settings."""
    start_ms = []
    for _ in range(1 + starts):
        with BenchmarkServer(CHRONIK_GROUP, parent) as server:
            start_ms.append(1000 * server.first_response_seconds)
    del start_ms[0]  # compiled the modules, once
    with BenchmarkServer(CHRONIK_GROUP, parent) as server:
        time.sleep(SETTLED_SECONDS)
        resident = read_resident_bytes(server.pid)
        cpu_s = read_cpu_seconds(server.pid)
        time.sleep(idle_seconds)
        cpu_s = read_cpu_seconds(server.pid) - cpu_s
    return IdleResult(start_ms, resident / MEGABYTE, 100 * cpu_s / idle_seconds)

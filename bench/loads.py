"""The workloads of one round, and the results of all rounds by server."""

from __future__ import annotations

import os
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from bench.servers import CHRONIK_GROUP, CHRONIK_OS, FLOOR, Server
from chronik.bench import consume, metadata, produce, round_trip, topics
from chronik.bench.clients import ensure_topic
from chronik.bench.consume import ConsumeLoad, ConsumeResult
from chronik.bench.metadata import MetadataResult
from chronik.bench.produce import ProduceLoad, ProduceResult
from chronik.bench.round_trip import RoundTripResult
from chronik.bench.rounds import in_turn
from chronik.bench.topics import TopicsResult
from chronik.client.cluster import Cluster

SERVERS: Final = (FLOOR, CHRONIK_OS, CHRONIK_GROUP)
CHRONIK: Final = (CHRONIK_OS, CHRONIK_GROUP)
SIZES: Final = (100, 1000)
TOPIC: Final = "load"
TRIPS_TOPIC: Final = "trips"


@dataclass(frozen=True, slots=True)
class Plan:
    """Sizes of the workloads."""

    rounds: int
    bytes_written: int
    """Per measurement. Much more would measure the disk: Linux throttles writers when a tenth of memory is dirty."""
    trips: int
    topics: int
    requests: int


@dataclass(slots=True)
class Figures:
    """Results of all rounds."""

    produced: dict[tuple[str, int], list[ProduceResult]] = field(default_factory=lambda: defaultdict(list))
    consumed: dict[tuple[str, int], list[ConsumeResult]] = field(default_factory=lambda: defaultdict(list))
    trips: dict[str, list[RoundTripResult]] = field(default_factory=lambda: defaultdict(list))
    topics: list[TopicsResult] = field(default_factory=list)
    metadata: list[MetadataResult] = field(default_factory=list)


def run_round(plan: Plan, number: int, parent: Path, figures: Figures) -> None:
    """Run every server with every record size, each freshly started, in rotated order."""
    for size in SIZES:
        for name in in_turn(SERVERS, number):
            with Server(name, parent) as server:
                _produce_and_consume(plan, name, size, server, figures)
                if name != FLOOR and size == SIZES[0]:
                    figures.trips[name].append(_round_trips(plan, server))


def run_once(plan: Plan, parent: Path, figures: Figures) -> None:
    """Measure what has no baseline and therefore needs only one run."""
    with Server(CHRONIK_GROUP, parent) as server:
        figures.topics = topics.measure(server.bootstrap, plan.topics)
        with Cluster(server.bootstrap) as cluster:
            figures.metadata = [metadata.measure(cluster, plan.topics, plan.requests)]


def _produce_and_consume(plan: Plan, name: str, size: int, server: Server, figures: Figures) -> None:
    with Cluster(server.bootstrap) as cluster:
        ensure_topic(cluster, TOPIC, partitions=1)
    os.sync()  # an earlier server's dirty pages must not slow this one
    load = ProduceLoad(server.bootstrap, TOPIC, plan.bytes_written // size, size, broker_pid=server.pid)
    figures.produced[name, size].append(produce.measure(load))
    if name != FLOOR:
        read = ConsumeLoad(server.bootstrap, TOPIC, 1, load.records, server.pid)
        figures.consumed[name, size].append(consume.measure(read))


def _round_trips(plan: Plan, server: Server) -> RoundTripResult:
    with Cluster(server.bootstrap) as cluster:
        ensure_topic(cluster, TRIPS_TOPIC, partitions=1)
    return round_trip.measure(server.bootstrap, TRIPS_TOPIC, plan.trips)

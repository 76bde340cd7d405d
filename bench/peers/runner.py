"""The run: start times, a warm-up, then rounds that measure each server in rotation."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.kafka_comparison import RunningServer, print_progress
from bench.peers.figures import RECORD_BYTES, PeerSubject, ServerResults
from chronik.bench import consume, produce
from chronik.bench.consume import ConsumeLoad
from chronik.bench.librdkafka_config import create_temporary_topics, generate_name
from chronik.bench.produce import ProduceLoad
from chronik.bench.report import rotate_servers
from chronik.bench.round_trip import measure_round_trips, summarize_round_trips
from chronik.bench.statistics import MEGABYTE, MILLION, read_cpu_seconds, read_resident_bytes
from chronik.client.cluster import ClusterClient

BYTES_MAX: Final = 1000 * MEGABYTE
"""Written per measurement. Much more would measure the disk."""

RECORDS_MIN: Final = 20_000
"""Fewer may all arrive in one response, which leaves nothing to time."""

WARM_UP_BYTES_PER_SECOND: Final = 5 * MEGABYTE
WARM_UP_TRIPS: Final = 1000
SETTLED_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class PeerBenchmarkPlan:
    """Parameters of a run."""

    rounds: int
    seconds: float
    """Duration of one load of one server."""
    trips: int
    starts: int


def measure(measured: Sequence[PeerSubject], plan: PeerBenchmarkPlan, directory: Path) -> list[ServerResults]:
    figures = {subject.name: ServerResults(subject.server, subject.nodes, {}) for subject in measured}
    by_name = {subject.name: subject for subject in measured}
    _measure_starts(by_name, plan, directory, figures)
    with ExitStack() as stack:
        running: dict[str, RunningServer] = {}
        for name, subject in by_name.items():
            print_progress(f"starting {name}")
            running[name] = stack.enter_context(subject.start(directory))
        counts = {name: _warm_up(running[name], by_name[name].nodes, plan) for name in by_name}
        for round_number in range(plan.rounds):
            for name in rotate_servers(list(by_name), round_number):
                print_progress(f"round {round_number + 1} of {plan.rounds}: {name}")
                _run_round(running[name], by_name[name].nodes, plan, counts[name], figures[name])
    return list(figures.values())


def _measure_starts(
    by_name: dict[str, PeerSubject], plan: PeerBenchmarkPlan, directory: Path, figures: dict[str, ServerResults]
) -> None:
    """Measure start times one by one. The first start, which compiles Chronik's modules, is not counted."""
    for round_number in range(-1, plan.starts):
        for name in rotate_servers(list(by_name), round_number % max(1, plan.starts)):
            print_progress(f"start {round_number + 1} of {plan.starts}: {name}")
            with by_name[name].start(directory) as server:
                if round_number < 0:
                    continue
                figures[name].add("start", server.first_response_seconds)
                time.sleep(SETTLED_SECONDS)
                figures[name].add("memory_idle", _resident_mb(server))


def _warm_up(server: RunningServer, nodes: int, plan: PeerBenchmarkPlan) -> dict[int, int]:
    """Warm up, because Java compiles hot code, and return the number of records that fill the requested duration."""
    counts = {}
    for size in RECORD_BYTES:
        records = max(RECORDS_MIN, int(WARM_UP_BYTES_PER_SECOND * plan.seconds / size))
        deadline = time.monotonic() + 2 * plan.seconds
        while True:
            rate = _produce_and_consume(server, nodes, size, records, ServerResults("", 0, {}))
            if time.monotonic() > deadline:
                break
        counts[size] = max(RECORDS_MIN, min(int(rate * plan.seconds), BYTES_MAX // size))
    _measure_trips(server, nodes, min(WARM_UP_TRIPS, plan.trips), ServerResults("", 0, {}))
    return counts


def _run_round(
    server: RunningServer, nodes: int, plan: PeerBenchmarkPlan, counts: dict[int, int], figures: ServerResults
) -> None:
    for size, records in counts.items():
        _produce_and_consume(server, nodes, size, records, figures)
    _measure_trips(server, nodes, plan.trips, figures)
    figures.add("memory_loaded", _resident_mb(server))


def _produce_and_consume(server: RunningServer, nodes: int, size: int, records: int, figures: ServerResults) -> float:
    """Produce and consume records, add the results, and return the produce rate."""
    topic = generate_name("peers")
    with ClusterClient(server.bootstrap) as cluster, create_temporary_topics(cluster, [topic], 1, nodes):
        os.sync()  # an earlier server's dirty pages must not slow this one
        cpu_before_s = _cpu_seconds(server)
        written = produce.measure(ProduceLoad(server.bootstrap, topic, records, size))
        figures.add(f"produce_{size}", written.records_per_second)
        figures.add(f"produce_cpu_{size}", (_cpu_seconds(server) - cpu_before_s) / records * MILLION)
        cpu_before_s = _cpu_seconds(server)
        read = consume.measure(ConsumeLoad(server.bootstrap, topic, 1, records))
        figures.add(f"consume_{size}", read.records_per_second)
        figures.add(f"consume_cpu_{size}", (_cpu_seconds(server) - cpu_before_s) / records * MILLION)
    return written.records_per_second


def _measure_trips(server: RunningServer, nodes: int, trips: int, figures: ServerResults) -> None:
    topic = generate_name("peers-trips")
    with ClusterClient(server.bootstrap) as cluster, create_temporary_topics(cluster, [topic], 1, nodes):
        latency = summarize_round_trips(
            measure_round_trips(server.bootstrap, topic, trips, RECORD_BYTES[0]), RECORD_BYTES[0]
        ).latency
    figures.add("trip_p50", latency.p50_ms)
    figures.add("trip_p99", latency.p99_ms)
    figures.add("trip_p999", latency.p999_ms)
    figures.add("trip_longest", latency.max_ms)


def _cpu_seconds(server: RunningServer) -> float:
    return sum(map(read_cpu_seconds, server.pids))


def _resident_mb(server: RunningServer) -> float:
    return sum(map(read_resident_bytes, server.pids)) / MEGABYTE

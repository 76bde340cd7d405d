"""Results of `make bench` as tables, as JSON, and compared with their targets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from statistics import median
from typing import Any, Final

from bench.results import BenchmarkRun, Cell, ResultTable, build_target_table
from bench.servers import CHRONIK_GROUP, CHRONIK_OS, MINIMAL_SERVER
from bench.workloads import CHRONIK, SERVERS, SIZES, IdleResult, WorkloadResults
from chronik.bench.report import BenchmarkTarget, Spread, below, build_minimum_target, median_ratio

RATIO_LEAST: Final = {CHRONIK_OS: 0.6, CHRONIK_GROUP: 0.5}
MINIMAL_RECORDS_PER_SECOND_LEAST: Final = 800_000
ROUND_TRIP_P50_MS_MAX: Final = 0.5
START_MS_MAX: Final = 300
RESIDENT_MB_MAX: Final = 60
CPU_PERCENT_MAX: Final = 1

BROKER_CPU: Final = "broker CPU, s per million records"
CLIENT_CPU: Final = "client CPU, s per million records"


def evaluate_targets(figures: WorkloadResults, idle: IdleResult) -> list[BenchmarkTarget]:
    minimal = median(_rates(figures.produced[MINIMAL_SERVER, SIZES[0]]))
    all_targets = [
        build_minimum_target(f"{MINIMAL_SERVER}, {SIZES[0]} B, records/s", minimal, MINIMAL_RECORDS_PER_SECOND_LEAST)
    ]
    for size in SIZES:
        for name, least in RATIO_LEAST.items():
            ratio = _ratio_to_minimal(figures, name, size)
            all_targets.append(build_minimum_target(f"{name}, {size} B, ratio to the minimal server", ratio, least))
    for name in CHRONIK:
        p50_ms = median(trips.latency.p50_ms for trips in figures.trips[name])
        all_targets.append(below(f"{name}, round trip p50, ms", p50_ms, ROUND_TRIP_P50_MS_MAX))
    all_targets.append(below("start, median, ms", median(idle.start_ms), START_MS_MAX))
    all_targets.append(below("idle memory, MB", idle.resident_mb, RESIDENT_MB_MAX))
    all_targets.append(below("idle CPU, % of a core", idle.cpu_percent, CPU_PERCENT_MAX))
    return all_targets


def build_tables(figures: WorkloadResults, idle: IdleResult, met: Sequence[BenchmarkTarget]) -> list[ResultTable]:
    return [
        _produce_table(figures),
        _consume_table(figures),
        _round_trip_table(figures),
        _node_table(figures, idle),
        build_target_table(met),
    ]


def to_json(
    figures: WorkloadResults, idle: IdleResult, met: Sequence[BenchmarkTarget], run: BenchmarkRun
) -> dict[str, Any]:
    return {
        "machine": run.machine,
        "load_before": run.load_before,
        "produce": _by_server_and_size(figures.produced),
        "consume": _by_server_and_size(figures.consumed),
        "round_trip": {name: [asdict(trips) for trips in rounds] for name, rounds in figures.trips.items()},
        "topics": [asdict(result) for result in figures.topics],
        "metadata": [asdict(result) for result in figures.metadata],
        "idle": asdict(idle),
        "targets": [asdict(target) for target in met],
    }


def _by_server_and_size(results: dict[tuple[str, int], list[Any]]) -> list[dict[str, Any]]:
    return [
        {"server": name, "record_bytes": size, "rounds": [asdict(result) for result in rounds]}
        for (name, size), rounds in results.items()
    ]


def _rates(results: Sequence[Any]) -> list[float]:
    return [result.records_per_second for result in results]


def _ratio_to_minimal(figures: WorkloadResults, name: str, size: int) -> float:
    return median_ratio(_rates(figures.produced[name, size]), _rates(figures.produced[MINIMAL_SERVER, size]))


def _produce_table(figures: WorkloadResults) -> ResultTable:
    headings = ["", "records/s", "max", "MB/s", "ratio to the minimal server", BROKER_CPU, CLIENT_CPU, "ack p50 ms"]
    rows: list[list[Cell]] = []
    for size in SIZES:
        for name in SERVERS:
            results = figures.produced[name, size]
            rates = Spread.from_values(_rates(results))
            rows.append(
                [
                    f"{size} B, {name}",
                    rates.median,
                    rates.most,
                    median(result.mb_per_second for result in results),
                    f"{_ratio_to_minimal(figures, name, size):.2f}",
                    median(result.broker_cpu_s_per_million or 0.0 for result in results),
                    median(result.client_cpu_s_per_million for result in results),
                    median(result.latency.p50_ms for result in results),
                ]
            )
    return ResultTable("Produce", headings, rows)


def _consume_table(figures: WorkloadResults) -> ResultTable:
    rows: list[list[Cell]] = []
    for size in SIZES:
        for name in CHRONIK:
            results = figures.consumed[name, size]
            rates = Spread.from_values(_rates(results))
            rows.append(
                [
                    f"{size} B, {name}",
                    rates.median,
                    rates.most,
                    median(result.mb_per_second for result in results),
                    median(result.broker_cpu_s_per_million or 0.0 for result in results),
                    median(result.client_cpu_s_per_million for result in results),
                ]
            )
    return ResultTable("Consume", ["", "records/s", "max", "MB/s", BROKER_CPU, CLIENT_CPU], rows)


def _round_trip_table(figures: WorkloadResults) -> ResultTable:
    rows: list[list[Cell]] = []
    for name in CHRONIK:
        latencies = [trips.latency for trips in figures.trips[name]]
        rows.append(
            [
                name,
                median(latency.p50_ms for latency in latencies),
                median(latency.p99_ms for latency in latencies),
                median(latency.p999_ms for latency in latencies),
                max(latency.max_ms for latency in latencies),
            ]
        )
    return ResultTable("Round trip", ["", "p50 ms", "p99 ms", "p99.9 ms", "max ms"], rows)


def _node_table(figures: WorkloadResults, idle: IdleResult) -> ResultTable:
    start = Spread.from_values(idle.start_ms)
    rows: list[list[Cell]] = [
        [f"start until the first response, ms ({len(idle.start_ms)} starts)", start.median, start.most],
        ["idle memory, MB", idle.resident_mb, None],
        ["idle CPU, % of a core", idle.cpu_percent, None],
    ]
    for created in figures.topics:
        rows.append([f"{created.topics} topics created by {created.created_by}, ms", 1000 * created.seconds, None])
    for result in figures.metadata:
        what = f"metadata of one topic of {result.topics}"
        rows.append([f"{what}, requests/s", result.requests_per_second, None])
        rows.append([f"{what}, ms", result.latency.p50_ms, result.latency.max_ms])
    return ResultTable("Node", ["", "median", "max"], rows)

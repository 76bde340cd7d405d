"""Results as Markdown for docs/internals/benchmarks.md, as JSON, and compared with their targets."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any, Final

from bench.idle import IdleResult
from bench.servers import CHRONIK_GROUP, CHRONIK_OS, MINIMAL_SERVER
from bench.workloads import CHRONIK, SERVERS, SIZES, WorkloadResults
from chronik.bench.report import format_number
from chronik.bench.rounds import (
    BenchmarkTarget,
    Spread,
    at_least,
    below,
    format_markdown_table,
    format_target_rows,
    median_ratio,
)

RATIO_LEAST: Final = {CHRONIK_OS: 0.6, CHRONIK_GROUP: 0.5}
FLOOR_RECORDS_PER_SECOND_LEAST: Final = 800_000
ROUND_TRIP_P50_MS_MAX: Final = 0.5
START_MS_MAX: Final = 300
RESIDENT_MB_MAX: Final = 60
CPU_PERCENT_MAX: Final = 1


def describe_machine() -> str:
    model = platform.machine()  # platform.processor() would start a process
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [line.partition(":")[2].strip() for line in cpuinfo.read_text().splitlines() if "model name" in line]
        model = names[0] if names else model
    system = f"{platform.system()} {platform.release()}"
    return f"{os.cpu_count()} cores of {model}, {system}, Python {platform.python_version()}"


def evaluate_targets(figures: WorkloadResults, idle: IdleResult) -> list[BenchmarkTarget]:
    floor = median(_rates(figures.produced[MINIMAL_SERVER, SIZES[0]]))
    all_targets = [at_least(f"floor, {SIZES[0]} B, records/s", floor, FLOOR_RECORDS_PER_SECOND_LEAST)]
    for size in SIZES:
        for name, least in RATIO_LEAST.items():
            all_targets.append(at_least(f"{name}, {size} B, of the floor", _of_floor(figures, name, size), least))
    for name in CHRONIK:
        p50_ms = median(trips.latency.p50_ms for trips in figures.trips[name])
        all_targets.append(below(f"{name}, round trip p50, ms", p50_ms, ROUND_TRIP_P50_MS_MAX))
    all_targets.append(below("exec to first answer, median, ms", median(idle.start_ms), START_MS_MAX))
    all_targets.append(below("idle memory, MB", idle.resident_mb, RESIDENT_MB_MAX))
    all_targets.append(below("idle CPU, % of a core", idle.cpu_percent, CPU_PERCENT_MAX))
    return all_targets


def format_report(
    figures: WorkloadResults, idle: IdleResult, met: Sequence[BenchmarkTarget], load_before: float
) -> str:
    """Format the report. `load_before` is the load average at the start; above a few tenths, other processes ran."""
    rounds = len(figures.produced[MINIMAL_SERVER, SIZES[0]])
    sections = [
        f"Measured on {describe_machine()}; load before: {load_before:.2f}. "
        f"Medians of {rounds} interleaved rounds; ratios are taken within a round.",
        "### Produce: one librdkafka producer, acks=all, one partition\n\n" + _produce_table(figures),
        "### Consume: one librdkafka consumer, from the beginning\n\n" + _consume_table(figures),
        "### Round trip: one record of 100 B from produce to consume\n\n" + _round_trip_table(figures),
        "### Node\n\n" + _node_table(figures, idle),
        "### Targets\n\n" + format_markdown_table(["", "wanted", "measured", ""], format_target_rows(met)),
    ]
    return "\n\n".join(sections)


def to_json(
    figures: WorkloadResults, idle: IdleResult, met: Sequence[BenchmarkTarget], load_before: float
) -> dict[str, Any]:
    return {
        "machine": describe_machine(),
        "load_before": load_before,
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


def _of_floor(figures: WorkloadResults, name: str, size: int) -> float:
    return median_ratio(_rates(figures.produced[name, size]), _rates(figures.produced[MINIMAL_SERVER, size]))


def _produce_table(figures: WorkloadResults) -> str:
    headings = ["", "records/s", "most", "MB/s", "of the floor", "broker CPU s/M", "client CPU s/M", "ack p50 ms"]
    rows = []
    for size in SIZES:
        for name in SERVERS:
            results = figures.produced[name, size]
            rates = Spread.from_values(_rates(results))
            rows.append(
                [
                    f"{size} B, {name}",
                    f"{rates.median:,.0f}",
                    f"{rates.most:,.0f}",
                    format_number(median(result.mb_per_second for result in results)),
                    f"{_of_floor(figures, name, size):.2f}",
                    format_number(median(result.broker_cpu_s_per_million or 0.0 for result in results)),
                    format_number(median(result.client_cpu_s_per_million for result in results)),
                    format_number(median(result.latency.p50_ms for result in results)),
                ]
            )
    return format_markdown_table(headings, rows)


def _consume_table(figures: WorkloadResults) -> str:
    headings = ["", "records/s", "most", "MB/s", "broker CPU s/M", "client CPU s/M"]
    rows = []
    for size in SIZES:
        for name in CHRONIK:
            results = figures.consumed[name, size]
            rates = Spread.from_values(_rates(results))
            rows.append(
                [
                    f"{size} B, {name}",
                    f"{rates.median:,.0f}",
                    f"{rates.most:,.0f}",
                    format_number(median(result.mb_per_second for result in results)),
                    format_number(median(result.broker_cpu_s_per_million or 0.0 for result in results)),
                    format_number(median(result.client_cpu_s_per_million for result in results)),
                ]
            )
    return format_markdown_table(headings, rows)


def _round_trip_table(figures: WorkloadResults) -> str:
    rows = []
    for name in CHRONIK:
        latencies = [trips.latency for trips in figures.trips[name]]
        rows.append(
            [
                name,
                format_number(median(latency.p50_ms for latency in latencies)),
                format_number(median(latency.p99_ms for latency in latencies)),
                format_number(median(latency.p999_ms for latency in latencies)),
                format_number(max(latency.max_ms for latency in latencies)),
            ]
        )
    return format_markdown_table(["", "p50 ms", "p99 ms", "p99.9 ms", "max ms"], rows)


def _node_table(figures: WorkloadResults, idle: IdleResult) -> str:
    start = Spread.from_values(idle.start_ms)
    rows = [
        [f"exec to first answer, median of {len(idle.start_ms)}", f"{start.median:.0f} ms", f"{start.most:.0f} ms"],
        ["resident memory, idle", f"{idle.resident_mb:.1f} MB", ""],
        ["CPU, idle", f"{idle.cpu_percent:.2f} % of a core", ""],
    ]
    for created in figures.topics:
        rows.append(
            [f"{created.topics} topics created by {created.created_by}", f"{1000 * created.seconds:,.0f} ms", ""]
        )
    for result in figures.metadata:
        rows.append(
            [
                f"Metadata of one topic among {result.topics}, {result.requests_per_second:,.0f} requests/s, p50",
                f"{result.latency.p50_ms:.3f} ms",
                f"{result.latency.max_ms:.1f} ms",
            ]
        )
    return format_markdown_table(["", "", "most"], rows)

from __future__ import annotations

import os

import pytest

from bench.results import build_target_table
from chronik.bench.errors import BenchmarkError
from chronik.bench.produce import ProduceResult
from chronik.bench.report import (
    MISSED_LABEL,
    Spread,
    below,
    build_minimum_target,
    format_markdown_table,
    format_number,
    format_table,
    median_ratio,
    rotate_servers,
)
from chronik.bench.statistics import CpuMeter, Latency, percentile, read_cpu_seconds, read_resident_bytes


def test_percentile_uses_nearest_rank() -> None:
    values = [float(value) for value in range(1, 101)]
    assert percentile(values, 50) == 50
    assert percentile(values, 99) == 99
    assert percentile(values, 100) == 100
    assert percentile([7.0], 50) == percentile([7.0], 99) == 7


def test_latency_sorts_values_and_converts_to_milliseconds() -> None:
    assert Latency.from_seconds([0.003, 0.001, 0.002]) == Latency(p50_ms=2.0, p99_ms=3.0, p999_ms=3.0, max_ms=3.0)


def test_latency_of_no_values_raises_error() -> None:
    with pytest.raises(BenchmarkError, match="no latencies were measured"):
        Latency.from_seconds([])


def test_median_ratio_is_computed_within_rounds() -> None:
    # The second round ran on a busy machine: the ratio of the medians would be 1.0.
    assert median_ratio([50, 5, 60], [100, 10, 50]) == 0.5
    with pytest.raises(ValueError, match="zip"):
        median_ratio([1.0], [1.0, 2.0])


def test_spread_contains_median_minimum_and_maximum() -> None:
    assert Spread.from_values([3.0, 1.0, 2.0]) == Spread(2.0, 1.0, 3.0)


def test_server_order_rotates_every_round() -> None:
    assert [rotate_servers("abc", number) for number in range(4)] == [
        ["a", "b", "c"],
        ["b", "c", "a"],
        ["c", "a", "b"],
        ["a", "b", "c"],
    ]


def test_target_rows_mark_missed_targets() -> None:
    targets = [build_minimum_target("ratio", 0.6, 0.6), build_minimum_target("ratio", 0.59, 0.6), below("ms", 300, 300)]
    rows = build_target_table(targets).rows
    assert [row[-1] for row in rows] == ["met", MISSED_LABEL, MISSED_LABEL]
    assert rows[1] == ["ratio", "at least 0.6", 0.59, MISSED_LABEL]


def test_number_is_formatted_with_four_significant_digits() -> None:
    assert [format_number(value) for value in (1234567, 1234567.8, 12.3456, 0.0512345, 0.0, 0.00001234, "x")] == [
        "1,234,567",
        "1,234,568",
        "12.35",
        "0.05123",
        "0",
        "0.000012",
        "x",
    ]


def test_result_table_omits_unknown_values() -> None:
    result = ProduceResult(10, 100, 0.5, 20.0, 0.002, 0.1, None, Latency(1.0, 2.0, 2.5, 3.0))
    lines = dict(line.rsplit(maxsplit=1) for line in format_table([result]).splitlines())
    assert lines["records per second"] == "20"
    assert lines["latency p99 ms"] == "2"
    assert not any("broker" in name for name in lines)


def test_markdown_table_right_aligns_numbers() -> None:
    assert format_markdown_table(["", "ms"], [["start", "7"]]).splitlines() == [
        "|       | ms |",
        "| :---- | -: |",
        "| start |  7 |",
    ]


def test_cpu_meter_measures_cpu_time_of_process() -> None:
    meter = CpuMeter(os.getpid())
    before_s = read_cpu_seconds(os.getpid())
    while read_cpu_seconds(os.getpid()) < before_s + 0.02:
        pass
    cpu_s = meter.compute_seconds_per_million(1_000_000)
    assert cpu_s is not None
    assert cpu_s >= 0.019  # the kernel's clock is rounded
    assert CpuMeter(None).compute_seconds_per_million(1) is None
    assert read_resident_bytes(os.getpid()) > 1_000_000


def test_cpu_seconds_of_missing_process_raises_error() -> None:
    with pytest.raises(BenchmarkError, match="process 4194305"):
        read_cpu_seconds(4194305)  # above Linux' maximum process id

"""Whether landing scales linearly in time with constant memory. Each size is landed by a process of its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import defaultdict
from typing import Final

from bench.cluster.figures import Figure
from bench.pipeline.lander import READY
from bench.pipeline.landing import WARM_UP_RECORDS
from bench.pipeline.plan import PipelineBenchmarkPlan, format_millions
from bench.pipeline.processes import PeakMemory
from bench.servers import ROOT
from chronik.bench.errors import BenchmarkError
from chronik.bench.report import rotate_servers
from chronik.bench.statistics import MEGABYTE

RATE_RATIO_LEAST: Final = 0.8
MEMORY_RATIO_MAX: Final = 1.25
"""Tolerance for heaps and allocators. Memory proportional to the rows would exceed it many times."""

STOP_SECONDS_MAX: Final = 60.0


def measure_growth(plan: PipelineBenchmarkPlan) -> list[Figure]:
    rates: dict[int, list[float]] = defaultdict(list)
    memory: dict[int, list[float]] = defaultdict(list)
    names = {str(size): size for size in plan.sizes}
    for number in range(plan.growth_rounds):
        for name in rotate_servers(list(names), number):
            rate, peak = _land(plan, names[name])
            rates[names[name]].append(rate)
            memory[names[name]].append(peak / MEGABYTE)
    least, most = min(plan.sizes), max(plan.sizes)
    what = f"{format_millions(most)} rows / {format_millions(least)} rows"
    return [
        Figure(f"{what}: rows/s", _ratios(rates[most], rates[least]), at_least=RATE_RATIO_LEAST),
        Figure(f"{what}: memory of all processes", _ratios(memory[most], memory[least]), below=MEMORY_RATIO_MAX),
        *(Figure(f"{format_millions(size)} rows: rows/s", rates[size]) for size in plan.sizes),
        *(Figure(f"{format_millions(size)} rows: memory of all processes, MB", memory[size]) for size in plan.sizes),
    ]


def _ratios(values: list[float], bases: list[float]) -> list[float]:
    return [value / base for value, base in zip(values, bases, strict=True)]


def _land(plan: PipelineBenchmarkPlan, records: int) -> tuple[float, int]:
    """Land a topic and return the rows per second and the peak memory of all processes. Raises BenchFailed."""
    topics = [plan.topic(WARM_UP_RECORDS), plan.topic(records)]
    folder = plan.directory / "tables"
    shutil.rmtree(folder, ignore_errors=True)
    os.sync()
    command = [sys.executable, "-m", "bench.pipeline.lander", plan.bootstrap, str(folder), *topics]
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        if process.stdout.readline().strip() != READY:
            raise BenchmarkError(f"the landing process exited with code {process.wait()} before it was ready")
        with PeakMemory(process.pid) as peak:
            process.stdin.write("\n")
            process.stdin.flush()
            result_line = process.stdout.readline()
        if not result_line:
            raise BenchmarkError(f"the landing process exited with code {process.wait()}")
        process.wait(STOP_SECONDS_MAX)
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()
        shutil.rmtree(folder, ignore_errors=True)
    landed = json.loads(result_line)
    if landed["rows"] != records:
        raise BenchmarkError(f"{landed['rows']:,} of {records:,} rows landed")
    return records / landed["seconds"], peak.bytes

"""Latency percentiles, and CPU time and memory of processes on this machine."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from chronik.bench.errors import BenchmarkError

MEGABYTE = 1_000_000
MILLION = 1_000_000

_CPU_TIME_OF_PROCESS = 2
"""Linux clock type CPUCLOCK_SCHED: the low bits of a process's CPU clock id."""


@dataclass(frozen=True, slots=True)
class Latency:
    """Percentiles of latencies in milliseconds."""

    p50_ms: float
    p99_ms: float
    p999_ms: float
    """The 99.9th percentile."""
    max_ms: float

    @classmethod
    def from_seconds(cls, seconds: Iterable[float]) -> Latency:
        """Compute the percentiles of latencies in seconds. Raises BenchmarkError if there are none."""
        ordered = sorted(seconds)
        if not ordered:
            raise BenchmarkError("no latencies were measured")
        p50, p99, p999 = (1000 * percentile(ordered, percent) for percent in (50, 99, 99.9))
        return cls(p50, p99, p999, 1000 * ordered[-1])


def percentile(ordered: list[float], percent: float) -> float:
    """Return the nearest-rank percentile of sorted values, without interpolation."""
    return ordered[max(0, math.ceil(percent / 100 * len(ordered)) - 1)]


def read_cpu_seconds(pid: int) -> float:
    """Return the user and system CPU time of a process. Raises BenchmarkError if it is not available."""
    clock = ~pid << 3 | _CPU_TIME_OF_PROCESS
    try:
        return time.clock_gettime(clock)
    except OSError as error:
        raise BenchmarkError(f"cannot read the CPU time of process {pid}: {error.strerror}") from error


def read_resident_bytes(pid: int) -> int:
    return int(_read_proc_file(pid, "statm").split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _read_proc_file(pid: int, name: str) -> str:
    try:
        return Path(f"/proc/{pid}/{name}").read_text(encoding="ascii")
    except OSError as error:
        raise BenchmarkError(f"cannot read the resource usage of process {pid}: {error.strerror}") from error


class CpuMeter:
    """A meter of the CPU time that a broker process uses after the meter was created.

    Without a process id, results are None.
    """

    def __init__(self, pid: int | None) -> None:
        self._pid = pid
        self._start_s = 0.0 if pid is None else read_cpu_seconds(pid)

    def compute_seconds_per_million(self, records: int) -> float | None:
        if self._pid is None:
            return None
        return (read_cpu_seconds(self._pid) - self._start_s) / records * MILLION

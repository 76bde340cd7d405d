"""What is measured besides counts: latencies by percentile, and what a process on this machine has used."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from chronik.bench.errors import BenchFailed

MEGABYTE = 1_000_000
MILLION = 1_000_000

_CPU_TIME_OF_PROCESS = 2
"""The last bits of the number of a process's clock: they choose the one that counts nanoseconds, not ticks."""


@dataclass(frozen=True, slots=True)
class Latency:
    p50_ms: float
    p99_ms: float
    p999_ms: float
    """Of 1,000, the one that only one exceeds."""
    max_ms: float

    @classmethod
    def of(cls, seconds: Iterable[float]) -> Latency:
        """Raises BenchFailed when there is nothing to tell."""
        ordered = sorted(seconds)
        if not ordered:
            raise BenchFailed("nothing was measured")
        p50, p99, p999 = (1000 * percentile(ordered, percent) for percent in (50, 99, 99.9))
        return cls(p50, p99, p999, 1000 * ordered[-1])


def percentile(ordered: list[float], percent: float) -> float:
    """Returns the nearest rank: the least value that is not below `percent` of them. No value is made up."""
    return ordered[max(0, math.ceil(percent / 100 * len(ordered)) - 1)]


def cpu_seconds(pid: int) -> float:
    """Returns user and system time of a process with its threads. Raises BenchFailed where the system does not tell."""
    clock = ~pid << 3 | _CPU_TIME_OF_PROCESS
    try:
        return time.clock_gettime(clock)
    except OSError as error:
        raise BenchFailed(f"the processor time of process {pid} cannot be read here: {error.strerror}") from error


def resident_bytes(pid: int) -> int:
    return int(_read(pid, "statm").split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _read(pid: int, name: str) -> str:
    try:
        return Path(f"/proc/{pid}/{name}").read_text(encoding="ascii")
    except OSError as error:
        raise BenchFailed(f"what process {pid} uses cannot be read here: {error.strerror}") from error


class CpuMeter:
    """The CPU time that a broker spends from now on; without a pid it knows nothing."""

    def __init__(self, pid: int | None) -> None:
        self._pid = pid
        self._start_s = 0.0 if pid is None else cpu_seconds(pid)

    def per_million(self, records: int) -> float | None:
        if self._pid is None:
            return None
        return (cpu_seconds(self._pid) - self._start_s) / records * MILLION

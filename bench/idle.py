"""The cost of an idle node: time to its first response, memory and CPU."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.servers import CHRONIK_GROUP, BenchmarkServer
from chronik.bench.statistics import MEGABYTE, read_cpu_seconds, read_resident_bytes

SETTLED_SECONDS: Final = 1.0


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

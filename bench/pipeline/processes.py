"""CPU time and memory of a process and its descendants: the driver, the JVM and Python workers."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final

from chronik.bench.errors import BenchmarkError
from chronik.bench.statistics import read_cpu_seconds

SAMPLE_SECONDS: Final = 0.25
KIB: Final = 1024


def list_process_tree(pid: int) -> list[int]:
    """Return the process id and those of all descendants; processes that exit meanwhile may be missing."""
    found = [pid]
    for each in found:
        try:
            threads = list(Path(f"/proc/{each}/task").iterdir())
            found += [int(child) for thread in threads for child in (thread / "children").read_text().split()]
        except OSError:
            continue
    return found


def read_tree_cpu_seconds(pid: int) -> float:
    """Return the CPU seconds of a process tree."""
    return sum(read_cpu_seconds_by_process(pid).values())


def read_cpu_seconds_by_process(pid: int) -> dict[int, float]:
    """Return the CPU seconds of each process of a tree, by process id."""
    found: dict[int, float] = {}
    for each in list_process_tree(pid):
        with suppress(BenchmarkError):  # the process has just exited
            found[each] = read_cpu_seconds(each)
    return found


def subtract_cpu_seconds(after: Mapping[int, float], before: Mapping[int, float]) -> float:
    """Return the CPU seconds between two readings, without those of processes that have exited: workers were idle."""
    return sum(max(0.0, seconds - before.get(pid, 0.0)) for pid, seconds in after.items())


def read_pss_bytes(pid: int) -> int:
    """Return the proportional set size (PSS), which divides shared pages among their processes."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:  # the process has just exited
        return 0
    return KIB * sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))


class PeakMemory:
    """A context manager that samples the memory of a process tree: `with PeakMemory(pid) as peak: …`, `peak.bytes`."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._stop_event = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self.bytes = 0

    def __enter__(self) -> PeakMemory:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stop_event.set()
        self._thread.join()

    def _sample(self) -> None:
        while True:
            self.bytes = max(self.bytes, sum(map(read_pss_bytes, list_process_tree(self._pid))))
            if self._stop_event.wait(SAMPLE_SECONDS):
                return

"""What a process and all that it has started take, in memory and time: the driver, Java, and Python's workers."""

from __future__ import annotations

import threading
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final

from chronik.bench.errors import BenchFailed
from chronik.bench.measures import cpu_seconds

SAMPLE_SECONDS: Final = 0.25
KIB: Final = 1024


def descendants(pid: int) -> list[int]:
    """The process itself among them; those that end meanwhile may be missing."""
    found = [pid]
    for each in found:
        try:
            threads = list(Path(f"/proc/{each}/task").iterdir())
            found += [int(child) for thread in threads for child in (thread / "children").read_text().split()]
        except OSError:
            continue
    return found


def tree_cpu_seconds(pid: int) -> float:
    """Of those that run: Spark's workers stay, so that the difference of two readings is what was used between."""
    total = 0.0
    for each in descendants(pid):
        with suppress(BenchFailed):  # it has just ended
            total += cpu_seconds(each)
    return total


def proportional_bytes(pid: int) -> int:
    """Pages that several processes share count by their share, so that a sum over processes is what they take."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:  # it has just ended
        return 0
    return KIB * sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))


class PeakMemory:
    """`with PeakMemory(pid) as peak: …`, then `peak.bytes`."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._ended = threading.Event()
        self._sampling = threading.Thread(target=self._sample, daemon=True)
        self.bytes = 0

    def __enter__(self) -> PeakMemory:
        self._sampling.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._ended.set()
        self._sampling.join()

    def _sample(self) -> None:
        while True:
            self.bytes = max(self.bytes, sum(map(proportional_bytes, descendants(self._pid))))
            if self._ended.wait(SAMPLE_SECONDS):
                return

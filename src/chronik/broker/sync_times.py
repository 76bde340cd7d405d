"""How long the disk has taken, so that a slow answer can be told from a slow disk."""

from __future__ import annotations

from collections import deque
from typing import Any, Final, NamedTuple

from chronik.meters import Histogram

SLOW_SYNC_SECONDS: Final = 0.05
"""A slow sync: a hundred times what a healthy disk takes."""

SLOW_SYNCS_KEPT_MAX: Final = 200
"""How many of the last slow syncs are kept. A status page shows them all."""


class Sync(NamedTuple):
    """When a sync began and ended, by the clock that all processes of a machine share (`time.perf_counter`)."""

    began: float
    ended: float

    @property
    def seconds(self) -> float:
        return self.ended - self.began


class SyncTimes:
    __slots__ = ("count", "longest_seconds", "slow", "slow_count", "took")

    def __init__(self) -> None:
        self.count = 0
        self.took = Histogram()
        self.longest_seconds = 0.0
        self.slow_count = 0
        self.slow: deque[Sync] = deque(maxlen=SLOW_SYNCS_KEPT_MAX)

    def add(self, sync: Sync) -> None:
        self.count += 1
        seconds = sync.ended - sync.began
        self.took.add(seconds)
        if seconds > self.longest_seconds:
            self.longest_seconds = seconds
        if seconds > SLOW_SYNC_SECONDS:
            self.slow_count += 1
            self.slow.append(sync)

    def view(self) -> dict[str, Any]:
        """Returns what the status page shows. `recent_slow` holds [began, ended] of each, in seconds, oldest first."""
        return {
            "count": self.count,
            "longest_ms": round(1000 * self.longest_seconds, 3),
            "slow": self.slow_count,
            "recent_slow": [list(sync) for sync in self.slow],
        }

"""Metrics of sync durations, which distinguish a slow response from a slow disk."""

from __future__ import annotations

from collections import deque
from typing import Any, Final, NamedTuple

from chronik.histogram import Histogram

SLOW_SYNC_SECONDS: Final = 0.05
"""Duration of a slow sync: a hundred times that of a healthy disk."""

RECENT_SLOW_SYNCS_MAX: Final = 200
"""Recent slow syncs that are kept and shown on the status page."""


class SyncInterval(NamedTuple):
    """The start and end of a sync, by the clock that all processes of a machine share (`time.perf_counter`)."""

    started_at: float
    ended_at: float

    @property
    def seconds(self) -> float:
        return self.ended_at - self.started_at


class SyncMetrics:
    """Counters and durations of a node's syncs."""

    __slots__ = ("count", "durations", "longest_seconds", "slow_count", "slow_syncs")

    def __init__(self) -> None:
        self.count = 0
        self.durations = Histogram()
        self.longest_seconds = 0.0
        self.slow_count = 0
        self.slow_syncs: deque[SyncInterval] = deque(maxlen=RECENT_SLOW_SYNCS_MAX)

    def add(self, sync: SyncInterval) -> None:
        self.count += 1
        seconds = sync.ended_at - sync.started_at
        self.durations.record(seconds)
        if seconds > self.longest_seconds:
            self.longest_seconds = seconds
        if seconds > SLOW_SYNC_SECONDS:
            self.slow_count += 1
            self.slow_syncs.append(sync)

    def to_json(self) -> dict[str, Any]:
        """Return the values for the status page.

        `recent_slow` has [start, end] of each sync in seconds, oldest first.
        """
        return {
            "count": self.count,
            "longest_ms": round(1000 * self.longest_seconds, 3),
            "slow": self.slow_count,
            "recent_slow": [list(sync) for sync in self.slow_syncs],
        }

"""Latency histograms with fixed buckets that allocate nothing when a value is recorded.

Only one thread may write to a histogram. Readers in other threads may see a value that is being added.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

LATENCY_SECONDS: Final = (
    *(0.0001, 0.00025, 0.0005),
    *(0.001, 0.0025, 0.005),
    *(0.01, 0.025, 0.05),
    *(0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0),
)
"""Upper bounds of the histogram buckets in seconds, from the latency of a small request to typical client timeouts."""


class Histogram:
    """A latency histogram with the upper bucket bounds LATENCY_SECONDS."""

    __slots__ = ("counts", "total_seconds")

    bounds: Final = LATENCY_SECONDS

    def __init__(self) -> None:
        self.counts = [0] * (len(LATENCY_SECONDS) + 1)
        """Number of recorded values per bucket. The last element counts values above all bounds."""
        self.total_seconds = 0.0
        """Sum of all recorded values in seconds."""

    def record(self, seconds: float) -> None:
        """Record a duration in seconds."""
        self.counts[bisect_left(LATENCY_SECONDS, seconds)] += 1
        self.total_seconds += seconds

    @property
    def count(self) -> int:
        """Return the number of recorded values."""
        return sum(self.counts)


def quantile(counts: Sequence[int], fraction: float) -> float | None:
    """Return a quantile in seconds, interpolated linearly within its bucket, or None if the histogram is empty.

    Values above every bound count as the highest bound.
    """
    rank = fraction * sum(counts)
    if not rank:
        return None
    below = 0
    for number, count in enumerate(counts):
        if count and below + count >= rank:
            if number == len(LATENCY_SECONDS):
                break
            low = LATENCY_SECONDS[number - 1] if number else 0.0
            return low + (LATENCY_SECONDS[number] - low) * (rank - below) / count
        below += count
    return LATENCY_SECONDS[-1]

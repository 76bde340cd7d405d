"""Counting what happens often: how long things take, in fixed buckets, with no allocation.

A count is one search and one addition. Whoever shows counts reads them as they are: a meter is written by one thread.
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
"""Upper bounds of buckets, for all that takes time here: from a small request to what no client waits for."""


class Histogram:
    __slots__ = ("counts", "seconds")

    bounds: Final = LATENCY_SECONDS

    def __init__(self) -> None:
        self.counts = [0] * (len(LATENCY_SECONDS) + 1)
        """By bucket, and last of all what is above every bound."""
        self.seconds = 0.0
        """All together."""

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(LATENCY_SECONDS, seconds)] += 1
        self.seconds += seconds

    @property
    def count(self) -> int:
        return sum(self.counts)


def quantile(counts: Sequence[int], share: float) -> float | None:
    """Returns the seconds below which this share of the counted lies, within its bucket as if evenly spread; None when
    nothing was counted. What is above every bound counts as the highest of them."""
    rank = share * sum(counts)
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

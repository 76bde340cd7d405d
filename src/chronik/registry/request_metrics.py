"""Counters and latencies of the schema registry's REST operations on one node."""

from __future__ import annotations

from collections import Counter

from chronik.histogram import Histogram


class RegistryRequestMeter:
    """The requests to this node's schema registry by operation: their number, latencies and error codes."""

    __slots__ = ("errors", "latencies")

    def __init__(self) -> None:
        self.latencies: dict[str, Histogram] = {}
        """Time from receiving a request to encoding its response, by operation. Contains only used operations."""
        self.errors: Counter[tuple[str, int]] = Counter()
        """Number of error responses by operation and error code."""

    def record(self, operation: str, seconds: float, error_code: int | None = None) -> None:
        """Record an answered request, and the error code of its response if there is one."""
        histogram = self.latencies.get(operation)
        if histogram is None:
            histogram = self.latencies[operation] = Histogram()
        histogram.record(seconds)
        if error_code is not None:
            self.errors[operation, error_code] += 1

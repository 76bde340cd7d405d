"""A node's key statistics, from which the console's live view is computed."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from chronik.histogram import quantile

BucketCounts = tuple[int, ...]
"""Counts per histogram bucket of `chronik.histogram`."""


class LatencyQuantiles(NamedTuple):
    """Latency quantiles in seconds; None if nothing was measured."""

    p50: float | None
    p99: float | None


class NodeStats(msgspec.Struct, frozen=True):
    """Cumulative statistics since the node started. Rates are the difference of two snapshots."""

    in_bytes: int
    out_bytes: int
    requests: int
    errors: int
    """Error codes in responses. A response has one for each part that failed."""
    connections: int
    memory_bytes: int | None
    cpu_seconds: float
    produce_counts: BucketCounts
    fetch_counts: BucketCounts
    """Fetch requests that were answered immediately. Others wait for records for as long as the client asks."""

    def produce_latency_since(self, earlier: NodeStats | None) -> LatencyQuantiles:
        """Return the latency of Produce requests since an earlier snapshot, or since the start."""
        return _latency_since(self.produce_counts, earlier.produce_counts if earlier is not None else None)

    def fetch_latency_since(self, earlier: NodeStats | None) -> LatencyQuantiles:
        """Return the latency of Fetch requests since an earlier snapshot, or since the start."""
        return _latency_since(self.fetch_counts, earlier.fetch_counts if earlier is not None else None)


def _latency_since(now: BucketCounts, before: BucketCounts | None) -> LatencyQuantiles:
    since = now if before is None else [count - earlier for count, earlier in zip(now, before, strict=True)]
    return LatencyQuantiles(quantile(since, 0.5), quantile(since, 0.99))

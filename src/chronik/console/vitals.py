"""How a node does, in a few numbers: what the console's live stream is made of."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from chronik.meters import quantile

Counts = tuple[int, ...]
"""By bucket of `chronik.meters`."""


class Latency(NamedTuple):
    """In seconds; None when there was nothing to measure."""

    p50: float | None
    p99: float | None


class Vitals(msgspec.Struct, frozen=True):
    """Totals since the node started. Two of them, taken one after the other, give rates."""

    in_bytes: int
    out_bytes: int
    requests: int
    errors: int
    """Error codes that were answered, one for each part that failed."""
    connections: int
    memory_bytes: int | None
    cpu_seconds: float
    produce_counts: Counts
    fetch_counts: Counts
    """Of fetches that were answered at once: others wait for records as long as their clients want."""

    def produce_since(self, earlier: Vitals | None) -> Latency:
        return _latency(self.produce_counts, earlier.produce_counts if earlier is not None else None)

    def fetch_since(self, earlier: Vitals | None) -> Latency:
        return _latency(self.fetch_counts, earlier.fetch_counts if earlier is not None else None)


def _latency(now: Counts, before: Counts | None) -> Latency:
    since = now if before is None else [count - earlier for count, earlier in zip(now, before, strict=True)]
    return Latency(quantile(since, 0.5), quantile(since, 0.99))

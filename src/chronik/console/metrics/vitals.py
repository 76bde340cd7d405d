"""How a node does, in a few numbers: what the console's live stream is made of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from chronik.api.routing.metering import ApiMeter
from chronik.console.metrics.process import cpu_seconds, memory_bytes
from chronik.meters import quantile
from chronik.protocol.apis import FETCH_KEY, PRODUCE_KEY

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


def vitals_of(meters: Mapping[int, ApiMeter], connections: int) -> Vitals:
    produce, fetch = meters[PRODUCE_KEY], meters[FETCH_KEY]
    return Vitals(
        in_bytes=sum(meter.received_bytes for meter in meters.values()),
        out_bytes=sum(meter.sent_bytes for meter in meters.values()),
        requests=sum(meter.requests for meter in meters.values()),
        errors=sum(sum(meter.errors.values()) for meter in meters.values()),
        connections=connections,
        memory_bytes=memory_bytes(),
        cpu_seconds=cpu_seconds(),
        produce_counts=_added((produce.at_once.counts, produce.later.counts)),
        fetch_counts=tuple(fetch.at_once.counts),
    )


def _added(counts: Iterable[Iterable[int]]) -> Counts:
    return tuple(map(sum, zip(*counts, strict=True)))


def _latency(now: Counts, before: Counts | None) -> Latency:
    since = now if before is None else [count - earlier for count, earlier in zip(now, before, strict=True)]
    return Latency(quantile(since, 0.5), quantile(since, 0.99))

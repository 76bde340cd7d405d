"""Collects a node's statistics from existing counters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from chronik.api.routing.metrics import ApiMeter
from chronik.console.metrics.process import cpu_seconds, memory_bytes
from chronik.console.node_stats import BucketCounts, NodeStats
from chronik.protocol.apis import FETCH_KEY, PRODUCE_KEY


def collect_node_stats(meters: Mapping[int, ApiMeter], connections: int) -> NodeStats:
    """Return the node's current statistics from its API meters."""
    produce, fetch = meters[PRODUCE_KEY], meters[FETCH_KEY]
    return NodeStats(
        in_bytes=sum(meter.received_bytes for meter in meters.values()),
        out_bytes=sum(meter.sent_bytes for meter in meters.values()),
        requests=sum(meter.requests for meter in meters.values()),
        errors=sum(sum(meter.errors.values()) for meter in meters.values()),
        connections=connections,
        memory_bytes=memory_bytes(),
        cpu_seconds=cpu_seconds(),
        produce_counts=_sum_buckets((produce.immediate.counts, produce.deferred.counts)),
        fetch_counts=tuple(fetch.immediate.counts),
    )


def _sum_buckets(counts: Iterable[Iterable[int]]) -> BucketCounts:
    return tuple(map(sum, zip(*counts, strict=True)))

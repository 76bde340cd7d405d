"""The interface through which the HTTP port reads a node's status, metrics and key statistics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

import msgspec

from chronik.health.reports import HealthReport
from chronik.histogram import Histogram, quantile

BucketCounts = tuple[int, ...]
"""Number of measurements in each bucket of a latency histogram (see `chronik.histogram`)."""


class LatencyQuantiles(NamedTuple):
    """Latency quantiles in seconds; None if there are no measurements."""

    p50: float | None
    p99: float | None


class NodeStats(msgspec.Struct, frozen=True):
    """Cumulative statistics since the node started. Rates are the difference of two snapshots."""

    in_bytes: int
    out_bytes: int
    requests: int
    errors: int
    """Number of error codes in Kafka responses. A response contains one for each failed topic or partition."""
    connections: int
    memory_bytes: int | None
    cpu_seconds: float
    produce_counts: BucketCounts
    fetch_counts: BucketCounts
    """Latency histogram of the Fetch requests that were answered immediately, without waiting for new records."""

    def produce_latency_since(self, earlier: NodeStats | None) -> LatencyQuantiles:
        """Return the latency of Produce requests since an earlier snapshot, or since the start."""
        return _latency_since(self.produce_counts, earlier.produce_counts if earlier is not None else None)

    def fetch_latency_since(self, earlier: NodeStats | None) -> LatencyQuantiles:
        """Return the latency of Fetch requests since an earlier snapshot, or since the start."""
        return _latency_since(self.fetch_counts, earlier.fetch_counts if earlier is not None else None)


def _latency_since(now: BucketCounts, before: BucketCounts | None) -> LatencyQuantiles:
    since = now if before is None else [count - earlier for count, earlier in zip(now, before, strict=True)]
    return LatencyQuantiles(quantile(since, 0.5), quantile(since, 0.99))


class Sample(NamedTuple):
    """One value of a metric, with its labels."""

    value: float | Histogram
    labels: Mapping[str, str] = MappingProxyType({})


class Metric(NamedTuple):
    """A metric family: all samples of one metric.

    `kind` is the Prometheus type: "counter" (the name ends in _total), "gauge" or "histogram".
    """

    name: str
    kind: str
    help: str
    samples: Iterable[Sample]


class StatusSource(Protocol):
    """A node's status and metrics. All methods run on the event loop and must not block."""

    def status(self) -> dict[str, Any]:
        """Return the contents of the node's status page as a JSON object.

        It has at least node_id, role, term, leader, members, applied_index, commit_index, state_hash, recent_hashes,
        brokers, topics, uptime_s, version and pid.
        """

    def group(self, group_id: str) -> dict[str, Any] | None:
        """Return a consumer group as stored on this node, even if it is not the coordinator, or None if there is no
        state.

        The value of "offsets" may be an iterator, which is read over many event-loop iterations.
        """

    def unready_reason(self) -> str | None:
        """Return the reason why load balancers should not route clients to this node, or None if it is ready."""

    async def health(self) -> HealthReport | None:
        """Return the problems of the cluster, as of about now, or None if the node does not monitor them."""

    def node_stats(self) -> NodeStats:
        """Return the node's cumulative statistics."""

    def metrics(self) -> Iterable[Metric | None]:
        """Yield all metric families, and None wherever the caller must yield to the event loop before continuing."""

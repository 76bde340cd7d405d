"""Models of the live overview stream."""

from __future__ import annotations

import msgspec

from chronik.console.rest.models.cluster import Node, Summary


class Rates(msgspec.Struct):
    """Rates of this node since the previous event."""

    requests_s: float
    errors_s: float
    in_bytes_s: float | None = None
    out_bytes_s: float | None = None
    in_messages_s: float | None = None


class Percentiles(msgspec.Struct):
    """Latency percentiles in milliseconds."""

    p50: float | None = None
    p99: float | None = None


class Latency(msgspec.Struct):
    """The latency of Produce and Fetch requests."""

    produce: Percentiles
    fetch: Percentiles


class GroupLag(msgspec.Struct):
    """The lag of a consumer group."""

    group: str
    lag: int | None


class LiveCluster(Summary, kw_only=True):
    """The state of the cluster in the overview stream."""

    nodes: list[Node]


class Overview(msgspec.Struct):
    """An event of the overview stream."""

    time_ms: int
    cluster: LiveCluster | None
    """null if the principal lacks the Describe permission on the cluster."""
    rates: Rates | None
    latency_ms: Latency | None
    lag: list[GroupLag]
    """The ten groups with the largest lag that the principal may describe."""
    connections: int | None
    memory_bytes: int | None
    cpu: float | None
    """CPU usage since the previous event; 1.0 is one core."""

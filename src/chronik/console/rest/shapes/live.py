"""What is told again and again, to all who listen."""

from __future__ import annotations

import msgspec

from chronik.console.rest.shapes.cluster import Node, Summary


class Rates(msgspec.Struct):
    """Of this node, since the event before."""

    requests_s: float
    errors_s: float
    in_bytes_s: float | None = None
    out_bytes_s: float | None = None
    in_messages_s: float | None = None


class Percentiles(msgspec.Struct):
    p50: float | None = None
    p99: float | None = None


class Latency(msgspec.Struct):
    produce: Percentiles
    fetch: Percentiles


class GroupLag(msgspec.Struct):
    group: str
    lag: int | None


class LiveCluster(Summary, kw_only=True):
    nodes: list[Node]


class Overview(msgspec.Struct):
    time_ms: int
    cluster: LiveCluster | None
    """null for those who may not describe the cluster."""
    rates: Rates | None
    latency_ms: Latency | None
    lag: list[GroupLag]
    """Of the ten groups that are furthest behind, of those that the listener may describe."""
    connections: int | None
    memory_bytes: int | None
    cpu: float | None
    """Of one processor, since the event before: 1.0 is all of it."""

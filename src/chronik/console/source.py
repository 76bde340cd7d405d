"""What the console shows, and who knows it: the node hands one of these to its listener."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol


class Sample(NamedTuple):
    value: float
    labels: Mapping[str, str] = MappingProxyType({})


class Metric(NamedTuple):
    """A family of samples. `kind` is Prometheus' word for it: "counter" (its name ends in _total) or "gauge"."""

    name: str
    kind: str
    help: str
    samples: Iterable[Sample]


class Figures(NamedTuple):
    """What a node has counted since its start, for the console's charts. None where nobody counts it."""

    requests: int
    errors: int
    connections: int
    in_bytes: int | None = None
    out_bytes: int | None = None
    in_messages: int | None = None
    latencies_ms: Mapping[str, tuple[float | None, float | None]] = MappingProxyType({})
    """Median and 99th percentile of the last minute or so, by API: "Produce", "Fetch"."""


class StatusSource(Protocol):
    """Called on the node's event loop, between requests: nothing here may wait."""

    def status(self) -> dict[str, Any]:
        """Returns the state of this node, as JSON: node_id, role, term, leader, members, applied_index, commit_index,
        state_hash, recent_hashes, brokers, topics, uptime_s, version, pid; more is welcome."""

    def group(self, group_id: str) -> dict[str, Any] | None:
        """Returns what this node itself holds about a group, whoever coordinates it; None when it holds nothing. Its
        "offsets" may be an iterator, which is read over many turns of the loop."""

    def ready(self) -> str | None:
        """Returns None when clients can be sent here, else why not."""

    def metrics(self) -> Iterable[Metric]: ...

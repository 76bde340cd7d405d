"""The interface through which the HTTP port reads a node's status and metrics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from chronik.console.node_stats import NodeStats
from chronik.histogram import Histogram


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
        """Return the state of this node as a JSON object.

        It has at least node_id, role, term, leader, members, applied_index, commit_index, state_hash, recent_hashes,
        brokers, topics, uptime_s, version and pid.
        """

    def group(self, group_id: str) -> dict[str, Any] | None:
        """Return this node's state of a consumer group, even if it is not the coordinator; None if it has none.

        The value of "offsets" may be an iterator, which is read over many event-loop iterations.
        """

    def unready_reason(self) -> str | None:
        """Return why clients should not be sent to this node, or None if it is ready."""

    def node_stats(self) -> NodeStats:
        """Return the node's cumulative statistics."""

    def metrics(self) -> Iterable[Metric | None]:
        """Yield all metric families. A None tells the caller to continue in the next event-loop iteration."""

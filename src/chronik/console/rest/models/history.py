"""Models of the history of metrics."""

from __future__ import annotations

from typing import Annotated

import msgspec

from chronik.console.rest.models.common import Index, Words
from chronik.history.aggregation import RANGE_MAX_S, RANGE_MIN_S

Seconds = Annotated[int, msgspec.Meta(ge=1, le=RANGE_MAX_S)]
Milliseconds = Annotated[int, msgspec.Meta(ge=0, le=2**53)]


class HistoryParameters(msgspec.Struct):
    """The query parameters of the history."""

    metrics: Words
    """The names of up to 20 metrics, separated by commas."""
    topic: Words | None = None
    """Return only this topic. Otherwise, the busiest topics are returned."""
    group: Words | None = None
    """Return only this group. Otherwise, the groups with the largest lag are returned."""
    node: Index | None = None
    """Return the values of this node, instead of the whole cluster."""
    by_node: bool = False
    """Return the values of each node separately."""
    range_s: Annotated[int, msgspec.Meta(ge=RANGE_MIN_S, le=RANGE_MAX_S)] = 3600
    """The length of the time range in seconds."""
    end_ms: Milliseconds | None = None
    """The end of the time range in milliseconds since the epoch; by default now."""
    step_s: Seconds | None = None
    """The minimum number of seconds between two values. By default, as few as the history has."""
    limit: Annotated[int, msgspec.Meta(ge=1, le=20)] = 5
    """The maximum number of topics, groups, or pairs of them that are returned."""


class HistoryValues(msgspec.Struct):
    """The values of one metric of a cluster or node, topic or group."""

    metric: str
    unit: str
    """The unit: bytes/s, 1/s, ms, bytes, records, cores or count."""
    node: int | None
    """The node; null if the values are combined over nodes: the sum or, for latencies and delays, the maximum."""
    group: str | None
    topic: str | None
    partial: bool
    """Whether a node that has the topic or group keeps no history of it, because others are busier."""
    values: list[float | None]
    """The means over each step or, for latencies and delays, the maxima; null where there was no sample."""


class History(msgspec.Struct):
    """Values of metrics at equal time steps."""

    start_ms: int
    """The start of the first step, in milliseconds since the epoch."""
    step_s: int
    points: int
    """The number of values in each series."""
    series: list[HistoryValues]
    nodes: list[int]
    """The nodes whose values are included."""
    missing_nodes: list[int]
    """The nodes that did not respond. Their values are missing."""
    left_out: int
    """The number of topics or groups of which a node keeps no history, because others are busier."""

"""The metrics of which a node keeps a history: name, scope, unit and description.

Clients of the admin API use the names, so they must not change.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple


class Scope(IntEnum):
    """The subjects of a metric. The numbers are part of the peer protocol and must never change."""

    NODE = 0
    """A node, from its own counters."""
    REPLICAS = 1
    """All replicas of a node."""
    TOPIC = 2
    GROUP = 3
    GROUP_TOPIC = 4
    """A group and a topic whose offsets it has committed."""


class HistoryMetric(NamedTuple):
    """The declaration of a metric."""

    name: str
    scope: Scope
    unit: str
    help: str
    is_counter: bool = False
    """Whether the samples are values of a counter, of which the history has the rate per second."""
    is_peak: bool = False
    """Whether longer steps and sums over nodes have the maximum; otherwise, they have the mean and the sum."""


BYTES: Final = "bytes"
BYTES_PER_SECOND: Final = "bytes/s"
PER_SECOND: Final = "1/s"
MILLISECONDS: Final = "ms"
RECORDS: Final = "records"
CORES: Final = "cores"
COUNT: Final = "count"

LATENCY_KINDS: Final = ("produce", "fetch", "offset_commit", "metadata")
"""The kinds of requests with a history of their latency. Fetch counts only requests that did not wait for records."""


def _latency(kind: str, percentile: int) -> HistoryMetric:
    text = f"Latency of {kind.replace('_', ' ')} requests, {percentile}th percentile."
    return HistoryMetric(f"{kind}_p{percentile}_ms", Scope.NODE, MILLISECONDS, text, is_peak=True)


METRICS: Final = (
    HistoryMetric("in_bytes", Scope.NODE, BYTES_PER_SECOND, "Bytes of Kafka requests.", is_counter=True),
    HistoryMetric("out_bytes", Scope.NODE, BYTES_PER_SECOND, "Bytes of Kafka responses.", is_counter=True),
    HistoryMetric("requests", Scope.NODE, PER_SECOND, "Kafka requests.", is_counter=True),
    HistoryMetric("errors", Scope.NODE, PER_SECOND, "Error codes in Kafka responses.", is_counter=True),
    *(_latency(kind, percentile) for kind in LATENCY_KINDS for percentile in (50, 99)),
    HistoryMetric("connections", Scope.NODE, COUNT, "Open client connections."),
    HistoryMetric("cpu", Scope.NODE, CORES, "CPU time per second of the process.", is_counter=True),
    HistoryMetric("memory", Scope.NODE, BYTES, "Resident memory of the process."),
    HistoryMetric(
        "loop_delay_p99_ms",
        Scope.NODE,
        MILLISECONDS,
        "Delay of an event-loop timer, 99th percentile. A standalone node measures it while its HTTP port is open.",
        is_peak=True,
    ),
    HistoryMetric("disk_used", Scope.NODE, BYTES, "Used bytes of the file system that has the data directory."),
    HistoryMetric("disk_total", Scope.NODE, BYTES, "Size of the file system that has the data directory."),
    HistoryMetric(
        "in_records", Scope.REPLICAS, PER_SECOND, "Records that producers appended to led partitions.", is_counter=True
    ),
    HistoryMetric("log_bytes", Scope.REPLICAS, BYTES, "Size of all replicas."),
    HistoryMetric(
        "topic_in_bytes", Scope.TOPIC, BYTES_PER_SECOND, "Bytes of batches that producers appended.", is_counter=True
    ),
    HistoryMetric("topic_in_records", Scope.TOPIC, PER_SECOND, "Records that producers appended.", is_counter=True),
    HistoryMetric("topic_bytes", Scope.TOPIC, BYTES, "Size of the topic's replicas."),
    HistoryMetric("group_lag", Scope.GROUP, RECORDS, "Lag of a group on all topics."),
    HistoryMetric("group_topic_lag", Scope.GROUP_TOPIC, RECORDS, "Lag of a group on one topic."),
)
METRICS_BY_NAME: Final = {each.name: each for each in METRICS}

SUBJECTS_MAX: Final = {
    Scope.NODE: 1,
    Scope.REPLICAS: 1,
    Scope.TOPIC: 200,
    Scope.GROUP: 250,
    Scope.GROUP_TOPIC: 150,
}
"""Maximum number of subjects of each scope that have a history on a node. The busiest are kept. A series takes 4 kB."""


def list_scope_metrics(scope: Scope) -> tuple[HistoryMetric, ...]:
    """Return the metrics of a scope, in the order of the values of its samples."""
    return tuple(each for each in METRICS if each.scope is scope)

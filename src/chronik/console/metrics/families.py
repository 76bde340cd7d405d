"""All metric families of a node: name, type, labels and description.

`docs/reference/metrics.md` is generated from this table (`python -m chronik.console.metrics.listing`). Tests compare
the dashboard and the alerts in `packaging/` with it. Names must not change: users' dashboards and alerts depend on
them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from chronik.console.status_source import Metric, Sample

COUNTER: Final = "counter"
GAUGE: Final = "gauge"
HISTOGRAM: Final = "histogram"


class MetricFamily(NamedTuple):
    """The declaration of a Prometheus metric family: its name, type, help text and labels."""

    name: str
    kind: str
    help: str
    labels: tuple[str, ...] = ()

    def with_samples(self, samples: Iterable[Sample]) -> Metric:
        """Return a metric of this family with the given samples."""
        return Metric(self.name, self.kind, self.help, samples)


class MetricSection(NamedTuple):
    """A group of metric families in the documentation."""

    title: str
    families: tuple[MetricFamily, ...]


SECTIONS: Final = (
    MetricSection(
        "Health",
        (
            MetricFamily(
                "chronik_problems",
                GAUGE,
                "Problems of the cluster by kind and severity (critical, warning, info), as in GET /health. All nodes "
                "report the same: take the maximum over nodes.",
                ("kind", "severity"),
            ),
            MetricFamily(
                "chronik_problems_checked_seconds",
                GAUGE,
                "Time of the latest health check, in seconds since 1970; 0 before the first one.",
            ),
        ),
    ),
    MetricSection(
        "Requests",
        (
            MetricFamily("chronik_requests_total", COUNTER, "Kafka requests by API.", ("api",)),
            MetricFamily(
                "chronik_request_seconds",
                HISTOGRAM,
                "Time from receiving a request to encoding its response, by API. answered is at_once for requests that "
                "did not wait, and later for those that waited for a disk, other nodes or (Fetch) records.",
                ("api", "answered"),
            ),
            MetricFamily(
                "chronik_request_errors_total",
                COUNTER,
                "Error codes in responses, by API and Kafka error name. A response has one for each part of it that "
                "failed.",
                ("api", "code"),
            ),
            MetricFamily(
                "chronik_request_failures_total", COUNTER, "Requests whose handler raised an error.", ("api",)
            ),
            MetricFamily("chronik_received_bytes_total", COUNTER, "Bytes of requests by API.", ("api",)),
            MetricFamily("chronik_sent_bytes_total", COUNTER, "Bytes of responses by API.", ("api",)),
            MetricFamily("chronik_unsent_bytes", GAUGE, "Bytes of responses that clients have not read yet."),
            MetricFamily("chronik_large_requests_bytes", GAUGE, "Memory of large requests until they are answered."),
        ),
    ),
    MetricSection(
        "Connections and quotas",
        (
            MetricFamily("chronik_connections", GAUGE, "Open client connections by listener.", ("listener",)),
            MetricFamily(
                "chronik_connections_accepted_total", COUNTER, "Accepted connections by listener.", ("listener",)
            ),
            MetricFamily(
                "chronik_connections_refused_total",
                COUNTER,
                "Connections rejected because of a limit (max.connections, connection rates, TLS handshakes).",
                ("listener",),
            ),
            MetricFamily(
                "chronik_throttled_requests_total",
                COUNTER,
                "Throttled requests by quota. connection counts connections that exceeded the creation rate.",
                ("quota",),
            ),
            MetricFamily("chronik_throttled_seconds_total", COUNTER, "Total throttle time by quota.", ("quota",)),
        ),
    ),
    MetricSection(
        "Schema registry",
        (
            MetricFamily(
                "chronik_registry_request_seconds",
                HISTOGRAM,
                "Time from receiving a request to this node's schema registry to encoding its response, by operation. "
                "Its count is the number of requests.",
                ("operation",),
            ),
            MetricFamily(
                "chronik_registry_errors_total",
                COUNTER,
                "Error responses of this node's schema registry, by operation and Confluent's error code.",
                ("operation", "code"),
            ),
        ),
    ),
    MetricSection(
        "Disks",
        (
            MetricFamily(
                "chronik_sync_seconds",
                HISTOGRAM,
                "Latency of syncs to disk (fdatasync), by log: records (partitions) or metadata (write-ahead log).",
                ("log",),
            ),
            MetricFamily("chronik_syncs_total", COUNTER, "Syncs of partition logs to disk."),
            MetricFamily("chronik_slow_syncs_total", COUNTER, "Syncs of partition logs that took longer than 50 ms."),
            MetricFamily("chronik_longest_sync_seconds", GAUGE, "The longest sync of partition logs since the start."),
            MetricFamily("chronik_damaged_partitions", GAUGE, "Replicas on this node that have lost records."),
        ),
    ),
    MetricSection(
        "Partitions and replication",
        (
            MetricFamily("chronik_fenced", GAUGE, "1 while this broker is fenced."),
            MetricFamily("chronik_partitions", GAUGE, "Partitions with a replica on this node."),
            MetricFamily("chronik_leader_partitions", GAUGE, "Partitions that this node leads."),
            MetricFamily(
                "chronik_under_replicated_partitions",
                GAUGE,
                "Partitions led by this node that have a replica out of sync. Sum over nodes.",
            ),
            MetricFamily(
                "chronik_under_min_isr_partitions",
                GAUGE,
                "Partitions led by this node whose ISR is too small for acks=all. Sum over nodes.",
            ),
            MetricFamily(
                "chronik_offline_partitions",
                GAUGE,
                "Partitions of the cluster without a leader, as this node sees it. Take the maximum over nodes.",
            ),
            MetricFamily(
                "chronik_replica_lag_records_max",
                GAUGE,
                "The largest number of records that a follower on this node is behind its leader.",
            ),
            MetricFamily(
                "chronik_isr_shrinks_total", COUNTER, "Followers removed from the ISR, counted by the leader."
            ),
            MetricFamily("chronik_isr_expands_total", COUNTER, "Followers added to the ISR, counted by the leader."),
            MetricFamily(
                "chronik_leader_elections_total",
                COUNTER,
                "Elections of this node as the leader of a partition, without the first election of a new partition.",
            ),
            MetricFamily(
                "chronik_unclean_leader_elections_total",
                COUNTER,
                "Unclean elections of this node as the leader of a partition: records may be lost.",
            ),
        ),
    ),
    MetricSection(
        "Topics",
        (
            MetricFamily("chronik_topic_log_bytes", GAUGE, "Bytes of the replicas on this node, by topic.", ("topic",)),
            MetricFamily("chronik_topic_partitions", GAUGE, "Replicas on this node, by topic.", ("topic",)),
            MetricFamily(
                "chronik_topic_produced_bytes_total",
                COUNTER,
                "Bytes of batches that clients produced to partitions led by this node, by topic.",
                ("topic",),
            ),
        ),
    ),
    MetricSection(
        "Groups",
        (
            MetricFamily("chronik_groups", GAUGE, "Consumer groups in this node's image."),
            MetricFamily(
                "chronik_group_lag_records",
                GAUGE,
                "Records between committed offset and high watermark, for partitions led by this node. Sum over nodes.",
                ("group", "topic"),
            ),
            MetricFamily(
                "chronik_group_lag_seconds",
                GAUGE,
                "Age of the oldest uncommitted record, by the timestamp of its batch, for partitions led by this node; "
                "0 without lag. Take the maximum over nodes.",
                ("group", "topic"),
            ),
        ),
    ),
    MetricSection(
        "Transactions",
        (
            MetricFamily("chronik_transactional_ids", GAUGE, "Transactional ids in this node's image."),
            MetricFamily("chronik_open_transactions", GAUGE, "Transactional ids with an open transaction."),
            MetricFamily("chronik_decided_transactions", GAUGE, "Transactions whose markers are being written."),
            MetricFamily(
                "chronik_oldest_open_transaction_began_seconds",
                GAUGE,
                "Start of the oldest open transaction, in seconds since 1970; 0 if none is open.",
            ),
        ),
    ),
    MetricSection(
        "Metadata and Raft",
        (
            MetricFamily(
                "chronik_brokers", GAUGE, "Registered brokers by status, as this node sees them.", ("status",)
            ),
            MetricFamily("chronik_topics", GAUGE, "Topics in this node's image."),
            MetricFamily(
                "chronik_metadata_applied_index", GAUGE, "Index of the last command applied to this node's image."
            ),
            MetricFamily("chronik_raft_term", GAUGE, "Current Raft term. In cluster mode only, like all Raft metrics."),
            MetricFamily("chronik_raft_is_leader", GAUGE, "1 if this node is the Raft leader."),
            MetricFamily("chronik_raft_leader", GAUGE, "Id of the Raft leader that this node knows; -1 if none."),
            MetricFamily("chronik_raft_first_index", GAUGE, "Index of the first entry in the Raft log."),
            MetricFamily("chronik_raft_last_index", GAUGE, "Index of the last entry in the Raft log, durable or not."),
            MetricFamily("chronik_raft_snapshot_index", GAUGE, "Index of the last entry in the latest snapshot."),
            MetricFamily("chronik_raft_commit_index", GAUGE, "Index of the last entry known to be committed."),
            MetricFamily("chronik_raft_applied_index", GAUGE, "Index of the last entry applied on this node."),
            MetricFamily("chronik_raft_apply_lag", GAUGE, "Entries that are committed but not applied on this node."),
            MetricFamily("chronik_raft_connected_peers", GAUGE, "Peers that this node is connected to."),
            MetricFamily("chronik_raft_elections_total", COUNTER, "Elections in which this node was a candidate."),
            MetricFamily("chronik_raft_elections_won_total", COUNTER, "Elections that this node won."),
            MetricFamily("chronik_raft_leader_changes_total", COUNTER, "Leader changes that this node observed."),
        ),
    ),
    MetricSection(
        "Process",
        (
            MetricFamily(
                "chronik_loop_lateness_seconds",
                HISTOGRAM,
                "Delay of an event-loop timer that fires 40 times per second: time the loop or the CPU was busy.",
            ),
            MetricFamily("chronik_loop_longest_stall_seconds", GAUGE, "The longest stall over 10 ms since the start."),
            MetricFamily("chronik_build_info", GAUGE, "Always 1.", ("version", "node_id")),
            MetricFamily("process_cpu_seconds_total", COUNTER, "User and system CPU time of the process."),
            MetricFamily("process_resident_memory_bytes", GAUGE, "Resident memory of the process (Linux)."),
            MetricFamily("process_open_fds", GAUGE, "Open file descriptors, including connections (Linux)."),
            MetricFamily("process_max_fds", GAUGE, "Maximum number of open file descriptors."),
            MetricFamily("process_start_time_seconds", GAUGE, "Start of the node, in seconds since 1970."),
        ),
    ),
    MetricSection(
        "About the metrics",
        (
            MetricFamily("chronik_metrics_series", GAUGE, "Series in this response."),
            MetricFamily(
                "chronik_metrics_series_left_out",
                GAUGE,
                'Series aggregated under the label "_other" because of chronik.metrics.series.max.',
            ),
            MetricFamily(
                "chronik_metrics_survey_seconds",
                GAUGE,
                "Event-loop time that collecting partition and offset statistics took. They are cached for twenty "
                "times as long.",
            ),
        ),
    ),
)

FAMILIES: Final = {family.name: family for section in SECTIONS for family in section.families}


def build_single_sample_metric(name: str, value: float) -> Metric:
    """Return a Prometheus metric without labels, with one value."""
    return FAMILIES[name].with_samples((Sample(value),))

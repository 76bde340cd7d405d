"""All metric families of a node: name, type, labels and description.

`docs/metrics.md` is generated from this table (`python -m chronik.console.metrics.listing`). Tests compare the
dashboard and the alerts in `packaging/` with it. Names must not change: users' dashboards and alerts depend on them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from chronik.console.source import Metric, Sample

COUNTER: Final = "counter"
GAUGE: Final = "gauge"
HISTOGRAM: Final = "histogram"


class Family(NamedTuple):
    """The declaration of a metric family."""

    name: str
    kind: str
    help: str
    labels: tuple[str, ...] = ()

    def of(self, samples: Iterable[Sample]) -> Metric:
        """Return a metric of this family with the given samples."""
        return Metric(self.name, self.kind, self.help, samples)


class Section(NamedTuple):
    """A group of metric families in the documentation."""

    title: str
    families: tuple[Family, ...]


SECTIONS: Final = (
    Section(
        "Requests",
        (
            Family("chronik_requests_total", COUNTER, "Kafka requests by API.", ("api",)),
            Family(
                "chronik_request_seconds",
                HISTOGRAM,
                "Time from receiving a request to encoding its response, by API. answered is at_once for requests that "
                "did not wait, and later for those that waited for a disk, other nodes or (Fetch) records.",
                ("api", "answered"),
            ),
            Family(
                "chronik_request_errors_total",
                COUNTER,
                "Error codes in responses, by API and Kafka error name. A response has one for each part of it that "
                "failed.",
                ("api", "code"),
            ),
            Family("chronik_request_failures_total", COUNTER, "Requests whose handler raised an error.", ("api",)),
            Family("chronik_received_bytes_total", COUNTER, "Bytes of requests by API.", ("api",)),
            Family("chronik_sent_bytes_total", COUNTER, "Bytes of responses by API.", ("api",)),
            Family("chronik_unsent_bytes", GAUGE, "Bytes of responses that clients have not read yet."),
            Family("chronik_large_requests_bytes", GAUGE, "Memory of large requests until they are answered."),
        ),
    ),
    Section(
        "Connections and quotas",
        (
            Family("chronik_connections", GAUGE, "Open client connections by listener.", ("listener",)),
            Family("chronik_connections_accepted_total", COUNTER, "Accepted connections by listener.", ("listener",)),
            Family(
                "chronik_connections_refused_total",
                COUNTER,
                "Connections rejected because of a limit (max.connections, connection rates, TLS handshakes).",
                ("listener",),
            ),
            Family(
                "chronik_throttled_requests_total",
                COUNTER,
                "Throttled requests by quota. connection counts connections that exceeded the creation rate.",
                ("quota",),
            ),
            Family("chronik_throttled_seconds_total", COUNTER, "Total throttle time by quota.", ("quota",)),
        ),
    ),
    Section(
        "Disks",
        (
            Family(
                "chronik_sync_seconds",
                HISTOGRAM,
                "Latency of syncs to disk (fdatasync), by log: records (partitions) or metadata (write-ahead log).",
                ("log",),
            ),
            Family("chronik_syncs_total", COUNTER, "Syncs of partition logs to disk."),
            Family("chronik_slow_syncs_total", COUNTER, "Syncs of partition logs that took longer than 50 ms."),
            Family("chronik_longest_sync_seconds", GAUGE, "The longest sync of partition logs since the start."),
            Family("chronik_damaged_partitions", GAUGE, "Replicas on this node that have lost records."),
        ),
    ),
    Section(
        "Partitions and replication",
        (
            Family("chronik_fenced", GAUGE, "1 while this broker is fenced."),
            Family("chronik_partitions", GAUGE, "Partitions with a replica on this node."),
            Family("chronik_leader_partitions", GAUGE, "Partitions that this node leads."),
            Family(
                "chronik_under_replicated_partitions",
                GAUGE,
                "Partitions led by this node that have a replica out of sync. Sum over nodes.",
            ),
            Family(
                "chronik_under_min_isr_partitions",
                GAUGE,
                "Partitions led by this node whose ISR is too small for acks=all. Sum over nodes.",
            ),
            Family(
                "chronik_offline_partitions",
                GAUGE,
                "Partitions of the cluster without a leader, as this node sees it. Take the maximum over nodes.",
            ),
            Family(
                "chronik_replica_lag_records_max",
                GAUGE,
                "The largest number of records that a follower on this node is behind its leader.",
            ),
            Family("chronik_isr_shrinks_total", COUNTER, "Followers removed from the ISR, counted by the leader."),
            Family("chronik_isr_expands_total", COUNTER, "Followers added to the ISR, counted by the leader."),
            Family(
                "chronik_leader_elections_total",
                COUNTER,
                "Elections of this node as the leader of a partition, without the first election of a new partition.",
            ),
            Family(
                "chronik_unclean_leader_elections_total",
                COUNTER,
                "Unclean elections of this node as the leader of a partition: records may be lost.",
            ),
        ),
    ),
    Section(
        "Topics",
        (
            Family("chronik_topic_log_bytes", GAUGE, "Bytes of the replicas on this node, by topic.", ("topic",)),
            Family("chronik_topic_partitions", GAUGE, "Replicas on this node, by topic.", ("topic",)),
            Family(
                "chronik_topic_produced_bytes_total",
                COUNTER,
                "Bytes of batches that clients produced to partitions led by this node, by topic.",
                ("topic",),
            ),
        ),
    ),
    Section(
        "Groups",
        (
            Family("chronik_groups", GAUGE, "Consumer groups in this node's image."),
            Family(
                "chronik_group_lag_records",
                GAUGE,
                "Records between committed offset and high watermark, for partitions led by this node. Sum over nodes.",
                ("group", "topic"),
            ),
            Family(
                "chronik_group_lag_seconds",
                GAUGE,
                "Age of the oldest uncommitted record, by the timestamp of its batch, for partitions led by this node; "
                "0 without lag. Take the maximum over nodes.",
                ("group", "topic"),
            ),
        ),
    ),
    Section(
        "Transactions",
        (
            Family("chronik_transactional_ids", GAUGE, "Transactional ids in this node's image."),
            Family("chronik_open_transactions", GAUGE, "Transactional ids with an open transaction."),
            Family("chronik_decided_transactions", GAUGE, "Transactions whose markers are being written."),
            Family(
                "chronik_oldest_open_transaction_began_seconds",
                GAUGE,
                "Start of the oldest open transaction, in seconds since 1970; 0 if none is open.",
            ),
        ),
    ),
    Section(
        "Metadata and Raft",
        (
            Family("chronik_brokers", GAUGE, "Registered brokers by status, as this node sees them.", ("status",)),
            Family("chronik_topics", GAUGE, "Topics in this node's image."),
            Family("chronik_metadata_applied_index", GAUGE, "Index of the last command applied to this node's image."),
            Family("chronik_raft_term", GAUGE, "Current Raft term. In cluster mode only, like all Raft metrics."),
            Family("chronik_raft_is_leader", GAUGE, "1 if this node is the Raft leader."),
            Family("chronik_raft_leader", GAUGE, "Id of the Raft leader that this node knows; -1 if none."),
            Family("chronik_raft_first_index", GAUGE, "Index of the first entry in the Raft log."),
            Family("chronik_raft_last_index", GAUGE, "Index of the last entry in the Raft log, durable or not."),
            Family("chronik_raft_snapshot_index", GAUGE, "Index of the last entry in the latest snapshot."),
            Family("chronik_raft_commit_index", GAUGE, "Index of the last entry known to be committed."),
            Family("chronik_raft_applied_index", GAUGE, "Index of the last entry applied on this node."),
            Family("chronik_raft_apply_lag", GAUGE, "Entries that are committed but not applied on this node."),
            Family("chronik_raft_connected_peers", GAUGE, "Peers that this node is connected to."),
            Family("chronik_raft_elections_total", COUNTER, "Elections in which this node was a candidate."),
            Family("chronik_raft_elections_won_total", COUNTER, "Elections that this node won."),
            Family("chronik_raft_leader_changes_total", COUNTER, "Leader changes that this node observed."),
        ),
    ),
    Section(
        "Process",
        (
            Family(
                "chronik_loop_lateness_seconds",
                HISTOGRAM,
                "Delay of an event-loop timer that fires 40 times per second: time the loop or the CPU was busy.",
            ),
            Family("chronik_loop_longest_stall_seconds", GAUGE, "The longest stall over 10 ms since the start."),
            Family("chronik_build_info", GAUGE, "Always 1.", ("version", "node_id")),
            Family("process_cpu_seconds_total", COUNTER, "User and system CPU time of the process."),
            Family("process_resident_memory_bytes", GAUGE, "Resident memory of the process (Linux)."),
            Family("process_open_fds", GAUGE, "Open file descriptors, including connections (Linux)."),
            Family("process_max_fds", GAUGE, "Maximum number of open file descriptors."),
            Family("process_start_time_seconds", GAUGE, "Start of the node, in seconds since 1970."),
        ),
    ),
    Section(
        "About the metrics",
        (
            Family("chronik_metrics_series", GAUGE, "Series in this response."),
            Family(
                "chronik_metrics_series_left_out",
                GAUGE,
                'Series aggregated under the label "_other" because of chronik.metrics.series.max.',
            ),
            Family(
                "chronik_metrics_survey_seconds",
                GAUGE,
                "Event-loop time that collecting partition and offset statistics took. They are cached for twenty "
                "times as long.",
            ),
        ),
    ),
)

FAMILIES: Final = {family.name: family for section in SECTIONS for family in section.families}


def told(name: str, value: float) -> Metric:
    """Return a metric of the named family with a single sample without labels."""
    return FAMILIES[name].of((Sample(value),))

"""Every family of metrics that a node tells, declared once: its name, kind, labels and what it means.

`docs/metrics.md` is written from this table (`python -m chronik.console.metrics.listing`), and tests hold the dashboard
and the alerts in `packaging/` against it. Names are forever, since others build upon them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from chronik.console.source import Metric, Sample

COUNTER: Final = "counter"
GAUGE: Final = "gauge"
HISTOGRAM: Final = "histogram"


class Family(NamedTuple):
    name: str
    kind: str
    help: str
    labels: tuple[str, ...] = ()

    def of(self, samples: Iterable[Sample]) -> Metric:
        return Metric(self.name, self.kind, self.help, samples)


class Section(NamedTuple):
    title: str
    families: tuple[Family, ...]


SECTIONS: Final = (
    Section(
        "Requests",
        (
            Family("chronik_requests_total", COUNTER, "Requests of Kafka clients by API.", ("api",)),
            Family(
                "chronik_request_seconds",
                HISTOGRAM,
                "Time from a whole request to its encoded answer, by API; answered is at_once for those that waited "
                "for nothing, and later for those that waited for a disk, other nodes or (Fetch) records.",
                ("api", "answered"),
            ),
            Family(
                "chronik_request_errors_total",
                COUNTER,
                "Error codes in answers, by API and Kafka's name of the code; an answer has one for each part of it "
                "that failed.",
                ("api", "code"),
            ),
            Family("chronik_request_failures_total", COUNTER, "Requests whose handler broke, by API.", ("api",)),
            Family("chronik_received_bytes_total", COUNTER, "Bytes of requests by API.", ("api",)),
            Family("chronik_sent_bytes_total", COUNTER, "Bytes of answers by API.", ("api",)),
            Family("chronik_unsent_bytes", GAUGE, "Bytes of answers that slow clients have yet to read."),
            Family("chronik_large_requests_bytes", GAUGE, "Memory that large requests take until they are answered."),
        ),
    ),
    Section(
        "Connections and quotas",
        (
            Family("chronik_connections", GAUGE, "Open client connections by listener.", ("listener",)),
            Family("chronik_connections_accepted_total", COUNTER, "Connections let in, by listener.", ("listener",)),
            Family(
                "chronik_connections_refused_total",
                COUNTER,
                "Connections closed at once for a limit (max.connections and its like, rates, handshakes).",
                ("listener",),
            ),
            Family(
                "chronik_throttled_requests_total",
                COUNTER,
                "Requests whose clients had to wait, by the quota that they exceeded; connection: those that did.",
                ("quota",),
            ),
            Family("chronik_throttled_seconds_total", COUNTER, "How long they had to, by quota.", ("quota",)),
        ),
    ),
    Section(
        "Disks",
        (
            Family(
                "chronik_sync_seconds",
                HISTOGRAM,
                "Time of syncs to disk (fdatasync), by log: records (partitions) or metadata (the write-ahead log).",
                ("log",),
            ),
            Family("chronik_syncs_total", COUNTER, "Times that records were synced to disk."),
            Family("chronik_slow_syncs_total", COUNTER, "Of those, the ones that took over 50 ms."),
            Family("chronik_longest_sync_seconds", GAUGE, "The longest of them."),
            Family("chronik_damaged_partitions", GAUGE, "Partitions of which this disk has lost records."),
        ),
    ),
    Section(
        "Partitions and replication",
        (
            Family("chronik_fenced", GAUGE, "1 while this broker serves no data."),
            Family("chronik_partitions", GAUGE, "Partitions that this node holds a replica of."),
            Family("chronik_leader_partitions", GAUGE, "Of those, the ones that it leads."),
            Family(
                "chronik_under_replicated_partitions",
                GAUGE,
                "Of those that it leads, the ones with a replica that is not in sync; add up over nodes.",
            ),
            Family(
                "chronik_under_min_isr_partitions",
                GAUGE,
                "Of those that it leads, the ones that acks=all cannot write to; add up over nodes.",
            ),
            Family(
                "chronik_offline_partitions",
                GAUGE,
                "Partitions of the cluster that nobody leads, as this node sees it; take the maximum over nodes.",
            ),
            Family(
                "chronik_replica_lag_records_max",
                GAUGE,
                "Records that the replica here lacks most, of those it follows.",
            ),
            Family("chronik_isr_shrinks_total", COUNTER, "Times that a follower left the ISR, counted by the leader."),
            Family("chronik_isr_expands_total", COUNTER, "Times that a follower joined it, counted by the leader."),
            Family(
                "chronik_leader_elections_total",
                COUNTER,
                "Partitions whose leader this node has become, or become anew; not the first leader of a new one.",
            ),
            Family(
                "chronik_unclean_leader_elections_total",
                COUNTER,
                "Of those, the ones for which it was not in sync: records may be lost.",
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
                "Bytes of batches that clients wrote to partitions led by this node, by topic.",
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
                "Committed offsets behind the high watermark, of partitions that this node leads; add up over nodes.",
                ("group", "topic"),
            ),
            Family(
                "chronik_group_lag_seconds",
                GAUGE,
                "Age of the oldest record not committed, of partitions that this node leads, by the time of its batch; "
                "0 when all are; take the maximum over nodes.",
                ("group", "topic"),
            ),
        ),
    ),
    Section(
        "Transactions",
        (
            Family("chronik_transactional_ids", GAUGE, "Transactional ids in this node's image."),
            Family("chronik_open_transactions", GAUGE, "Of those, the ones with an open transaction."),
            Family("chronik_decided_transactions", GAUGE, "Of those, the ones whose markers are on their way."),
            Family(
                "chronik_oldest_open_transaction_began_seconds",
                GAUGE,
                "When the oldest open transaction began, in seconds since 1970; 0 when none is open.",
            ),
        ),
    ),
    Section(
        "Metadata and Raft",
        (
            Family("chronik_brokers", GAUGE, "Registered brokers by status, as this node sees them.", ("status",)),
            Family("chronik_topics", GAUGE, "Topics in this node's image."),
            Family("chronik_metadata_applied_index", GAUGE, "The last command applied to this node's image."),
            Family("chronik_raft_term", GAUGE, "The term that this node is in. Only in a cluster, like all of Raft."),
            Family("chronik_raft_is_leader", GAUGE, "1 where this node leads the metadata log."),
            Family("chronik_raft_leader", GAUGE, "The node that leads as far as this one knows; -1 if nobody."),
            Family("chronik_raft_first_index", GAUGE, "The first entry of the log that is still there."),
            Family("chronik_raft_last_index", GAUGE, "The last entry of the log, durable or not."),
            Family("chronik_raft_snapshot_index", GAUGE, "Up to where the last snapshot goes."),
            Family("chronik_raft_commit_index", GAUGE, "The last entry that is known to be committed."),
            Family("chronik_raft_applied_index", GAUGE, "The last entry that is applied here."),
            Family("chronik_raft_apply_lag", GAUGE, "Entries that are committed and not applied here."),
            Family("chronik_raft_connected_peers", GAUGE, "Other nodes that this one can send to."),
            Family("chronik_raft_elections_total", COUNTER, "Elections in which this node stood."),
            Family("chronik_raft_elections_won_total", COUNTER, "Of those, the ones that it won."),
            Family("chronik_raft_leader_changes_total", COUNTER, "Times that this node learnt of another leader."),
        ),
    ),
    Section(
        "The process",
        (
            Family(
                "chronik_loop_lateness_seconds",
                HISTOGRAM,
                "How late a timer of the event loop came, 40 times a second: what holds the loop, or takes our core.",
            ),
            Family("chronik_loop_longest_stall_seconds", GAUGE, "The longest of over 10 ms since the start."),
            Family("chronik_build_info", GAUGE, "Always 1.", ("version", "node_id")),
            Family("process_cpu_seconds_total", COUNTER, "Time on processors, of this process and the system for it."),
            Family("process_resident_memory_bytes", GAUGE, "Memory of this process. On Linux."),
            Family("process_open_fds", GAUGE, "Open files and connections. On Linux."),
            Family("process_max_fds", GAUGE, "How many of them there may be."),
            Family("process_start_time_seconds", GAUGE, "When the node started, in seconds since 1970."),
        ),
    ),
    Section(
        "About the metrics",
        (
            Family("chronik_metrics_series", GAUGE, "Series in this answer."),
            Family(
                "chronik_metrics_series_left_out",
                GAUGE,
                'Series that are summed up in those labelled "_other", for chronik.metrics.series.max.',
            ),
            Family(
                "chronik_metrics_survey_seconds",
                GAUGE,
                "Time of the loop that the last look at all partitions and offsets took; the next comes after twenty "
                "times as long at the earliest.",
            ),
        ),
    ),
)

FAMILIES: Final = {family.name: family for section in SECTIONS for family in section.families}


def told(name: str, value: float) -> Metric:
    """Makes a family of one sample without labels."""
    return FAMILIES[name].of((Sample(value),))

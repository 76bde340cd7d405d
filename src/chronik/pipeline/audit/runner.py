"""Execution of an audit: plan the work, compare metadata, logs, tables and committed offsets, and build the report."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from chronik.client.access.settings import Bootstrap
from chronik.client.admin import list_topics
from chronik.client.cluster import ClusterClient
from chronik.client.errors import ClientError
from chronik.client.records import TopicPartition
from chronik.config import Address
from chronik.console.http_client import HttpAccess
from chronik.formats.registry_client import RegistrySettings
from chronik.ids import format_id
from chronik.limits import MIB
from chronik.metadata.image import Image
from chronik.pipeline.audit import group_offsets as committed
from chronik.pipeline.audit import partition_plan
from chronik.pipeline.audit.batch_scanner import find_log_end
from chronik.pipeline.audit.data_directories import (
    AuditInputError,
    NodeDataDirectory,
    get_segment_size,
    open_data_directories,
    verify_data_directories,
)
from chronik.pipeline.audit.findings import Finding, FindingKind
from chronik.pipeline.audit.log_comparison import AuditProgressCallback, compare_logs, ignore_progress
from chronik.pipeline.audit.metadata_state import compare_running_nodes, compare_stored_metadata
from chronik.pipeline.audit.partition_plan import AuditedPartition
from chronik.pipeline.audit.report import AuditReport
from chronik.pipeline.audit.start import AuditPoints, AuditStart, build_ends, resolve_points, skip_earlier_records
from chronik.pipeline.audit.table_comparison import (
    AuditedTable,
    check_table_root,
    compare_table,
    find_rows_beyond_log,
    open_audited_table,
)
from chronik.pipeline.landing.settings import ENABLED_CONFIG
from chronik.pipeline.registry_access import find_registry, with_patience
from chronik.pipeline.source.segment_transport import list_segment_files
from chronik.pipeline.spark.masters import resolve_master
from chronik.pipeline.spark.tasks import Item, Result, TaskRunner, run_locally, spark_task_runner
from chronik.pipeline.tables.storage import to_absolute_root
from chronik.protocol.errors import KafkaError
from chronik.protocol.messages.metadata import MetadataResponsePartition
from chronik.wording import pluralize

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["AuditInputError", "audit"]

CLIENT_ID: Final = "chronik-audit"
NO_CREDENTIALS: Final = HttpAccess()

LOCAL_RUN_BYTES_MAX: Final = 128 * MIB
"""Largest total size of logs and tables that is audited without Spark.

One core reads this much in about a second; a Spark session takes five seconds to start.
"""

COMPARE_ATTEMPTS_MAX: Final = 5
"""Maximum number of times that partitions are compared again because their leaders or ISRs changed."""


def audit(
    data_dirs: Sequence[str | Path],
    *,
    bootstrap: Bootstrap | None = None,
    table_root: str | None = None,
    storage_options: Mapping[str, str] | None = None,
    topics: Iterable[str] | None = None,
    http: Sequence[Address] = (),
    http_access: HttpAccess = NO_CREDENTIALS,
    spark: SparkSession | None = None,
    master: str | None = None,
    tasks: TaskRunner | None = None,
    progress: AuditProgressCallback = ignore_progress,
    timeout_s: float = 30.0,
    registry: RegistrySettings | None = None,
    start: AuditStart | AuditPoints | None = None,
) -> AuditReport:
    """Audit the data directories of a cluster's nodes and return a report of all problems.

    Args:
        data_dirs: The nodes' data directories. Tasks open them by these paths: with a `master` on several machines,
            mount them on every executor.
        bootstrap: A broker of the running cluster, which reports the high watermarks. Without it, the nodes must be
            stopped.
        table_root: The root of the tables to compare with the log.
        storage_options: Options of the object store of `table_root`.
        topics: The topics to audit; all if None.
        http: HTTP addresses of the running nodes, whose in-memory metadata is compared too.
        http_access: Token and TLS context for the HTTP addresses.
        spark: The Spark session to use. Without it, and without `tasks`, a session is started if the data is large.
        master: The Spark master of a session that is started here.
        tasks: The task runner to use instead of Spark.
        progress: A callback for the progress of the work.
        timeout_s: How long requests to brokers and nodes are retried.
        registry: The schema registry of typed tables; None for that of the brokers, or the one that a table names.
        start: Where to start in each partition. Earlier records and rows are not read.

    Raises:
        AuditInputError: A data directory or the metadata cannot be read, or a topic does not exist.
        ClientError: No broker responds.
        KafkaError: A broker rejects a request.
        NodeRequestError: A node does not respond over HTTP.
    """
    started = time.monotonic()
    directories = open_data_directories(data_dirs)
    if not directories:
        raise AuditInputError("no data directory was given; pass the data directory of each node")
    if table_root is not None:
        table_root = to_absolute_root(table_root)
        check_table_root(table_root)
    with ExitStack() as stack:
        cluster = None
        if bootstrap is not None:
            cluster = stack.enter_context(ClusterClient(bootstrap, client_id=CLIENT_ID, timeout_s=timeout_s))
        work = _AuditRun(
            directories, cluster, None if topics is None else set(topics), progress, storage_options, registry, start
        )
        work.check_metadata(http, timeout_s, http_access)
        work.plan(table_root)
        if tasks is None:
            tasks = choose_task_runner(spark, master, work.size_bytes)
        tasks = wrap_with_input_verification(tasks, directories.values(), table_root)
        work.check_logs(tasks)
        work.check_tables(tasks, table_root)
        work.check_groups()
        work.drop_outdated_findings()
    work.report.seconds = time.monotonic() - started
    return work.report


def choose_task_runner(spark: SparkSession | None, master: str | None, size_bytes: int) -> TaskRunner:
    """Return a local task runner if the data is small and no master is configured; otherwise, one that uses Spark."""
    if spark is not None:
        return spark_task_runner(spark)
    if resolve_master(master) is None and size_bytes < LOCAL_RUN_BYTES_MAX:
        return run_locally
    from chronik.pipeline.spark.runtime import session

    return spark_task_runner(session(master))


def wrap_with_input_verification(
    tasks: TaskRunner, directories: Iterable[NodeDataDirectory], table_root: str | None
) -> TaskRunner:
    """Return a task runner that, before each task, checks that its machine mounts the same directories and tables.

    An unmounted directory would otherwise look like an empty log.
    """
    run_checked = partial(_verify_inputs_and_run, tuple(directories), table_root)

    def run(function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
        return tasks(partial(run_checked, function), items)

    return run


def _verify_inputs_and_run(
    directories: tuple[NodeDataDirectory, ...], table_root: str | None, function: Callable[[Item], Result], item: Item
) -> Result:
    try:
        verify_data_directories(directories)
        if table_root is not None:
            check_table_root(table_root)
    except AuditInputError as error:
        raise AuditInputError(f"cannot audit on executor {socket.gethostname()}: {error}") from error
    return function(item)


class _AuditRun:
    """A running audit: the planned partitions and tables, and the report that it fills."""

    def __init__(
        self,
        directories: dict[int, NodeDataDirectory],
        cluster: ClusterClient | None,
        topics: set[str] | None,
        progress: AuditProgressCallback,
        storage_options: Mapping[str, str] | None,
        registry: RegistrySettings | None,
        start: AuditStart | AuditPoints | None,
    ) -> None:
        self._directories = directories
        self._points = None if isinstance(start, AuditStart) else start
        self._start = start if isinstance(start, AuditStart) else None
        self._registry = registry
        self._storage_options = storage_options
        self._cluster = cluster
        self._topics = topics
        self._progress = progress
        self._partitions: list[AuditedPartition] = []
        self._tables: dict[str, AuditedTable] = {}
        self._topics_without_table: list[str] = []
        self._unreadable_tables: list[str] = []
        self._committed: committed.GroupOffsets = {}
        self._partition_counts: dict[str, int] = {}
        self._image: Image | None = None
        self.report = AuditReport(nodes=tuple(directories))

    @property
    def size_bytes(self) -> int:
        """Total size of the planned logs and tables in bytes."""
        directories = [replica.directory for partition in self._partitions for replica in partition.replicas]
        logs = sum(get_segment_size(segment) for directory in directories for segment in list_segment_files(directory))
        return logs + sum(file.size_bytes for landed in self._tables.values() for file in landed.table.files)

    # Planning

    def check_metadata(self, http: Sequence[Address], timeout_s: float, credentials: HttpAccess) -> None:
        states = compare_stored_metadata(self._directories)
        self._add_comparison_results(states.findings, states.notes)
        self._image = states.latest_image
        self.report.metadata_index = states.index
        if http:
            running = compare_running_nodes(http, timeout_s, credentials)
            self._add_comparison_results(running.findings, running.notes)

    def plan(self, table_root: str | None) -> None:
        """Plan the audit: open the tables, then read the committed group offsets, then the partitions' end offsets.

        Each of them can only be behind the next one, so concurrent progress does not look like a problem.
        """
        image = self._image
        self._count_partitions()
        unknown = sorted((self._topics or set()) - self._partition_counts.keys())
        if unknown:
            raise AuditInputError(f"unknown topic: {', '.join(unknown)}")
        if table_root is not None:
            self._open_tables(table_root)
        if self._cluster is not None:
            self._committed = committed.fetch_group_offsets(self._cluster)
            self._count_partitions()  # again: groups may have started to read new partitions
            self._partitions = partition_plan.fetch_audited_partitions(self._cluster, self._directories, self._topics)
        else:
            assert image is not None
            self._committed = committed.extract_group_offsets(image)
            self._partitions = partition_plan.build_audited_partitions(image, self._directories, self._topics)
        self._skip_earlier_records()
        self._count_planned_work()
        if table_root is not None:
            self._report_missing_tables(table_root)

    def _skip_earlier_records(self) -> None:
        if self._points is not None:
            self._start = resolve_points(self._points, self._partitions)
        whole = sum(each.end - each.start for each in self._partitions)
        self._partitions = skip_earlier_records(self._partitions, self._start)
        self.report.ends = build_ends(self._partitions)
        if self._start is not None:
            left = sum(each.end - each.start for each in self._partitions)
            self.report.notes.append(f"{left:,} of {pluralize(whole, 'offset')} audited; earlier ones were skipped")

    def _count_partitions(self) -> None:
        if self._cluster is not None:
            self._partition_counts |= {each.name or "": len(each.partitions) for each in list_topics(self._cluster)}
        elif self._image is not None:
            self._partition_counts = {topic.name: len(topic.partitions) for topic in self._image.topics.values()}
        else:
            raise AuditInputError(
                "no node's metadata is readable; pass a bootstrap server to query the brokers instead"
            )

    def _open_tables(self, root: str) -> None:
        self.report.tables = 0
        for topic in sorted(self._topics or self._partition_counts):
            try:
                found = open_audited_table(root, topic, self._storage_options)
            except AuditInputError as error:
                self.report.unchecked.append(str(error))
                self._unreadable_tables.append(topic)
                continue
            if found is not None:
                self._tables[topic] = self._with_registry(found)
            else:
                self._topics_without_table.append(topic)

    def _with_registry(self, landed: AuditedTable) -> AuditedTable:
        """Return the table with the given registry, else that of the brokers, else the one that the table names."""
        if not landed.table.format.needs_registry:
            return landed
        if self._registry is None and self._cluster is not None:
            with suppress(ClientError, KafkaError):  # such as a missing permission to describe configs
                self._registry = find_registry(None, self._cluster)
        return landed.with_registry(with_patience(self._registry or landed.table.registry))

    def _report_missing_tables(self, root: str) -> None:
        """Report topics without a table, so that a mistyped table root is detected.

        Topics without records to land need no table.
        """
        landing = {each.topic for each in self._partitions if each.should_land and each.end > each.start}
        reasons = dict.fromkeys(landing, f"has {ENABLED_CONFIG}=true and records")
        reasons |= dict.fromkeys(self._topics or (), "was requested")
        missing = [topic for topic in self._topics_without_table if topic in reasons]
        self.report.unchecked += [f"{root} has no table for {topic}, which {reasons[topic]}" for topic in missing]
        if not (self._tables or self._unreadable_tables or missing):
            self.report.unchecked.append(f"{root} has no table for any of the topics")

    def _count_planned_work(self) -> None:
        report = self.report
        report.topics = len({each.topic for each in self._partitions})
        report.partitions = len(self._partitions)
        report.replicas = sum(len(each.replicas) for each in self._partitions)
        report.groups = len(self._committed)
        unseen: dict[int, int] = {}
        for partition in self._partitions:
            for node in partition.unavailable_nodes:
                unseen[node] = unseen.get(node, 0) + 1
        for node in self._directories:
            self._note_lagging_replicas(node)
        report.unchecked += [
            f"node {node} hosts {pluralize(count, 'replica')}, but its data directory was not given"
            for node, count in sorted(unseen.items())
        ]

    def _note_lagging_replicas(self, node: int) -> None:
        """Add a note about the node's lagging replicas, which are compared up to their log end offset."""
        lagging = [
            (partition.end - replica.end, replica.end, partition)
            for partition in self._partitions
            for replica in partition.replicas
            if replica.node == node and not replica.is_in_sync and replica.end < partition.end
        ]
        if lagging:
            _, end, partition = max(lagging, key=lambda each: each[0])
            self.report.notes.append(
                f"node {node} lags in {pluralize(len(lagging), 'partition')} and was compared up to its log ends: "
                f"in {partition.topic_partition} up to offset {end} of {partition.end}"
            )

    def check_logs(self, tasks: TaskRunner) -> None:
        started, report = time.monotonic(), self.report
        compared = compare_logs(tasks, self._partitions, self._progress)
        report.log_seconds = time.monotonic() - started
        report.batches, report.records, report.size_bytes = compared.batches, compared.records, compared.size_bytes
        findings, notes = compared.findings, compared.notes
        for _ in range(COMPARE_ATTEMPTS_MAX):
            changed = self._replan_changed_partitions({each.topic for each in findings if each.topic is not None})
            if not changed:
                break
            again = compare_logs(tasks, changed)
            sources = {each.topic_partition for each in changed}
            findings = [each for each in findings if _get_topic_partition(each) not in sources] + again.findings
            notes += again.notes
        self._add_comparison_results(findings, notes)

    def _replan_changed_partitions(self, topics: set[str]) -> list[AuditedPartition]:
        """Replan and return the partitions of these topics whose leader or ISR has changed since planning.

        The ends up to which their replicas must agree may have changed too.
        """
        if self._cluster is None or not topics:
            return []
        planned_partitions = {each.topic_partition: each for each in self._partitions}
        fetched = partition_plan.fetch_audited_partitions(self._cluster, self._directories, topics)
        now = {each.topic_partition: each for each in skip_earlier_records(fetched, self._start)}
        changed = {
            source: each
            for source, each in now.items()
            if source in planned_partitions and each.leadership != planned_partitions[source].leadership
        }
        self._partitions = [changed.get(each.topic_partition, each) for each in self._partitions]
        return list(changed.values())

    # Tables and groups

    def check_tables(self, tasks: TaskRunner, root: str | None) -> None:
        suspects: dict[TopicPartition, set[int]] = {}
        for finding in self.report.findings:
            if finding.node is not None and finding.topic is not None:
                suspects.setdefault(_get_topic_partition(finding), set()).add(finding.node)
        for number, (topic, landed) in enumerate(self._tables.items(), 1):
            partitions = [each for each in self._partitions if each.topic == topic]
            if any(each.topic_id != landed.topic_id for each in partitions):
                self.report.unchecked.append(
                    f"{landed.table.uri} belongs to a deleted topic with the same name, {topic}"
                )
                continue
            assert root is not None
            try:
                findings, rows = compare_table(tasks, root, landed, partitions, suspects, self._storage_options)
            except AuditInputError as error:
                self.report.unchecked.append(str(error))
                continue
            beyond = [found for each in partitions if (found := find_rows_beyond_log(landed, each)) is not None]
            if self._cluster is None:
                # Without brokers, the high watermark is not exactly known: the table may have seen more of the log.
                self.report.notes += [f"{each.topic}-{each.partition}: {each.says}" for each in beyond]
                beyond = []
            self._add_comparison_results([*beyond, *findings], ())
            self.report.tables = (self.report.tables or 0) + 1
            self.report.rows += rows
            self._progress("tables", number, len(self._tables))

    def check_groups(self) -> None:
        bounds = {
            each.topic_partition: committed.LogBounds(each.start if each.log_start is None else each.log_start, end)
            for each in self._partitions
            if (end := self._find_max_committed_offset(each)) is not None
        }
        for found in committed.check_group_offsets(self._committed, bounds, self._partition_counts):
            if isinstance(found, Finding):
                self.report.findings.append(found)
            else:
                self.report.notes.append(found)

    def _find_max_committed_offset(self, partition: AuditedPartition) -> int | None:
        """Return the highest offset that a group may have committed, or None if no in-sync replica is available.

        On running nodes, it is the high watermark. On stopped nodes, it is the end of the longest in-sync log.
        """
        if self._cluster is not None:
            return partition.end
        in_sync = [each for each in partition.replicas if each.is_in_sync]
        return max((find_log_end(each.directory, partition.end) for each in in_sync), default=None)

    # Confirmation

    def drop_outdated_findings(self) -> None:
        """Drop findings that no longer apply: the partition was deleted or moved, or the replica left the ISR."""
        if self._cluster is None or not self.report.findings:
            return
        now = {
            TopicPartition(topic.name or "", each.partition_index): (format_id(topic.topic_id), each)
            for topic in list_topics(self._cluster)
            for each in topic.partitions
        }
        kept = []
        for finding in self.report.findings:
            explanation = self._explain_outdated_finding(finding, now)
            if explanation is None:
                kept.append(finding)
            elif explanation not in self.report.notes:
                self.report.notes.append(explanation)
        self.report.findings = kept

    def _explain_outdated_finding(
        self, finding: Finding, now: Mapping[TopicPartition, tuple[str, MetadataResponsePartition]]
    ) -> str | None:
        topic_partition = _get_topic_partition(finding)
        planned = next((each for each in self._partitions if each.topic_partition == topic_partition), None)
        if planned is None or finding.kind in (FindingKind.STATE, FindingKind.COMMITTED_OFFSET):
            return None
        if topic_partition not in now or now[topic_partition][0] != planned.topic_id:
            return f"{topic_partition} was deleted during the audit"
        current = now[topic_partition][1]
        if finding.node is not None and finding.node not in current.replica_nodes:
            return f"{topic_partition} was moved away from node {finding.node} during the audit"
        if finding.kind is FindingKind.SHORT_LOG and finding.node not in current.isr_nodes:
            return f"{topic_partition}: node {finding.node} left the ISR during the audit"
        return None

    def _add_comparison_results(self, findings: Iterable[Finding], notes: Iterable[str]) -> None:
        self.report.findings += findings
        self.report.notes += notes


def _get_topic_partition(finding: Finding) -> TopicPartition:
    return TopicPartition(finding.topic or "", -1 if finding.partition is None else finding.partition)

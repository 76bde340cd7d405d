"""Runs an audit from beginning to end: looks at what there is in rounds, compares, narrows down and reports."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from chronik.client.access.settings import Bootstrap
from chronik.client.admin import list_topics
from chronik.client.cluster import Cluster
from chronik.client.records import TopicPartition
from chronik.config import Address
from chronik.console.ask import Way
from chronik.ids import format_id
from chronik.limits import MIB
from chronik.metadata.image import Image
from chronik.pipeline.audit import groups as committed
from chronik.pipeline.audit import standing
from chronik.pipeline.audit.findings import Finding, Kind
from chronik.pipeline.audit.folders import CannotLook, NodeFolder, node_folders, require_same, size_of
from chronik.pipeline.audit.logs.compare import Progress, compare_logs, in_silence
from chronik.pipeline.audit.logs.walk import log_end
from chronik.pipeline.audit.report import Report
from chronik.pipeline.audit.rows.compare import LandedTable, beyond_the_log, compare_table, landed_table, require_root
from chronik.pipeline.audit.standing import Partition
from chronik.pipeline.audit.state import compare_disks, compare_running
from chronik.pipeline.landing.settings import ENABLED
from chronik.pipeline.reading.segment_files import segments_of
from chronik.pipeline.spark.masters import chosen_master
from chronik.pipeline.spark.tasks import Item, Result, Tasks, in_this_process, on_spark
from chronik.pipeline.tables.storage import absolute_root
from chronik.protocol.messages.metadata import MetadataResponsePartition
from chronik.wording import counted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["CannotLook", "audit"]

CLIENT_ID: Final = "chronik-audit"
OPEN_WAY: Final = Way()

WITHOUT_SPARK_BYTES_MAX: Final = 128 * MIB
"""The size of logs and tables together: about a second of work for one core, where a session takes five to start."""

LOOKS_MAX: Final = 5
"""How often partitions whose leaders change while they are looked at are looked at again."""


def audit(
    data_dirs: Sequence[str | Path],
    *,
    bootstrap: Bootstrap | None = None,
    table_root: str | None = None,
    topics: Iterable[str] | None = None,
    http: Sequence[Address] = (),
    http_way: Way = OPEN_WAY,
    spark: SparkSession | None = None,
    master: str | None = None,
    tasks: Tasks | None = None,
    progress: Progress = in_silence,
    timeout_s: float = 30.0,
) -> Report:
    """Looks at everything in these data folders of nodes, and tells what is not as it must be.

    With `bootstrap` the nodes are running, and brokers say up to where replicas must agree; without it they are
    stopped. `table_root`: also that the tables there hold what the log holds. `topics`: only these. `http`: also that
    the running nodes hold the same metadata in memory; `http_way` is how they let one in. It runs in `tasks`, or on
    `spark`, or on a session of its own, which is not worth starting for little.
    Tasks read the folders by these paths: with `master` on several machines they must be mounted on all of them.

    Raises CannotLook, ClientError, KafkaError, NodeSilent.
    """
    began = time.monotonic()
    folders = node_folders(data_dirs)
    if not folders:
        raise CannotLook("no data folder was given")
    if table_root is not None:
        table_root = absolute_root(table_root)
        require_root(table_root)
    with ExitStack() as stack:
        cluster = None
        if bootstrap is not None:
            cluster = stack.enter_context(Cluster(bootstrap, client_id=CLIENT_ID, timeout_s=timeout_s))
        work = _Audit(folders, cluster, None if topics is None else set(topics), progress)
        work.look_at_metadata(http, timeout_s, http_way)
        work.plan(table_root)
        if tasks is None:
            tasks = tasks_for(spark, master, work.size_bytes)
        tasks = where_folders_are(tasks, folders.values(), table_root)
        work.look_at_logs(tasks)
        work.look_at_tables(tasks, table_root)
        work.look_at_groups()
        work.confirm()
    work.report.seconds = time.monotonic() - began
    return work.report


def tasks_for(spark: SparkSession | None, master: str | None, size_bytes: int) -> Tasks:
    """Uses Spark, unless nobody has said which, and a session would take longer to start than all of the work."""
    if spark is not None:
        return on_spark(spark)
    if chosen_master(master) is None and size_bytes < WITHOUT_SPARK_BYTES_MAX:
        return in_this_process
    from chronik.pipeline.spark.runtime import session

    return on_spark(session(master))


def where_folders_are(tasks: Tasks, folders: Iterable[NodeFolder], table_root: str | None) -> Tasks:
    """Has each task make sure first that it sees what was planned: an empty place would look like a lost log."""
    looking = partial(_looking, tuple(folders), table_root)

    def run(function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
        return tasks(partial(looking, function), items)

    return run


def _looking(
    folders: tuple[NodeFolder, ...], table_root: str | None, function: Callable[[Item], Result], item: Item
) -> Result:
    try:
        require_same(folders)
        if table_root is not None:
            require_root(table_root)
    except CannotLook as error:
        raise CannotLook(f"on {socket.gethostname()}, where tasks of the audit run: {error}") from error
    return function(item)


class _Audit:
    def __init__(
        self, folders: dict[int, NodeFolder], cluster: Cluster | None, topics: set[str] | None, progress: Progress
    ) -> None:
        self._folders = folders
        self._cluster = cluster
        self._topics = topics
        self._progress = progress
        self._partitions: list[Partition] = []
        self._tables: dict[str, LandedTable] = {}
        self._without_table: list[str] = []
        self._unopened: list[str] = []
        self._committed: committed.GroupOffsets = {}
        self._partition_counts: dict[str, int] = {}
        self._image: Image | None = None
        self.report = Report(nodes=tuple(folders))

    @property
    def size_bytes(self) -> int:
        """The size of all that is planned."""
        folders = [replica.folder for partition in self._partitions for replica in partition.replicas]
        logs = sum(size_of(segment) for folder in folders for segment in segments_of(folder))
        return logs + sum(file.size_bytes for landed in self._tables.values() for file in landed.table.files)

    # What there is

    def look_at_metadata(self, http: Sequence[Address], timeout_s: float, way: Way) -> None:
        states = compare_disks(self._folders)
        self._take(states.findings, states.notes)
        self._image = states.latest
        self.report.state_index = states.index
        if http:
            running = compare_running(http, timeout_s, way)
            self._take(running.findings, running.notes)

    def plan(self, table_root: str | None) -> None:
        """Looks at tables first, then groups, then the ends of partitions: each can only be behind the next."""
        image = self._image
        self._count_partitions()
        unknown = sorted((self._topics or set()) - self._partition_counts.keys())
        if unknown:
            raise CannotLook(f"there is no topic {', '.join(unknown)}")
        if table_root is not None:
            self._open_tables(table_root)
        if self._cluster is not None:
            self._committed = committed.told_by_brokers(self._cluster)
            self._count_partitions()  # once more: groups may have begun to read new ones
            self._partitions = standing.told_by_brokers(self._cluster, self._folders, self._topics)
        else:
            assert image is not None
            self._committed = committed.of_image(image)
            self._partitions = standing.of_image(image, self._folders, self._topics)
        self._count()
        if table_root is not None:
            self._tell_absent_tables(table_root)

    def _count_partitions(self) -> None:
        if self._cluster is not None:
            self._partition_counts |= {each.name or "": len(each.partitions) for each in list_topics(self._cluster)}
        elif self._image is not None:
            self._partition_counts = {topic.name: len(topic.partitions) for topic in self._image.topics.values()}
        else:
            raise CannotLook("no node's metadata can be read, and no broker was given to ask")

    def _open_tables(self, root: str) -> None:
        self.report.tables = 0
        for topic in sorted(self._topics or self._partition_counts):
            try:
                found = landed_table(root, topic)
            except CannotLook as error:
                self.report.unseen.append(str(error))
                self._unopened.append(topic)
                continue
            if found is not None:
                self._tables[topic] = found
            else:
                self._without_table.append(topic)

    def _tell_absent_tables(self, root: str) -> None:
        """Reports them: a root with a typo must not look clean. What has nothing to land needs no table."""
        landing = {each.topic for each in self._partitions if each.lands and each.end > each.start}
        reasons = dict.fromkeys(landing, f"has {ENABLED}=true and records")
        reasons |= dict.fromkeys(self._topics or (), "was asked for")
        absent = [topic for topic in self._without_table if topic in reasons]
        self.report.unseen += [f"{root} has no table of {topic}, which {reasons[topic]}" for topic in absent]
        if not (self._tables or self._unopened or absent):
            self.report.unseen.append(f"{root} has no table of any of the topics")

    def _count(self) -> None:
        report = self.report
        report.topics = len({each.topic for each in self._partitions})
        report.partitions = len(self._partitions)
        report.replicas = sum(len(each.replicas) for each in self._partitions)
        report.groups = len(self._committed)
        unseen: dict[int, int] = {}
        for partition in self._partitions:
            for node in partition.unseen:
                unseen[node] = unseen.get(node, 0) + 1
        for node in self._folders:
            self._note_behind(node)
        report.unseen += [
            f"node {node} holds {counted(count, 'replica')}, and its data folder was not given"
            for node, count in sorted(unseen.items())
        ]

    def _note_behind(self, node: int) -> None:
        """A replica that is not in sync may end anywhere: it is compared up to there."""
        behind = [
            (partition.end - replica.end, replica.end, partition)
            for partition in self._partitions
            for replica in partition.replicas
            if replica.node == node and not replica.is_in_sync and replica.end < partition.end
        ]
        if behind:
            _, end, partition = max(behind, key=lambda each: each[0])
            self.report.notes.append(
                f"node {node} is behind in {counted(len(behind), 'partition')}, and was compared up to where it is: "
                f"in {partition.source} up to {end} of {partition.end}"
            )

    def look_at_logs(self, tasks: Tasks) -> None:
        began, report = time.monotonic(), self.report
        compared = compare_logs(tasks, self._partitions, self._progress)
        report.log_seconds = time.monotonic() - began
        report.batches, report.records, report.size_bytes = compared.batches, compared.records, compared.size_bytes
        findings, notes = compared.findings, compared.notes
        for _ in range(LOOKS_MAX):
            moved = self._moved({each.topic for each in findings if each.topic is not None})
            if not moved:
                break
            again = compare_logs(tasks, moved)
            sources = {each.source for each in moved}
            findings = [each for each in findings if _source(each) not in sources] + again.findings
            notes += again.notes
        self._take(findings, notes)

    def _moved(self, topics: set[str]) -> list[Partition]:
        """Returns partitions of these topics that have another leader, or others in sync, than when they were planned,
        and plans them anew: what replicas were held to may not hold any more."""
        if self._cluster is None or not topics:
            return []
        known = {each.source: each for each in self._partitions}
        now = {each.source: each for each in standing.told_by_brokers(self._cluster, self._folders, topics)}
        moved = {source: each for source, each in now.items() if source in known and each.roles != known[source].roles}
        self._partitions = [moved.get(each.source, each) for each in self._partitions]
        return list(moved.values())

    # Tables and groups

    def look_at_tables(self, tasks: Tasks, root: str | None) -> None:
        suspects: dict[TopicPartition, set[int]] = {}
        for finding in self.report.findings:
            if finding.node is not None and finding.topic is not None:
                suspects.setdefault(_source(finding), set()).add(finding.node)
        for number, (topic, landed) in enumerate(self._tables.items(), 1):
            partitions = [each for each in self._partitions if each.topic == topic]
            if any(each.topic_id != landed.topic_id for each in partitions):
                self.report.unseen.append(f"{landed.table.uri} is of an earlier topic with the name {topic}")
                continue
            assert root is not None
            try:
                findings, rows = compare_table(tasks, root, landed, partitions, suspects)
            except CannotLook as error:
                self.report.unseen.append(str(error))
                continue
            beyond = [found for each in partitions if (found := beyond_the_log(landed, each)) is not None]
            if self._cluster is None:
                # How far the log went is not known exactly: the table may have seen more of it.
                self.report.notes += [f"{each.topic}-{each.partition}: {each.says}" for each in beyond]
                beyond = []
            self._take([*beyond, *findings], ())
            self.report.tables = (self.report.tables or 0) + 1
            self.report.rows += rows
            self._progress("tables", number, len(self._tables))

    def look_at_groups(self) -> None:
        bounds = {
            each.source: committed.Bounds(each.start, end)
            for each in self._partitions
            if (end := self._end_of(each)) is not None
        }
        for found in committed.compare_groups(self._committed, bounds, self._partition_counts):
            if isinstance(found, Finding):
                self.report.findings.append(found)
            else:
                self.report.notes.append(found)

    def _end_of(self, partition: Partition) -> int | None:
        """Returns the high watermark of running nodes. Of stopped ones it is not known exactly: then it is the end of
        the log on a node in sync, beyond which it cannot be; None when there is no such node."""
        if self._cluster is not None:
            return partition.end
        in_sync = [each for each in partition.replicas if each.is_in_sync]
        return max((log_end(each.folder, partition.end) for each in in_sync), default=None)

    # In the end

    def confirm(self) -> None:
        """Drops findings about what has been deleted or moved meanwhile, or has fallen out of sync."""
        if self._cluster is None or not self.report.findings:
            return
        now = {
            TopicPartition(topic.name or "", each.partition_index): (format_id(topic.topic_id), each)
            for topic in list_topics(self._cluster)
            for each in topic.partitions
        }
        kept = []
        for finding in self.report.findings:
            excuse = self._excuse(finding, now)
            if excuse is None:
                kept.append(finding)
            elif excuse not in self.report.notes:
                self.report.notes.append(excuse)
        self.report.findings = kept

    def _excuse(
        self, finding: Finding, now: Mapping[TopicPartition, tuple[str, MetadataResponsePartition]]
    ) -> str | None:
        about = _source(finding)
        planned = next((each for each in self._partitions if each.source == about), None)
        if planned is None or finding.kind in (Kind.STATE, Kind.COMMITTED_OFFSET):
            return None
        if about not in now or now[about][0] != planned.topic_id:
            return f"{about} was deleted while it was looked at"
        current = now[about][1]
        if finding.node is not None and finding.node not in current.replica_nodes:
            return f"{about} has left node {finding.node} while it was looked at"
        if finding.kind is Kind.SHORT_LOG and finding.node not in current.isr_nodes:
            return f"{about}: node {finding.node} has fallen out of sync while it was looked at"
        return None

    def _take(self, findings: Iterable[Finding], notes: Iterable[str]) -> None:
        self.report.findings += findings
        self.report.notes += notes


def _source(finding: Finding) -> TopicPartition:
    return TopicPartition(finding.topic or "", -1 if finding.partition is None else finding.partition)

"""Where landed rows end and the live tail begins, fixed once for a statement.

The table's own next offsets are the boundary: read from the version whose files are read, so that no row is in both
halves and none in neither, whatever lands while the query runs. The high watermarks are asked for afterwards: a table
that is older than they are is never ahead of them.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa

from chronik.client.cluster import Cluster
from chronik.client.records import TopicPartition
from chronik.errors import ChronikError
from chronik.ids import format_id
from chronik.pipeline.options import IsolationLevel
from chronik.pipeline.positions import Positions
from chronik.pipeline.ranges import OffsetRange
from chronik.pipeline.tables.columns import Kind, schema_of
from chronik.pipeline.tables.committer import Snapshot, TableError, TableMissing, TableSpec
from chronik.pipeline.tables.delta import DeltaCommitter
from chronik.pipeline.tables.storage import DEAD_LETTERS_SUFFIX, local_folder, table_uri
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.metadata import MetadataResponseTopic

NO_SUCH_TOPIC: Final = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION)

GAP_ATTEMPTS: Final = 3
"""Retention may follow landing closely: records land and are deleted between a look at the table and one at the topic.
A gap that a fresh look at both shows again is one."""

GAP_PAUSE_SECONDS: Final = 0.2


class Unreadable(ChronikError):
    """A half of a topic cannot be told: what landed and what the topic holds do not meet, or the table is another's."""


@dataclass(frozen=True, slots=True)
class Landed:
    uri: str
    spec: TableSpec
    snapshot: Snapshot


@dataclass(frozen=True, slots=True)
class TopicSnapshot:
    """A topic at one moment."""

    topic: str
    landed: Landed | None
    """None while nothing of it has landed."""
    tail: tuple[OffsetRange, ...]
    """What the table does not have: from exactly its next offsets to the ends that were seen."""
    tail_unreadable: str | None = None
    """Why there is no telling what the tail is."""
    table_unreadable: str | None = None
    """Why there is no telling what has landed."""

    @property
    def kind(self) -> Kind:
        return Kind.RAW if self.landed is None else self.landed.spec.kind

    @property
    def schema(self) -> pa.Schema:
        """Of the rows of both halves. A topic that has no table yet looks as a raw one will."""
        return schema_of(Kind.RAW) if self.landed is None else self.landed.snapshot.schema


def tail_of(
    partitions: Iterable[TopicPartition],
    next_offsets: Mapping[int, int],
    earliest: Mapping[TopicPartition, int],
    latest: Mapping[TopicPartition, int],
) -> list[OffsetRange]:
    """Raises Unreadable when records between the table's end and the topic's beginning are in neither, or when the
    topic ends before the table does."""
    ranges = []
    for each in partitions:
        # A partition without a next offset never landed: all of it is tail. (0 is an offset, not "none".)
        landed_to = next_offsets.get(each.partition)
        start = earliest[each] if landed_to is None else landed_to
        if start < earliest[each]:
            raise Unreadable(
                f"{each}: offsets {start} to {earliest[each] - 1} are gone: retention deleted them before they landed"
                f" (the table ends before {start}, the topic now starts at {earliest[each]});"
                f" {each.topic}_cold has what landed"
            )
        if start > latest[each]:
            raise Unreadable(
                f"{each}: the table has records up to offset {start - 1}, and the topic ends before {latest[each]}:"
                f" it has lost records that landed; {each.topic}_cold has them"
            )
        if start < latest[each]:
            ranges.append(OffsetRange(*each, start, latest[each]))
    return ranges


class Snapshots:
    """Takes snapshots of topics and their tables. For one thread; the cluster stays the caller's."""

    def __init__(self, cluster: Cluster, table_root: str) -> None:
        self._cluster = cluster
        self._table_root = table_root
        # As landing reads: a record that may still be aborted is in neither half.
        self._positions = Positions(cluster, IsolationLevel.READ_COMMITTED)

    def topics(self) -> list[str]:
        """Topics and tables, whichever of the two there is."""
        response = self._cluster.retrying(lambda: self._cluster.metadata(None))
        return sorted({topic.name for topic in response.topics if topic.name} | _tables_in(self._table_root))

    def take(self, topics: Iterable[str]) -> dict[str, TopicSnapshot]:
        """Of all of them at once. Raises ClientError, KafkaError."""
        wanted = list(topics)
        found = self._take(wanted)
        for _ in range(GAP_ATTEMPTS - 1):
            if not any(each.tail_unreadable and not each.table_unreadable for each in found.values()):
                break
            time.sleep(GAP_PAUSE_SECONDS)
            found = self._take(wanted)
        return found

    def _take(self, topics: list[str]) -> dict[str, TopicSnapshot]:
        tables = {topic: self._landed(topic) for topic in topics}
        here = self._described(topics)
        partitions = [
            TopicPartition(topic, each.partition_index) for topic, known in here.items() for each in known.partitions
        ]
        earliest, latest = self._positions.earliest(partitions), self._positions.latest(partitions)
        taken = {}
        for topic, landed in tables.items():
            own = sorted(each for each in partitions if each.topic == topic)
            if isinstance(landed, TableError):
                taken[topic] = TopicSnapshot(topic, None, (), str(landed), str(landed))
                continue
            try:
                tail = _tail(landed, here.get(topic), own, earliest, latest)
                taken[topic] = TopicSnapshot(topic, landed, tuple(tail))
            except Unreadable as error:
                taken[topic] = TopicSnapshot(topic, landed, (), str(error))
        return taken

    def _landed(self, topic: str) -> Landed | TableError | None:
        uri = table_uri(self._table_root, topic)
        try:
            committer = DeltaCommitter(uri)
            return Landed(uri, committer.spec, committer.snapshot())
        except TableMissing:
            return None
        except TableError as error:
            return error

    def _described(self, topics: list[str]) -> dict[str, MetadataResponseTopic]:
        """Without those that are only tables."""
        self._cluster.forget()
        response = self._cluster.retrying(lambda: self._cluster.metadata(topics))
        return {
            topic.name: topic
            for topic in response.topics
            if topic.name and topic.error_code not in NO_SUCH_TOPIC
        }


def _tail(
    landed: Landed | None,
    topic: MetadataResponseTopic | None,
    partitions: list[TopicPartition],
    earliest: Mapping[TopicPartition, int],
    latest: Mapping[TopicPartition, int],
) -> list[OffsetRange]:
    """Raises Unreadable."""
    if topic is None:
        return []
    if landed is None:
        return tail_of(partitions, {}, earliest, latest)
    if format_id(topic.topic_id) != landed.spec.topic_id:
        raise Unreadable(
            f"{topic.name}: the topic was deleted and created again, and {landed.uri} is the table of the old one;"
            f" {topic.name}_cold has that"
        )
    return tail_of(partitions, landed.snapshot.next_offsets, earliest, latest)


def _tables_in(root: str) -> set[str]:
    """Names of tables in a folder; in an object store only those are known that have a topic."""
    folder = local_folder(root)
    if folder is None or not folder.is_dir():
        return set()
    return {each.name for each in folder.iterdir() if _is_table(each)}


def _is_table(folder: Path) -> bool:
    return not folder.name.endswith(DEAD_LETTERS_SUFFIX) and (folder / "_delta_log").is_dir()

"""Where landed rows end and the live tail begins, fixed once for a statement.

The table's own next offsets are the boundary: read from the version whose files are read, so that no row is in both
halves and none in neither, whatever lands while the query runs. The high watermarks are asked for afterwards: a table
that is older than they are is never ahead of them.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from chronik.client.cluster import UNKNOWN_TOPIC_SECONDS_MAX, Cluster, raise_for
from chronik.client.records import TopicPartition
from chronik.errors import ChronikError
from chronik.ids import format_id
from chronik.pipeline.reading.options import IsolationLevel
from chronik.pipeline.reading.positions import Positions
from chronik.pipeline.reading.ranges import OffsetRange
from chronik.pipeline.tables.layout import Kind, schema_of
from chronik.pipeline.tables.opening import open_table, table_names
from chronik.pipeline.tables.storage import DEAD_LETTERS_SUFFIX, local_folder, table_uri
from chronik.pipeline.tables.topic_table import Snapshot, TableError, TableMissing
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.protocol.messages.metadata import MetadataResponseTopic

NO_SUCH_TOPIC: Final = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION)

GAP_ATTEMPTS: Final = 3
"""Retention may follow landing closely: records land and are deleted between a look at the table and one at the topic.
A gap that a fresh look at both shows again is one."""

GAP_PAUSE_SECONDS: Final = 0.2

LEADERLESS_SECONDS_MAX: Final = 5.0
"""A node that was restarted leads again by then. If it were longer, a column with the name of a topic of a dead
node would hold up every statement about others."""

DESCRIBED_PAUSE_SECONDS: Final = 0.05


class Unreadable(ChronikError):
    """A half of a topic is not known: what landed and what the topic holds do not meet, or the table is another's."""


@dataclass(frozen=True, slots=True)
class TopicSnapshot:
    """A topic at one moment."""

    topic: str
    landed: Snapshot | None
    """None while nothing of it has landed."""
    tail: tuple[OffsetRange, ...]
    """What the table does not have: from exactly its next offsets to the ends that were seen."""
    tail_unreadable: str | None = None
    """Why there is no telling what the tail is."""
    table_unreadable: str | None = None
    """Why there is no telling what has landed."""
    is_only_a_table: bool = False
    """No broker knows the topic: there may be a tail or none."""

    @property
    def kind(self) -> Kind:
        return Kind.RAW if self.landed is None else self.landed.spec.kind

    @property
    def schema(self) -> pa.Schema:
        """The columns of both halves. A topic that has no table yet looks as a raw one will."""
        return schema_of(Kind.RAW) if self.landed is None else self.landed.schema


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
        """Returns the names of all topics and tables."""
        response = self._cluster.retrying(lambda: self._cluster.metadata(None))
        return sorted({topic.name for topic in response.topics if topic.name} | _tables_in(self._table_root))

    def take(self, topics: Iterable[str]) -> dict[str, TopicSnapshot]:
        """Takes snapshots of all at once. What is wrong with one is told in its snapshot. Raises ClientError."""
        wanted = list(topics)
        found, has_gap = self._take(wanted)
        for _ in range(GAP_ATTEMPTS - 1):
            if not has_gap:
                break
            time.sleep(GAP_PAUSE_SECONDS)
            found, has_gap = self._take(wanted)
        return found

    def _take(self, topics: list[str]) -> tuple[dict[str, TopicSnapshot], bool]:
        """Also returns whether a fresh look at table and topic may find that they meet."""
        tables = {topic: self._landed(topic) for topic in topics}
        here = self._described(topics)
        taken, has_gap = {}, False
        for topic, landed in tables.items():
            if isinstance(landed, TableError):
                taken[topic] = TopicSnapshot(topic, None, (), str(landed), str(landed))
                continue
            try:
                is_unknown = here[topic].error_code in NO_SUCH_TOPIC
                tail = () if landed is not None and is_unknown else tuple(self._tail(landed, here[topic], topic))
                taken[topic] = TopicSnapshot(topic, landed, tail, is_only_a_table=is_unknown)
            except Unreadable as error:
                has_gap = True
                taken[topic] = TopicSnapshot(topic, landed, (), str(error))
            except KafkaError as error:  # it is no other topic's fault
                taken[topic] = TopicSnapshot(topic, landed, (), str(error))
        return taken, has_gap

    def _landed(self, topic: str) -> Snapshot | TableError | None:
        uri = table_uri(self._table_root, topic)
        try:
            return open_table(uri).snapshot()
        except TableMissing:
            return None
        except TableError as error:
            return error
        except OSError as error:
            return TableError(f"{uri}: {str(error).splitlines()[0]}")

    def _described(self, topics: list[str]) -> dict[str, MetadataResponseTopic]:
        """Returns them as brokers know them, after the time in which they may still learn of them."""
        self._cluster.forget()
        began = time.monotonic()
        while True:
            response = self._cluster.retrying(lambda: self._cluster.metadata(topics))
            here = {topic.name: topic for topic in response.topics if topic.name}
            patience_s = max(map(_patience_s, here.values()), default=0.0)
            if time.monotonic() - began >= patience_s:
                return here
            time.sleep(DESCRIBED_PAUSE_SECONDS)

    def _tail(self, landed: Snapshot | None, topic: MetadataResponseTopic, name: str) -> list[OffsetRange]:
        """Raises Unreadable, KafkaError."""
        raise_for(topic.error_code, f"topic {name}")
        if landed is not None and format_id(topic.topic_id) != landed.spec.topic_id:
            raise Unreadable(
                f"{name}: the topic was deleted and created again, and {landed.uri} is the table of the old one;"
                f" {name}_cold has that"
            )
        partitions = sorted(TopicPartition(name, each.partition_index) for each in topic.partitions)
        for each in topic.partitions:
            if each.leader_id < 0:
                code = each.error_code or ErrorCode.LEADER_NOT_AVAILABLE
                raise_for(code, str(TopicPartition(name, each.partition_index)))
        next_offsets = {} if landed is None else landed.next_offsets
        earliest, latest = self._positions.earliest(partitions), self._positions.latest(partitions)
        return tail_of(partitions, next_offsets, earliest, latest)


def _patience_s(topic: MetadataResponseTopic) -> float:
    """Returns how long what is wrong with a topic, as brokers describe it, may still pass by itself."""
    if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return UNKNOWN_TOPIC_SECONDS_MAX
    passes = topic.error_code and ErrorCode(topic.error_code).retriable
    return LEADERLESS_SECONDS_MAX if passes or any(each.leader_id < 0 for each in topic.partitions) else 0.0


def _tables_in(root: str) -> set[str]:
    """Returns the names of tables in a folder; in an object store only those are known that have a topic."""
    folder = local_folder(root)
    if folder is None or not folder.is_dir():
        return set()
    return {name for name in table_names(root) if not name.endswith(DEAD_LETTERS_SUFFIX)}

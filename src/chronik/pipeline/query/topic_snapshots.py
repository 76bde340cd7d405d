"""Snapshots of topics for a statement: the boundary between landed rows and live tail, and the end of the tail.

The boundary is the table's next offsets, read from the version whose files are read, so that each record is in exactly
one half even if rows land during the query. High watermarks are fetched after the table was read, so that the table is
never ahead of them.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa

from chronik.client.cluster import UNKNOWN_TOPIC_SECONDS_MAX, ClusterClient, raise_for_code
from chronik.client.records import TopicPartition
from chronik.errors import ChronikError, ConfigError
from chronik.formats.registry_client import RegistrySettings
from chronik.ids import format_id
from chronik.pipeline.query.time_travel import LATEST_OFFSET, AsOfOffsets, PointInTime
from chronik.pipeline.registry_access import find_registry, resolve_registry, with_patience
from chronik.pipeline.source.offset_ranges import OffsetRange
from chronik.pipeline.source.offset_resolver import OffsetResolver
from chronik.pipeline.source.options import IsolationLevel
from chronik.pipeline.tables.as_of import AsOf
from chronik.pipeline.tables.catalog import list_table_names, open_table
from chronik.pipeline.tables.layout import TableKind, initial_schema
from chronik.pipeline.tables.storage import DEAD_LETTERS_SUFFIX, table_uri
from chronik.pipeline.tables.storage_errors import TableStorageError
from chronik.pipeline.tables.table_files import LiveFile
from chronik.pipeline.tables.topic_table import TableError, TableMissingError, TableSnapshot
from chronik.pipeline.tables.values.data_format import JSON_VALUES, RecordFormat
from chronik.pipeline.tables.values.table_schema import INFERRED, TableSchema
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.protocol.messages.metadata import MetadataResponseTopic

NO_SUCH_TOPIC: Final = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION)

GAP_ATTEMPTS: Final = 3
"""Maximum number of attempts to take a snapshot without a gap between table and topic. Records may land and be deleted
between reading the table and the topic; a gap that persists is real."""

GAP_RETRY_SECONDS: Final = 0.2

LEADERLESS_SECONDS_MAX: Final = 5.0
"""Maximum time to wait for a leader: enough for a node to restart.

A longer wait would delay statements with a column that has the name of an unavailable topic.
"""

DESCRIBE_RETRY_SECONDS: Final = 0.05


class UnreadableTopicError(ChronikError):
    """A topic's table does not match its log: records between them are missing, or the rows are another topic's."""


@dataclass(frozen=True, slots=True)
class TopicSnapshot:
    """The state of a topic and its table at one point in time."""

    topic: str
    table_snapshot: TableSnapshot | None
    """The table's snapshot, or None if nothing has landed."""
    tail: tuple[OffsetRange, ...]
    """The offset ranges that are not in the table: from its next offsets to the ends of the partitions."""
    tail_error: str | None = None
    """The reason why the live tail, the records that are not in the table yet, cannot be read; otherwise None."""
    table_error: str | None = None
    """The reason why the landed rows cannot be determined, or None."""
    is_table_only: bool = False
    """Whether the topic is unknown to the brokers, so that only landed rows are available."""
    registry: RegistrySettings | None = None
    """The registry with the schemas of the records; None if none is needed."""
    end_offsets: tuple[tuple[int, int], ...] = ()
    """Partitions of which the table has more rows than the snapshot, with the first offset that is not in it."""

    @property
    def kind(self) -> TableKind:
        return TableKind.RAW if self.table_snapshot is None else self.table_snapshot.spec.kind

    @property
    def schema(self) -> pa.Schema:
        """Columns of the landed rows and the live tail. A topic without a table has the raw columns."""
        return initial_schema(TableKind.RAW) if self.table_snapshot is None else self.table_snapshot.schema

    @property
    def partition_by(self) -> tuple[str, ...]:
        """The partition columns of the table."""
        return () if self.table_snapshot is None else self.table_snapshot.partition_by

    @property
    def format(self) -> RecordFormat:
        """The formats of the records' keys and values."""
        return JSON_VALUES if self.table_snapshot is None else self.table_snapshot.spec.format

    @property
    def value_schema(self) -> TableSchema:
        """The declared schema of the table's values."""
        return INFERRED if self.table_snapshot is None else self.table_snapshot.descriptor.value_schema


def compute_tail(
    partitions: Iterable[TopicPartition],
    next_offsets: Mapping[int, int],
    earliest: Mapping[TopicPartition, int],
    latest: Mapping[TopicPartition, int],
    end_offsets: Mapping[int, int] | None = None,
) -> list[OffsetRange]:
    """Return the live tail: the offset ranges from the table's next offsets to the ends of the partitions.

    With `end_offsets`, the tail ends at these offsets, and partitions that have landed up to them are not examined.

    Raises:
        UnreadableTopicError: Records were deleted before they landed, or a partition ends before the table does.
    """
    ranges = []
    for each in partitions:
        # A partition without a next offset never landed: all its records are live tail. (0 is a valid offset.)
        landed_to = next_offsets.get(each.partition)
        start = earliest[each] if landed_to is None else landed_to
        end = latest[each] if end_offsets is None else end_offsets[each.partition]
        if end_offsets is not None and end <= start:
            continue
        if start < earliest[each]:
            raise UnreadableTopicError(
                f"{each}: offsets {start} to {earliest[each] - 1} are missing: retention deleted them before landing"
                f" (the table's next offset is {start}, the log start offset is {earliest[each]});"
                f" query {each.topic}_cold for the landed rows"
            )
        if start > latest[each]:
            raise UnreadableTopicError(
                f"{each}: the table has records up to offset {start - 1}, but the partition ends at {latest[each]}:"
                f" it lost records that had landed; query {each.topic}_cold for the landed rows"
            )
        if start < end:
            ranges.append(OffsetRange(*each, start, end))
    return ranges


class SnapshotReader:
    """A reader of snapshots of topics and their tables. Not thread-safe; the caller closes the cluster."""

    def __init__(
        self,
        cluster: ClusterClient,
        table_root: str,
        storage_options: Mapping[str, str] | None = None,
        registry: RegistrySettings | None = None,
    ) -> None:
        self._cluster = cluster
        self._table_root = table_root
        self._storage_options = storage_options
        self._registry = registry
        # As for landing: a record that may still be aborted is in neither half.
        self._positions = OffsetResolver(cluster, IsolationLevel.READ_COMMITTED)

    def list_topics(self) -> list[str]:
        """Return the names of all topics and tables.

        Raises:
            ClientError: No broker responds.
            TableStorageError: The object store of the tables cannot be listed.
        """
        response = self._cluster.retry(lambda: self._cluster.metadata(None))
        return sorted({topic.name for topic in response.topics if topic.name} | self._list_tables())

    def _list_tables(self) -> set[str]:
        """Return the names of the topics' tables."""
        names = list_table_names(self._table_root, self._storage_options)
        return {name for name in names if not name.endswith(DEAD_LETTERS_SUFFIX)}

    def take_snapshots(self, topics: Iterable[str]) -> dict[str, TopicSnapshot]:
        """Take consistent snapshots of topics. Errors of a single topic are part of its snapshot.

        Raises:
            ClientError: No broker responds.
        """
        wanted = list(topics)
        found, has_gap = self._take_snapshots_once(wanted)
        for _ in range(GAP_ATTEMPTS - 1):
            if not has_gap:
                break
            time.sleep(GAP_RETRY_SECONDS)
            found, has_gap = self._take_snapshots_once(wanted)
        return found

    def take_snapshot_as_of(self, topic: str, as_of: PointInTime) -> TopicSnapshot:
        """Take a snapshot of a topic as of a point in time; errors are part of it.

        A version of the table has no live tail. The records below given offsets may be in both halves.

        Raises:
            ClientError: No broker responds.
        """
        if not isinstance(as_of, AsOfOffsets):
            landed = self._read_table_snapshot(topic, as_of)
            if landed is None:
                landed = TableError(f"{topic} has not landed, so that it has no versions")
            if isinstance(landed, TableError):
                return TopicSnapshot(topic, None, (), str(landed), str(landed))
            return TopicSnapshot(topic, landed, ())
        landed = self._read_table_snapshot(topic)
        if isinstance(landed, TableError):
            return TopicSnapshot(topic, None, (), str(landed), str(landed))
        described = self._describe_topics([topic])[topic]
        next_offsets = {} if landed is None else landed.next_offsets
        is_unknown = described.error_code in NO_SUCH_TOPIC
        known = set(next_offsets) | {each.partition_index for each in described.partitions}
        if mistake := _check_partitions(topic, dict(as_of.end_offsets), known):
            return TopicSnapshot(topic, None, (), mistake, mistake)
        tail: tuple[OffsetRange, ...] = ()
        tail_error, registry = None, None
        try:
            if is_unknown and landed is not None:
                _check_landed(topic, dict(as_of.end_offsets), next_offsets)
            else:
                tail = tuple(self._compute_topic_tail(landed, described, topic, dict(as_of.end_offsets)))
                registry = self._find_registry(landed) if tail else None
        except (UnreadableTopicError, KafkaError) as error:
            tail, tail_error = (), str(error)
        ends = tuple(
            (partition, end)
            for partition, end in as_of.end_offsets
            if end != LATEST_OFFSET and end < next_offsets.get(partition, 0)
        )
        if landed is not None and ends:
            landed = _restrict_to_offsets(landed, dict(ends))
        return TopicSnapshot(topic, landed, tail, tail_error, None, is_unknown, registry, ends)

    def find_offsets(self, timestamps_ms: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        """Return the first offset of each partition at or after a timestamp, or NO_MATCHING_OFFSET.

        Raises:
            ClientError, KafkaError: The brokers rejected the request or did not respond.
        """
        return self._positions.list_offsets_at(timestamps_ms)

    def _take_snapshots_once(self, topics: list[str]) -> tuple[dict[str, TopicSnapshot], bool]:
        """Take snapshots once; also return whether a table and its topic have a gap that a retry may close."""
        tables = {topic: self._read_table_snapshot(topic) for topic in topics}
        described = self._describe_topics(topics)
        results, has_gap = {}, False
        for topic, landed in tables.items():
            if isinstance(landed, TableError):
                results[topic] = TopicSnapshot(topic, None, (), str(landed), str(landed))
                continue
            try:
                is_unknown = described[topic].error_code in NO_SUCH_TOPIC
                tail = (
                    ()
                    if landed is not None and is_unknown
                    else tuple(self._compute_topic_tail(landed, described[topic], topic))
                )
                registry = self._find_registry(landed) if tail else None
                results[topic] = TopicSnapshot(topic, landed, tail, is_table_only=is_unknown, registry=registry)
            except UnreadableTopicError as error:
                has_gap = True
                results[topic] = TopicSnapshot(topic, landed, (), str(error))
            except KafkaError as error:  # other topics are not affected
                results[topic] = TopicSnapshot(topic, landed, (), str(error))
        return results, has_gap

    def _find_registry(self, landed: TableSnapshot | None) -> RegistrySettings | None:
        """Return the registry of the brokers, or else the one from which the table was landed; None if none is needed.

        Raises:
            UnreadableTopicError: There is none.
        """
        if landed is None or not landed.spec.format.needs_registry:
            return None
        try:
            if self._registry is None:
                self._registry = find_registry(None, self._cluster)  # once for all topics
            return with_patience(resolve_registry(self._registry, None, landed.descriptor.registry))
        except ConfigError as error:
            raise UnreadableTopicError(str(error)) from None

    def _read_table_snapshot(self, topic: str, as_of: AsOf | None = None) -> TableSnapshot | TableError | None:
        uri = table_uri(self._table_root, topic)
        try:
            return open_table(uri, self._storage_options).snapshot(as_of)
        except TableMissingError:
            return None
        except TableError as error:
            return error
        except TableStorageError as error:
            return TableError(str(error))
        except OSError as error:
            return TableError(f"{uri}: {str(error).splitlines()[0]}")

    def _describe_topics(self, topics: list[str]) -> dict[str, MetadataResponseTopic]:
        """Describe topics, and retry for a limited time while a topic is unknown or a partition has no leader."""
        self._cluster.invalidate_metadata()
        started = time.monotonic()
        while True:
            response = self._cluster.retry(lambda: self._cluster.metadata(topics))
            described = {topic.name: topic for topic in response.topics if topic.name}
            retry_period_s = max(map(_retry_period_s, described.values()), default=0.0)
            if time.monotonic() - started >= retry_period_s:
                return described
            time.sleep(DESCRIBE_RETRY_SECONDS)

    def _compute_topic_tail(
        self,
        landed: TableSnapshot | None,
        topic: MetadataResponseTopic,
        name: str,
        end_offsets: Mapping[int, int] | None = None,
    ) -> list[OffsetRange]:
        """Return the offset ranges of a topic's live tail, the records that are not in its table yet.

        With `end_offsets`, the tail ends at these offsets.

        Raises:
            UnreadableTopicError: There is a gap, or the table belongs to another topic.
            KafkaError: The topic is unavailable.
        """
        raise_for_code(topic.error_code, f"topic {name}")
        if landed is not None and format_id(topic.topic_id) != landed.spec.topic_id:
            raise UnreadableTopicError(
                f"topic {name} was deleted and created again, and {landed.uri} is the table of the deleted topic;"
                f" query {name}_cold for its rows"
            )
        partitions = sorted(TopicPartition(name, each.partition_index) for each in topic.partitions)
        for each in topic.partitions:
            if each.leader_id < 0:
                code = each.error_code or ErrorCode.LEADER_NOT_AVAILABLE
                raise_for_code(code, str(TopicPartition(name, each.partition_index)))
        next_offsets = {} if landed is None else landed.next_offsets
        earliest, latest = (
            self._positions.fetch_earliest_offsets(partitions),
            self._positions.fetch_latest_offsets(partitions),
        )
        if end_offsets is not None:
            end_offsets = _resolve_end_offsets(end_offsets, latest)
        return compute_tail(partitions, next_offsets, earliest, latest, end_offsets)


def select_files(snapshot: TableSnapshot, positions: Sequence[int]) -> TableSnapshot:
    """Return a table's snapshot with only the files at these positions."""
    return replace(
        snapshot,
        file_uris=tuple(snapshot.file_uris[position] for position in positions),
        live_files=tuple(snapshot.live_files[position] for position in positions),
        statistics=None if snapshot.statistics is None else snapshot.statistics.select(positions),
    )


def _restrict_to_offsets(landed: TableSnapshot, end_offsets: Mapping[int, int]) -> TableSnapshot:
    """Return the snapshot without files that have only records from the end offsets on."""

    def may_have_rows(file: LiveFile) -> bool:
        (partition, last), (lowest, _) = file.partitions, file.offsets
        return partition != last or lowest < end_offsets.get(partition, lowest + 1)

    return select_files(landed, [position for position, file in enumerate(landed.live_files) if may_have_rows(file)])


def _check_partitions(topic: str, end_offsets: Mapping[int, int], known: set[int]) -> str | None:
    """Return what is wrong with the partitions of an OFFSETS clause, or None."""
    if unknown := sorted(set(end_offsets) - known):
        return f"{topic} OFFSETS AS OF: the topic has no partition {unknown[0]}"
    if missing := sorted(known - set(end_offsets)):
        names = ", ".join(map(str, missing))
        return f"{topic} OFFSETS AS OF: no offset of partition {names}; name every partition ({LATEST_OFFSET}: its end)"
    return None


def _check_landed(topic: str, end_offsets: Mapping[int, int], next_offsets: Mapping[int, int]) -> None:
    for partition, end in end_offsets.items():
        if end > next_offsets.get(partition, 0):
            raise UnreadableTopicError(
                f"topic {topic} does not exist on the cluster, and its table has records of partition {partition} up to"
                f" offset {next_offsets.get(partition, 0) - 1} only"
            )


def _resolve_end_offsets(end_offsets: Mapping[int, int], latest: Mapping[TopicPartition, int]) -> dict[int, int]:
    """Return the offsets with the current ends of partitions.

    Raises:
        UnreadableTopicError: An offset is beyond the end of its partition.
    """
    found = {}
    for partition, end in latest.items():
        wanted = end_offsets[partition.partition]
        if wanted > end:
            raise UnreadableTopicError(f"{partition}: offset {wanted} does not exist yet: the partition ends at {end}")
        found[partition.partition] = end if wanted == LATEST_OFFSET else wanted
    return found


def _retry_period_s(topic: MetadataResponseTopic) -> float:
    """Return for how many seconds to retry if a topic's metadata has an error that may be transient; otherwise 0."""
    if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return UNKNOWN_TOPIC_SECONDS_MAX
    is_transient = topic.error_code and ErrorCode(topic.error_code).retriable
    return LEADERLESS_SECONDS_MAX if is_transient or any(each.leader_id < 0 for each in topic.partitions) else 0.0

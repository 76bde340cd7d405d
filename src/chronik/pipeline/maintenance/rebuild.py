"""Rebuilding a table: all its records are decoded again, with another schema, and replace its rows in one commit.

The records come from the topic, or from the table's own rows and `_rescued` if retention has deleted some of them. The
new files are written next to the old ones and become part of the table with the commit that also changes its columns.
Readers see the old version until then. A pipeline may go on landing: rows that it adds meanwhile are rebuilt too, and a
round that was written with the old columns is rejected and planned again.

Records that are dead-letter records stay so; retry them afterwards. A row that the new schema rejects becomes a
dead-letter record before the new rows are committed, so that a crash between the two loses nothing; another rebuild
completes it.

A retry of dead-letter records (`dlq retry`) moves records between the two tables. A rebuild first completes interrupted
retries, and starts over if another one appends rows meanwhile: otherwise it would drop rows that it still saw as
dead-letter records.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property, partial
from itertools import islice
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from chronik.client.access.settings import Bootstrap
from chronik.client.cluster import ClusterClient
from chronik.errors import ConfigError, check_invariant
from chronik.formats.registry_client import RegistrySettings
from chronik.pipeline import CLIENT_ID
from chronik.pipeline.landing.landing_task import LandingTask, LandingTaskResult, run_landing_task
from chronik.pipeline.landing.round_plan import bundle_ranges
from chronik.pipeline.landing.topic_landing import LATE_SEQUENCE
from chronik.pipeline.landing.topic_positions import fetch_topic_ids
from chronik.pipeline.maintenance.dead_letters import RETRY_SEQUENCE, TablePair, is_same_decoding
from chronik.pipeline.registry_access import resolve_registry, with_patience
from chronik.pipeline.source.offset_resolver import OffsetResolver
from chronik.pipeline.source.options import IsolationLevel, ReadSettings
from chronik.pipeline.spark.tasks import TaskFailedError, TaskRunner, run_locally
from chronik.pipeline.table_maintenance.merges import get_maintainer
from chronik.pipeline.tables.catalog import open_or_create_table, open_table
from chronik.pipeline.tables.commit_plan import PartitionRange, WrittenFile
from chronik.pipeline.tables.layout import KEY_VALUE, OFFSET, PARTITION, TableKind, initial_schema
from chronik.pipeline.tables.offset_sets import (
    OffsetSets,
    collect_offsets,
    compute_offsets_mask,
    count_offsets,
    subtract_offsets,
    union_offsets,
)
from chronik.pipeline.tables.storage import build_dead_letters_uri, table_uri
from chronik.pipeline.tables.table_files import LiveFile, TableDescriptor, TableFiles, scan
from chronik.pipeline.tables.table_statistics import MaintenanceKind, MaintenanceRecord
from chronik.pipeline.tables.topic_table import (
    SequenceConflictError,
    TableCommitError,
    TableMismatchError,
    TableSnapshot,
    TableSpec,
    TopicTable,
)
from chronik.pipeline.tables.values.field_statistics import merge_statistics
from chronik.pipeline.tables.values.json_decoder import check_codecs
from chronik.pipeline.tables.values.record_rebuild import encode_json_values, list_source_columns
from chronik.pipeline.tables.values.row_decoder import infer_statistics
from chronik.pipeline.tables.values.schema_evolution import plan_new_columns
from chronik.pipeline.tables.values.table_schema import (
    INFERRED,
    TableSchema,
    UnknownFields,
    without_declared_settings,
)

SAMPLE_RECORDS_MAX: Final = 10_000

ATTEMPTS_MAX: Final = 5
"""Maximum number of attempts to rebuild a table whose files are replaced concurrently, for example by a compaction."""

LEASE_MS: Final = 60 * 60_000
"""Time for which pipelines do not maintain the table after the start of an attempt to rebuild it."""

TASKS_MAX: Final = 64
"""Maximum number of tasks of a rebuild. Each task reads a part of the topic, or some of the table's files."""

SCHEMA_CHANGES_MAX: Final = 3
"""Maximum number of times that a rebuild adds columns for new fields. Fields found later are stored in `_rescued`."""

END: Final = 2**63 - 1


class RebuildSource(StrEnum):
    """The source of the records from which a table is rebuilt: the topic, or the table's own rows."""

    TOPIC = "topic"
    ROWS = "rows"


@dataclass(frozen=True, slots=True)
class RebuildResult:
    """The result of a rebuild."""

    topic: str
    source: RebuildSource
    rows: int
    dead_letters: int
    """Number of rows that became dead-letter records."""
    version: int
    """Version of the table with the new rows."""


def rebuild_table(
    table_root: str,
    topic: str,
    schema: TableSchema | None = None,
    *,
    bootstrap: Bootstrap | None = None,
    source: RebuildSource | None = None,
    tasks: TaskRunner = run_locally,
    storage_options: Mapping[str, str] | None = None,
    progress: Callable[[int, int], None] = lambda done_tasks, all_tasks: None,
    registry: RegistrySettings | None = None,
) -> RebuildResult:
    """Decode all records of a table again, with another schema, and replace its rows.

        rebuild_table("tables", "orders", read_schema("orders.toml"), bootstrap="127.0.0.1:9092")

    Args:
        table_root: Directory or object store prefix of the tables.
        topic: The topic whose table is rebuilt.
        schema: The new schema; None for the one that the table declares, or else to infer it from the records again.
        bootstrap: A broker of the topic; without it, the records come from the table's rows.
        source: Where to read the records; None for the topic if it has all of them, and otherwise the rows.
        tasks: Runs the tasks, on Spark or in this process.
        storage_options: Options of the object store.
        progress: Called with the number of finished tasks and of all tasks.
        registry: The schema registry of a typed topic; None for that of the brokers, or the one that the table names.

    Raises:
        TableMissingError, TableMismatchError: There is no decoded table of this topic.
        ConfigError: The schema is invalid, or the topic does not have all records.
        TaskFailedError: A task failed.
        TableCommitError: The table changed too often while it was rebuilt.
    """
    table = open_table(table_uri(table_root, topic), storage_options)
    if table.spec.kind is not TableKind.DECODED:
        raise TableMismatchError(f"{table.uri} is a raw table, whose rows do not depend on a schema")
    dead_spec = TableSpec(topic, table.spec.topic_id, TableKind.DEAD_LETTERS, table_format=table.spec.table_format)
    dead = open_or_create_table(build_dead_letters_uri(table_root, topic), dead_spec, storage_options)
    if schema is not None:
        table.enable_features(pa.schema([column.to_field() for column in schema.columns]))
    for _ in range(ATTEMPTS_MAX):
        TablePair(table_root, topic, tasks, storage_options).finish_interrupted_retries()
        _lease_table(table, LEASE_MS)
        try:
            result = _Rebuild(table, dead, schema, bootstrap, source, tasks, progress, registry).run()
        except _RecordsMissingError as error:
            if source is RebuildSource.TOPIC:
                raise ConfigError(f"{error}; rebuild from the rows instead") from error
            source = RebuildSource.ROWS
            continue
        if result is not None:
            _lease_table(table, 0)
            return result
    raise TableCommitError(
        f"{table.uri}: files were replaced while the table was rebuilt: stop compactions and 'dlq retry', and try again"
    )


def _lease_table(table: TopicTable, lease_ms: int) -> None:
    """Record that this process rebuilds the table, so that pipelines do not replace its files during the rebuild."""
    now_ms = time.time_ns() // 1_000_000
    table.record_maintenance(MaintenanceRecord(MaintenanceKind.REBUILD, now_ms, get_maintainer(), now_ms + lease_ms))


class _RecordsMissingError(Exception):
    """The topic does not have all records of the table, for example because it is compacted."""


class _TableState(NamedTuple):
    """One version of a table: its files, and the number of retries of dead-letter records that have appended rows."""

    snapshot: TableSnapshot
    files: TableFiles
    retries: int

    def is_followed_by(self, now: _TableState) -> bool:
        """Return whether the table has changed since. In Iceberg, a change of columns alone is no new version."""
        is_same_version = now.snapshot.version == self.snapshot.version
        return not is_same_version or not now.snapshot.descriptor.has_same_columns(self.snapshot.descriptor)

    @classmethod
    def read(cls, table: TopicTable) -> _TableState:
        snapshot = table.snapshot()
        while True:
            state = cls(snapshot, table.files(), table.next_sequence_number(RETRY_SEQUENCE))
            snapshot = table.snapshot()
            if snapshot.version == state.snapshot.version:
                return state


class _Rebuild:
    """A single attempt to rebuild a table with another schema."""

    def __init__(
        self,
        table: TopicTable,
        dead: TopicTable,
        schema: TableSchema | None,
        bootstrap: Bootstrap | None,
        source: RebuildSource | None,
        tasks: TaskRunner,
        progress: Callable[[int, int], None],
        registry: RegistrySettings | None,
    ) -> None:
        self._table = table
        self._registry = registry
        self._dead = dead
        self._bootstrap = bootstrap
        self._tasks = tasks
        self._progress = progress
        self._state = _TableState.read(table)
        self._are_retries_complete = dead.next_sequence_number(RETRY_SEQUENCE) >= self._state.retries
        self._late_number = dead.next_sequence_number(LATE_SEQUENCE)
        # After the table's state: the dead-letter records of all rounds and retries that it contains are known.
        self._dead_letter_offsets = self._read_dead_letter_offsets()
        self._source = self._choose_rebuild_source(source)
        self._results: list[LandingTaskResult] = []
        self._committed_dead_letters: list[WrittenFile] = []
        """Dead-letter records that this rebuild has committed."""
        self._uncounted_dead_letters: list[WrittenFile] = []
        """Those that `_dead_letter_offsets` does not contain."""
        self._has_tried_to_commit = False
        self._target = self._build_target_table(schema)

    def run(self) -> RebuildResult | None:
        """Rebuild the table; return None if its files were replaced concurrently and the rebuild must start over."""
        if not self._are_retries_complete:
            return None
        try:
            self._run_tasks(self._plan_tasks(self._state.files, self._first_offsets))
            while True:
                now = _TableState.read(self._table)
                if self._state.is_followed_by(now) and not self._rebuild_added_rows(now):
                    break
                self._check_positions()
                version = self._commit()
                if version is not None:
                    return self._build_result(version)
        except SequenceConflictError:
            return None  # a landing round or another rebuild has committed dead-letter records of rows
        except BaseException:
            self._discard_files()
            raise
        self._discard_files()
        return None

    # The source

    def _choose_rebuild_source(self, wanted: RebuildSource | None) -> RebuildSource:
        if wanted is RebuildSource.ROWS or self._bootstrap is None:
            if wanted is RebuildSource.TOPIC:
                raise ConfigError("rebuilding from the topic needs a bootstrap server")
            return RebuildSource.ROWS
        missing = self._find_missing_records()
        if missing is not None and wanted is RebuildSource.TOPIC:
            raise ConfigError(f"{missing}; rebuild from the rows instead")
        return RebuildSource.ROWS if missing is not None else RebuildSource.TOPIC

    def _find_missing_records(self) -> str | None:
        """Describe records that are in the table but no longer in the topic; return None if there are none."""
        assert self._bootstrap is not None
        spec = self._table.spec
        with ClusterClient(self._bootstrap, client_id=CLIENT_ID) as cluster:
            if fetch_topic_ids(cluster, [spec.topic])[spec.topic] != spec.topic_id:
                return f"topic {spec.topic} was deleted since the table was created"
            offsets = OffsetResolver(cluster, IsolationLevel.READ_COMMITTED)
            earliest = offsets.fetch_earliest_offsets(cluster.retry(lambda: cluster.partitions(spec.topic)))
        for each, start in earliest.items():
            first = self._first_offsets.get(each.partition)
            if first is not None and first < start:
                return f"{each}: the table has offset {first}, but the log starts at {start}"
        return None

    @cached_property
    def _first_offsets(self) -> dict[int, int]:
        """Lowest offset of each partition with rows."""
        return self._read_first_offsets(self._state.files)

    def _read_first_offsets(self, table: TableFiles) -> dict[int, int]:
        lowest: dict[int, int] = {}
        for offsets in self._tasks(read_first_offsets, [table.with_files(file) for file in table.files]):
            for partition, offset in offsets.items():
                lowest[partition] = min(offset, lowest.get(partition, offset))
        return lowest

    # The schema

    def _build_target_table(self, schema: TableSchema | None) -> TableDescriptor:
        """Return the description of the rebuilt table, with the columns of the new schema."""
        spec, descriptor = self._table.spec, self._state.snapshot.descriptor
        value_schema = descriptor.value_schema if schema is None else schema
        check_codecs(value_schema, spec.partitioning.columns)
        declared = [column.to_field() for column in value_schema.columns]
        spec.partitioning.check_columns(pa.schema(declared))
        system = initial_schema(spec.kind, spec.partitioning, is_typed=spec.format.is_typed)
        columns = pa.schema([*system, *declared])
        if spec.format.is_typed or spec.format.has_decoded_keys:
            columns = self._keep_typed_columns(columns, value_schema)
            descriptor = replace(descriptor, registry=self._find_registry())
        if value_schema == INFERRED and not spec.format.is_typed:
            statistics = infer_statistics(sample_values(self._state.files, SAMPLE_RECORDS_MAX))
            columns = pa.schema([*columns, *plan_new_columns(value_schema, columns, statistics).added])
        return self._table.prepare_columns(replace(descriptor, schema=columns, value_schema=value_schema))

    def _keep_typed_columns(self, columns: pa.Schema, value_schema: TableSchema) -> pa.Schema:
        """Return columns with those of the table that the new schema does not replace, because rows lack their types.

        The columns are the union over all versions of the writers' schemas, so they do not depend on a sample.
        """
        table = self._state.snapshot.schema
        kept = [table.field(KEY_VALUE)] if KEY_VALUE in table.names else []
        if value_schema.unknown_fields is UnknownFields.COLUMN and self._table.spec.format.is_typed:
            declared = [column.path for column in value_schema.columns]
            for column in value_schema.resolve_columns(table):
                is_declared_again = any(
                    path[: len(column.path)] == column.path or column.path[: len(path)] == path for path in declared
                )
                if not is_declared_again and column.name not in columns.names:
                    kept.append(without_declared_settings(column).to_field(is_declared=False))
        return pa.schema([*columns, *kept])

    def _find_registry(self) -> RegistrySettings | None:
        spec, stored = self._table.spec, self._state.snapshot.descriptor.registry
        if self._source is RebuildSource.ROWS or not spec.format.needs_registry or self._bootstrap is None:
            return with_patience(self._registry or stored)
        with ClusterClient(self._bootstrap, client_id=CLIENT_ID) as cluster:
            return with_patience(resolve_registry(self._registry, cluster, stored))

    # Tasks

    def _plan_tasks(self, files: TableFiles, starts: Mapping[int, int]) -> list[LandingTask]:
        """Plan the tasks for these files, or for the topic's records from `starts` on."""
        topic = self._table.spec.topic
        read = ReadSettings(self._bootstrap or "", isolation=IsolationLevel.READ_COMMITTED)
        first = LandingTask(
            topic,
            (),
            read,
            self._target,
            dead_letters=self._dead.descriptor(),
            # All dead-letter records are below the table's next offsets.
            dead_letter_next_offsets=dict.fromkeys(self._state.snapshot.next_offsets, END),
            dead_letters_ahead=self._dead_letter_offsets,
        )
        if self._source is RebuildSource.ROWS:
            return [
                replace(first, ranges=self._find_offset_ranges(some), source=files.with_files(*some))
                for some in _group_files_by_size(files.files)
            ]
        ranges = [
            PartitionRange(partition, starts[partition], end)
            for partition, end in self._state.snapshot.next_offsets.items()
            if partition in starts and starts[partition] < end
        ]
        return [replace(first, ranges=each) for each in bundle_ranges(ranges, TASKS_MAX)]

    def _find_offset_ranges(self, files: Sequence[LiveFile]) -> tuple[PartitionRange, ...]:
        """Return the ranges that contain all records of the files."""
        return tuple(
            PartitionRange(partition, file.offsets[0], file.offsets[1] + 1 if file.offsets[1] < END else END)
            for file in files
            for partition in _list_partitions(file, self._state.snapshot)
        )

    def _read_dead_letter_offsets(self) -> OffsetSets:
        return collect_offsets(scan(self._dead.files(), [PARTITION, OFFSET]))

    def _run_tasks(self, tasks: list[LandingTask]) -> None:
        """Run tasks, and run those again that found fields for new columns."""
        done, total = 0, len(tasks)
        for change in range(SCHEMA_CHANGES_MAX + 1):
            current = [
                replace(task, table=self._target, may_request_columns=change < SCHEMA_CHANGES_MAX) for task in tasks
            ]
            results = self._tasks(run_landing_task, current)
            self._results += [result for result in results if result.output is not None]
            errors = [result.error for result in results if result.error is not None]
            if errors:
                raise TaskFailedError(errors[0])
            tasks = [task for task, result in zip(tasks, results, strict=True) if result.unknown_fields is not None]
            done = total - len(tasks)
            self._progress(done, total)
            if not tasks:
                return
            unknown = merge_statistics(result.unknown_fields for result in results if result.unknown_fields is not None)
            plan = plan_new_columns(self._target.value_schema, self._target.schema, unknown)
            by_name = {field.name: field for field in (*self._target.schema, *plan.added)}
            extended = replace(self._target, schema=pa.schema(list(by_name.values())))
            self._target = self._table.prepare_columns(extended, self._target)

    def _rebuild_added_rows(self, now: _TableState) -> bool:
        """Rebuild the rows that were landed during the rebuild; return whether this was possible."""
        known = {file.path for file in self._state.files.files}
        added = [file for file in now.files.files if file.path not in known]
        are_replaced = len(now.files.files) - len(added) < len(known)
        before = self._state.snapshot.next_offsets
        are_new = all(
            file.offsets[0] >= before.get(partition, 0)
            for file in added
            for partition in _list_partitions(file, now.snapshot)
        )
        if are_replaced or not are_new or now.retries != self._state.retries:
            return False
        if not is_same_decoding(self._state.snapshot.descriptor, now.snapshot.descriptor):
            return False  # the target depends on the declared schema
        self._state = now
        self._dead_letter_offsets, self._uncounted_dead_letters = self._read_dead_letter_offsets(), []
        new_rows = now.files.with_files(*added)
        # A partition without a next offset has rows for the first time.
        self._run_tasks(self._plan_tasks(new_rows, self._read_first_offsets(new_rows) | before))
        return True

    # Commit

    def _check_positions(self) -> None:
        """Check that the rebuild kept every row, as a row or a dead-letter record, before it replaces the old rows.

        The topic may have more records than the table: then the table was damaged, and the rebuild repairs it.

        Raises:
            _RecordsMissingError: The topic does not have all records of the table.
        """
        new, dead = self._target, self._dead.descriptor()
        old = [self._state.files.with_files(file) for file in self._state.files.files]
        late = [file for result in self._results for file in result.late_dead_letters] + self._uncounted_dead_letters
        written = [_describe_written_file(new, each) for each in self._written]
        written += [_describe_written_file(dead, each) for each in late]
        expected, found = self._digest_files(old, self._dead_letter_offsets), self._digest_files(written, {})
        if found == expected:
            return
        if self._source is RebuildSource.TOPIC:
            expected_offsets = subtract_offsets(self._read_offsets(old), self._dead_letter_offsets)
            missing = count_offsets(subtract_offsets(expected_offsets, self._read_offsets(written)))
            if not missing:
                return
            count = count_offsets(expected_offsets)
            raise _RecordsMissingError(
                f"topic {self._table.spec.topic} has {count - missing:,} of the table's {count:,} records"
            )
        check_invariant(False, f"{self._table.uri}: {found.rows} of {expected.rows} rows were rebuilt")

    def _read_offsets(self, files: list[TableFiles]) -> OffsetSets:
        return union_offsets(self._tasks(read_offsets, files))

    def _digest_files(self, files: list[TableFiles], excluded: OffsetSets) -> PositionDigest:
        digests = self._tasks(partial(digest_positions, excluded), files)
        return PositionDigest(sum(each.rows for each in digests), sum(each.hash for each in digests) % 2**64)

    def _commit(self) -> int | None:
        self._has_tried_to_commit = True
        late = [file for result in self._results for file in result.late_dead_letters]
        if late:
            self._dead.append_in_sequence(late, LATE_SEQUENCE, self._late_number)
            self._results = [replace(result, late_dead_letters=()) for result in self._results]
            self._late_number += 1
            self._committed_dead_letters += late
            self._uncounted_dead_letters += late
        return self._table.replace_rows(self._state.snapshot, self._written, self._target)

    @property
    def _written(self) -> list[WrittenFile]:
        return [file for result in self._results if result.output is not None for file in result.output.files]

    def _build_result(self, version: int) -> RebuildResult:
        rows = sum(file.rows for file in self._written)
        dead_letters = sum(file.rows for file in self._committed_dead_letters)
        return RebuildResult(self._table.spec.topic, self._source, rows, dead_letters, version)

    def _discard_files(self) -> None:
        """Delete the new files unless a commit may have added them; a vacuum later deletes the unused ones."""
        if self._has_tried_to_commit:
            return
        self._table.storage.discard_files(file.path for file in self._written)
        late = [file.path for result in self._results for file in result.late_dead_letters]
        self._dead.storage.discard_files(late)


def _group_files_by_size(files: Sequence[LiveFile]) -> list[tuple[LiveFile, ...]]:
    """Divide table files into at most TASKS_MAX groups of about equal size."""
    groups: list[list[LiveFile]] = [[] for _ in range(min(TASKS_MAX, len(files)))]
    sizes = [0] * len(groups)
    for file in sorted(files, key=lambda file: file.size_bytes, reverse=True):
        smallest = sizes.index(min(sizes))
        groups[smallest].append(file)
        sizes[smallest] += file.size_bytes
    return [tuple(group) for group in groups]


def _list_partitions(file: LiveFile, snapshot: TableSnapshot) -> list[int]:
    """Return the topic's partitions that may have records in a file, which may lack statistics."""
    return [number for number in snapshot.next_offsets if file.partitions[0] <= number <= file.partitions[1]]


def _describe_written_file(table: TableDescriptor, file: WrittenFile) -> TableFiles:
    """Return a description of a file that is not committed, from which `digest_positions` can read the positions."""
    return replace(table, partition_by=()).with_files(LiveFile(file.path, file.size_bytes, ()))


class PositionDigest(NamedTuple):
    """The number of rows, and a hash of their partitions and offsets that does not depend on the order of the rows."""

    rows: int
    hash: int


def digest_positions(excluded: OffsetSets, table: TableFiles) -> PositionDigest:
    """Return the digest of the rows whose offsets are not excluded."""
    rows = total = 0
    for batch in scan(table, [PARTITION, OFFSET]):
        kept = ~compute_offsets_mask(batch, excluded)
        partitions, offsets = (batch.column(name).to_numpy()[kept].astype(np.uint64) for name in (PARTITION, OFFSET))
        rows += len(offsets)
        total += int(_mix_bits(offsets + _mix_bits(partitions + np.uint64(1))).sum(dtype=np.uint64))
    return PositionDigest(rows, total % 2**64)


def read_offsets(table: TableFiles) -> OffsetSets:
    """Return the offsets of all rows in the files, by partition."""
    return collect_offsets(scan(table, [PARTITION, OFFSET]))


def _mix_bits(values: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Return the finalizer of SplitMix64 for each value."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def read_first_offsets(table: TableFiles) -> dict[int, int]:
    """Return the lowest offset of each partition in the files."""
    found = collect_offsets(scan(table, [PARTITION, OFFSET]))
    return {partition: int(offsets.min()) for partition, offsets in found.items() if len(offsets)}


def sample_values(table: TableFiles, records_max: int) -> list[bytes | None]:
    """Return values of rows from all files, at most `records_max` in total but at least one per file."""
    columns = list_source_columns(table.schema)
    values: list[bytes | None] = []
    for file in table.files:
        count = max(1, records_max // len(table.files))
        batches = scan(table.with_files(file), columns, batch_rows=count)
        for batch in islice(batches, 1):
            values += encode_json_values(pa.Table.from_batches([batch]).slice(0, count), table.value_schema).to_pylist()
    return values

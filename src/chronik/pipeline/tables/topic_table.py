"""Interface of a topic's table, independent of the table format; `catalog` returns implementations.

The formats are Delta (package `delta`) and Iceberg (package `iceberg`). Each stores a topic's offsets in the commits of
its rows: Delta in transactions, Iceberg in snapshot summaries.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

import pyarrow as pa

from chronik.errors import ChronikError
from chronik.pipeline.tables.as_of import AsOf
from chronik.pipeline.tables.commit_plan import TaskOutput, WrittenFile
from chronik.pipeline.tables.file_statistics import FileStatistics
from chronik.pipeline.tables.layout import TableKind
from chronik.pipeline.tables.partitioning import Partitioning
from chronik.pipeline.tables.storage import TableStorage
from chronik.pipeline.tables.table_files import LiveFile, TableDescriptor, TableFiles
from chronik.pipeline.tables.table_statistics import MaintenanceRecord, TableStatistics
from chronik.pipeline.tables.values.data_format import JSON_VALUES, RecordFormat
from chronik.pipeline.tables.values.field_statistics import FieldStatistics
from chronik.pipeline.tables.values.schema_evolution import EvolvedSchema
from chronik.pipeline.tables.values.table_schema import TableSchema


class TableError(ChronikError):
    """A table that cannot be used. The message gives the reason."""


class TableMissingError(TableError):
    """There is no table at the given URI."""


class VersionUnavailableError(TableError):
    """A table has no version as of a point in time, or its data files were deleted."""


class TableMismatchError(TableError):
    """An existing table belongs to another topic or stores another kind of rows."""


class SchemaConflictError(TableError):
    """A declared schema does not match the columns that a table has."""


class TornLogError(TableError):
    """A table's transaction log has an entry truncated by a power failure, so that rows would silently be missing."""


class TableCommitError(TableError):
    """A commit did not succeed within the maximum number of attempts. It is safe to write the rows again."""


class SequenceConflictError(TableError):
    """Another writer has committed this sequence number. Read the table again before appending."""


class TableFormat(StrEnum):
    """The format of a table's metadata."""

    DELTA = "delta"
    ICEBERG = "iceberg"


@dataclass(frozen=True, slots=True)
class TableSpec:
    """The identity of a table. It is stored when the table is created, and compared whenever it is opened."""

    topic: str
    topic_id: str
    """Topic id, from `format_id`. A topic that is deleted and created again starts at offset 0 and needs another table,
    since its offsets would otherwise be ambiguous."""
    kind: TableKind = TableKind.RAW
    partitioning: Partitioning = Partitioning.DATE
    format: RecordFormat = JSON_VALUES
    """The formats of the records' keys and values, if the table stores them decoded."""
    table_format: TableFormat = TableFormat.DELTA


@dataclass(frozen=True, slots=True)
class TableSnapshot:
    """One version of a table, whose files contain exactly the topic's records below the next offsets."""

    version: int
    spec: TableSpec
    next_offsets: dict[int, int]
    """Offset of the next record to write to the table, by partition; partitions without rows are omitted."""
    file_uris: tuple[str, ...]
    descriptor: TableDescriptor
    live_files: tuple[LiveFile, ...] = ()
    """Files with their partition values and offsets, in the order of `file_uris`."""
    statistics: FileStatistics | None = None
    """Statistics of the files, in the same order."""

    @property
    def uri(self) -> str:
        return self.descriptor.uri

    @property
    def files(self) -> TableFiles:
        return self.descriptor.with_files(*self.live_files)

    @property
    def schema(self) -> pa.Schema:
        return self.descriptor.schema

    @property
    def partition_by(self) -> tuple[str, ...]:
        return self.descriptor.partition_by


@dataclass(frozen=True, slots=True)
class CommitResult:
    """The result of a commit."""

    version: int
    """Version of the table that contains this commit; it may be later than the commit's own version."""
    next_offsets: dict[int, int]
    """Next offsets of the committed partitions."""
    rows: int
    """Number of rows added by this call; 0 if all were already committed."""
    committed_outputs: tuple[TaskOutput, ...]
    """Outputs that were skipped because their records were already committed."""


class TopicTable(Protocol):
    """A table that stores the records of one topic. Not thread-safe.

    Any number of processes may use the same table concurrently. Every method reads the table's current version, and
    raises TableMissingError if the table was deleted.
    """

    @property
    def uri(self) -> str: ...

    @property
    def storage(self) -> TableStorage: ...

    @property
    def spec(self) -> TableSpec:
        """The table's identity. Reading it raises TableMismatchError if the table does not belong to a topic."""

    # Reading

    def snapshot(self, as_of: AsOf | None = None) -> TableSnapshot:
        """Return the current version of the table, or an earlier one with its schema, next offsets and files.

        Raises:
            VersionUnavailableError: There is no version as of `as_of`, or a vacuum has deleted its files. The message
                names the oldest version.
            TableMismatchError: The files do not contain exactly their rows (deletion vectors, column mapping).
        """

    def next_offsets(self) -> dict[int, int]:
        """Return the offset of the next record to write to the table, by partition, without listing the files."""

    def descriptor(self) -> TableDescriptor:
        """Return the table's location and current schema, with which tasks write files."""

    def files(self) -> TableFiles:
        """Return all files of the current version.

        Raises:
            TableMismatchError: The files do not contain exactly their rows (deletion vectors, column mapping).
        """

    # Appending

    def commit(self, landed: Sequence[TaskOutput], written_with: pa.Schema | None = None) -> CommitResult:
        """Commit the files of all task outputs and the new next offsets atomically.

        `written_with` is the schema with which the files were written; None if it cannot have changed.

        Raises:
            CommitRejectedError: The outputs do not continue the table, or its columns were changed.
            TableCommitError: The commit did not succeed within its attempts.
        """

    def append_in_sequence(
        self, files: Sequence[WrittenFile], sequence: str, number: int, written_with: pa.Schema | None = None
    ) -> None:
        """Append files as commit `number` (from 0) of a named sequence of commits, without changing the next offsets.

        `written_with` is the schema with which the files were written; None if it cannot have changed.

        Raises:
            SequenceConflictError: This number is already committed.
            CommitRejectedError, TableCommitError: The files are lost, the columns were changed, or the commit failed.
        """

    def next_sequence_number(self, sequence: str) -> int:
        """Return the number of the next commit of a sequence, as `append_in_sequence` expects it."""

    def add_columns(self, unknown_fields: FieldStatistics) -> EvolvedSchema:
        """Add columns for fields that have none, and return the new schema and the rejected fields.

        Raises:
            TableCommitError: The commit did not succeed within its attempts.
        """

    def set_schema(self, schema: TableSchema) -> int:
        """Declare the schema of the table's values, add its columns, and return the new schema version.

        Raises:
            SchemaConflictError: A column has another type, which only a rebuild can change.
            TableCommitError: The commit did not succeed within its attempts.
        """

    def set_registry_url(self, url: str) -> None:
        """Store the URL of the registry from which records of the table are decoded, for commands without brokers."""

    def enable_features(self, columns: pa.Schema) -> None:
        """Enable the features of the table format that columns of these types need, before a rebuild adds them."""

    def schema_versions(self) -> dict[int, TableSchema]:
        """Return all versions of the declared schema."""

    def repair_offsets(self, *, lands_again: bool) -> dict[int, int]:
        """Resolve a rollback of the table by another tool, and return the offsets at which landing continues.

        With `lands_again`, it continues at the table's rows, and the removed records land again; otherwise, it
        continues after the last commit. A table that was not rolled back is not changed.

        Raises:
            TableMismatchError: The offsets of the table's rows are unknown.
            TableCommitError: The commit did not succeed within its attempts.
        """

    # Maintenance

    def statistics(self) -> TableStatistics:
        """Return the statistics of the current version from the table's metadata, without listing data files.

        Raises:
            TableMismatchError: The files do not contain exactly their rows (deletion vectors, column mapping).
        """

    def record_maintenance(self, record: MaintenanceRecord) -> None:
        """Store a maintenance record in the table, in a commit that changes neither rows nor files.

        Raises:
            TableCommitError: The commit did not succeed within its attempts.
        """

    def replace_files(
        self,
        removed: Sequence[LiveFile],
        written: Sequence[WrittenFile],
        *,
        data_change: bool,
        record: MaintenanceRecord | None = None,
    ) -> bool:
        """Replace files atomically, and return whether the table contains the new files.

        It returns False if another commit removed an old file or a vacuum deleted a new one; the new files are then
        deleted. After an unknown outcome they may be part of the table. `data_change` is Delta's dataChange flag. The
        maintenance record, if any, is stored in the same commit.

        Raises:
            TableCommitError: The commit did not succeed within its attempts.
        """

    def prepare_columns(self, target: TableDescriptor, extended: TableDescriptor | None = None) -> TableDescriptor:
        """Return a table description with the columns of `target`, for tasks that write the rows for `replace_rows`.

        `extended` is an earlier result, to which `target` adds columns; files written with it may be committed, too.
        Readers of the table see no change.

        Raises:
            ConfigError: The table format cannot replace a column.
            TableCommitError: The commit did not succeed within its attempts.
        """

    def replace_rows(
        self, before: TableSnapshot, written: Sequence[WrittenFile], target: TableDescriptor
    ) -> int | None:
        """Replace all rows and the columns atomically, and return the new version.

        It returns None if the table has another version or other columns than `before`. The schema becomes that of
        `target`, which `prepare_columns` has returned.

        Raises:
            CommitRejectedError: Some of the files are lost.
            TableCommitError: The commit did not succeed within its attempts.
        """

    def vacuum_files(self, hours: int, *, orphans: bool, dry_run: bool = False) -> list[str]:
        """Delete files that no version of the last `hours` contains, and return their paths.

        `orphans` includes uncommitted files.
        """

    def abort_uploads(self, hours: int, *, dry_run: bool = False) -> list[str]:
        """Abort multipart uploads to the table that were not completed for `hours`, and return their files' paths.

        Raises:
            ConfigError: The package that lists uploads is not installed.
            TableStorageError: The store does not list uploads, or denies access.
        """

    def expire_versions(self, hours: int) -> int:
        """Remove the metadata of versions that are older than `hours`, and return their number.

        The current version is never removed. Data files that only these versions contain are deleted by `vacuum_files`.

        Raises:
            TableCommitError: The commit did not succeed within its attempts.
        """

    def compact_metadata(self) -> None:
        """Reduce the number of metadata files that readers open: write a checkpoint, or merge manifests in Iceberg.

        Raises:
            TableError, TableCommitError: It failed; the table is unchanged.
        """

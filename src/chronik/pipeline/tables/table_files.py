"""Serialisable descriptions of a table and its data files, with which tasks read one version in small batches.

Files that are written but not committed yet have age limits. To a vacuum, they look like orphans of a killed task, and
a commit could add one between the vacuum's listing and its deletions. A vacuum therefore deletes only files that are
much older than any file that may still be committed. The margin covers clock differences, and a driver that is delayed
between its last check and its commit.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from chronik.formats.registry_client import RegistrySettings
from chronik.pipeline.tables.commit_plan import WrittenFile
from chronik.pipeline.tables.layout import ICEBERG_PARTITION, PARTITION
from chronik.pipeline.tables.parquet import CODEC, FILE_BYTES_TARGET, PartitionedParquetWriter
from chronik.pipeline.tables.storage import TableStorage
from chronik.pipeline.tables.values.data_format import JSON_VALUES, RecordFormat
from chronik.pipeline.tables.values.row_decoder import RowDecoder
from chronik.pipeline.tables.values.table_schema import INFERRED, TableSchema

ROWS_PER_BATCH = 16_384
"""Rows per batch: about 16 MiB for records of one kilobyte."""

UNKNOWN_BOUNDS = (0, 2**63 - 1)
"""The bounds assumed for a column without statistics: the smallest and the largest possible value."""

COMMIT_HOURS_MAX = 12
"""Maximum age of a written file at its commit, in hours; older files are written again. Tasks take minutes."""

ORPHAN_HOURS_MIN = 24
"""Age in hours at which a vacuum may delete an uncommitted file as an orphan. Younger files may yet be committed."""


@dataclass(frozen=True, slots=True)
class LiveFile:
    """A data file of the table's current version."""

    path: str
    """Path relative to the table."""
    size_bytes: int
    partition_values: tuple[Any, ...]
    """Values of the table's partition columns."""
    partitions: tuple[int, int] = UNKNOWN_BOUNDS
    """Lowest and highest partition of the topic with records in the file."""
    offsets: tuple[int, int] = UNKNOWN_BOUNDS
    """Lowest and highest offset in the file, over all partitions."""
    rows: int | None = None
    """Number of rows, or None if unknown."""
    written_ms: int = 0
    """Time at which the file was written, in milliseconds since the epoch."""
    may_have_iceberg_names: bool = False
    """Whether the file may have the column names of an Iceberg schema, because another tool has written it."""

    def may_contain(self, partition: int, start: int, end: int) -> bool:
        """Return whether the file may contain records of the partition with offsets in [start, end)."""
        first_partition, last_partition = self.partitions
        return first_partition <= partition <= last_partition and self.offsets[0] < end and self.offsets[1] >= start


@dataclass(frozen=True, slots=True)
class TableDescriptor:
    """A serializable description of a table for tasks. Columns that are added later do not affect it."""

    uri: str
    schema: pa.Schema
    partition_by: tuple[str, ...]
    storage_options: Mapping[str, str] | None = field(default=None, repr=False)
    """Options of the object store, with credentials; never shown in messages."""
    value_schema: TableSchema = INFERRED
    """The declared schema of the values."""
    schema_version: int = 0
    """Version of the declared schema; 0 for a table without one."""
    earlier_schemas: tuple[TableSchema, ...] = ()
    """Earlier versions of the declared schema, if they are needed."""
    format: RecordFormat = JSON_VALUES
    """The formats of the records' keys and values."""
    registry: RegistrySettings | None = None
    """The registry with the schemas of keys and values; None if it is not needed."""

    @property
    def storage(self) -> TableStorage:
        return TableStorage(self.uri, self.storage_options)

    def has_same_columns(self, other: TableDescriptor) -> bool:
        """Return whether two versions of a table have the same columns, and decode records in the same way."""
        return self.value_schema == other.value_schema and self.schema.equals(other.schema, check_metadata=True)

    def with_files(self, *files: LiveFile) -> TableFiles:
        return TableFiles(
            self.uri,
            self.schema,
            self.partition_by,
            self.storage_options,
            self.value_schema,
            self.schema_version,
            self.earlier_schemas,
            self.format,
            self.registry,
            files,
        )

    def row_decoder(self, *, stops_at_new_types: bool = False) -> RowDecoder:
        """Return a decoder of records for this version of the table."""
        return RowDecoder(
            self.value_schema,
            self.schema,
            self.partition_by,
            self.format,
            self.registry,
            stops_at_new_types=stops_at_new_types,
        )

    def writer(self, *, codec: str = CODEC, file_bytes: int = FILE_BYTES_TARGET) -> PartitionedParquetWriter:
        return PartitionedParquetWriter(
            self.storage,
            self.schema,
            self.partition_by,
            codec=codec,
            file_bytes=file_bytes,
        )


@dataclass(frozen=True, slots=True)
class TableFiles(TableDescriptor):
    """A description of a table with some data files of one version."""

    files: tuple[LiveFile, ...] = ()

    def select_overlapping_files(self, partition: int, start: int, end: int) -> TableFiles:
        """Return the table with only the files that may contain records of the range."""
        return self.with_files(*(file for file in self.files if file.may_contain(partition, start, end)))


def open_dataset(table: TableFiles) -> Any:
    """Open the files as an Arrow dataset, in which columns added after a file was written are null."""
    storage = table.storage
    return ds.FileSystemDataset.from_paths(
        [storage.full_path(file.path) for file in table.files],
        schema=table.schema,
        format=ds.ParquetFileFormat(),
        filesystem=storage.filesystem,
        # Files do not contain the partition columns.
        partitions=[_build_partition_expression(table, file) for file in table.files],
    )


def _build_partition_expression(table: TableDescriptor, file: LiveFile) -> Any:
    expression = ds.scalar(True)
    for name, value in zip(table.partition_by, file.partition_values, strict=True):
        is_equal = ds.field(name) == pa.scalar(value, table.schema.field(name).type)
        expression = expression & (ds.field(name).is_null() if value is None else is_equal)
    return expression


def scan(
    table: TableFiles, columns: Sequence[str] | None = None, where: Any = None, batch_rows: int = ROWS_PER_BATCH
) -> Iterator[pa.RecordBatch]:
    """Yield rows; files and row groups that the filter excludes by their statistics are not read."""
    for may_have_iceberg_names, files in groupby(table.files, key=lambda file: file.may_have_iceberg_names):
        part = table.with_files(*files)
        if may_have_iceberg_names:
            yield from _scan_with_iceberg_names(part, columns, where, batch_rows)
            continue
        yield from open_dataset(part).to_batches(
            columns=None if columns is None else list(columns),
            filter=where,
            batch_size=batch_rows,
            batch_readahead=1,
            fragment_readahead=1,
        )


def _scan_with_iceberg_names(
    table: TableFiles, columns: Sequence[str] | None, where: Any, batch_rows: int
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of files that have the partition of records under its name in Chronik or in Iceberg."""
    names = table.schema.names if columns is None else list(columns)
    # A filter has no list of its columns, and cannot be changed to use others.
    read = pa.schema([table.schema.field(name) for name in (names if where is None else table.schema.names)])
    projection = {name: ds.field(name) for name in read.names}
    if PARTITION in projection:
        projection[PARTITION] = pc.coalesce(ds.field(PARTITION), ds.field(ICEBERG_PARTITION))
    alias = table.schema.field(PARTITION).with_name(ICEBERG_PARTITION)
    dataset = open_dataset(replace(table, schema=table.schema.append(alias)))
    for batch in dataset.to_batches(columns=projection, batch_size=batch_rows, batch_readahead=1, fragment_readahead=1):
        rows = pa.RecordBatch.from_arrays(batch.columns, schema=read)
        yield (rows if where is None else rows.filter(where)).select(names)


def find_uncommittable_files(storage: TableStorage, files: Sequence[WrittenFile]) -> list[str]:
    """Return the paths of written files that must not be committed: deleted, or old enough for a vacuum to delete."""
    modified_s = storage.get_modification_times([file.path for file in files])
    oldest_commit_s = time.time() - COMMIT_HOURS_MAX * 3600
    return [file.path for file in files if modified_s.get(file.path, -math.inf) < oldest_commit_s]

"""A table as tasks see it: where it is, what its columns are, and files of one version to read, a little at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

from chronik.pipeline.tables.parquet import CODEC, FILE_BYTES_TARGET, PartitionedWriter
from chronik.pipeline.tables.storage import Storage

ROWS_PER_BATCH = 16_384
"""With records of a kilobyte, 16 MiB at a time."""

ANY_NUMBER = (0, 2**63 - 1)


@dataclass(frozen=True, slots=True)
class LiveFile:
    """A file that the table's present version names."""

    path: str
    """Relative to the table."""
    size_bytes: int
    values: tuple[Any, ...]
    """The values of the partition columns."""
    partitions: tuple[int, int] = ANY_NUMBER
    """The lowest and the highest partition of the topic that it has records of."""
    offsets: tuple[int, int] = ANY_NUMBER
    """… and the offsets, over all those partitions."""

    def may_hold(self, partition: int, start: int, end: int) -> bool:
        """Says whether it can have records of [start, end)."""
        lowest, highest = self.partitions
        return lowest <= partition <= highest and self.offsets[0] < end and self.offsets[1] >= start


@dataclass(frozen=True, slots=True)
class FrozenTable:
    """Small enough to be sent to a task, and the same there, whoever adds columns meanwhile."""

    uri: str
    schema: pa.Schema
    partition_by: tuple[str, ...]
    storage_options: Mapping[str, str] | None = None

    @property
    def storage(self) -> Storage:
        return Storage(self.uri, self.storage_options)

    @property
    def inside(self) -> pa.Schema:
        """What the files themselves hold: all but the columns that the table is partitioned by."""
        return pa.schema([field for field in self.schema if field.name not in self.partition_by])

    def with_files(self, *files: LiveFile) -> TableFiles:
        return TableFiles(self.uri, self.schema, self.partition_by, self.storage_options, files)

    def writer(self, *, codec: str = CODEC, file_bytes: int = FILE_BYTES_TARGET) -> PartitionedWriter:
        return PartitionedWriter(self.storage, self.schema, self.partition_by, codec=codec, file_bytes=file_bytes)


@dataclass(frozen=True, slots=True)
class TableFiles(FrozenTable):
    """Some files of one version of a table."""

    files: tuple[LiveFile, ...] = ()

    def that_may_hold(self, partition: int, start: int, end: int) -> TableFiles:
        """Returns those that can have records of [start, end)."""
        return self.with_files(*(file for file in self.files if file.may_hold(partition, start, end)))


def dataset_of(table: TableFiles) -> Any:
    """Files from before a column was added have it too, all null."""
    storage = table.storage
    paths = [storage.full_path(file.path) for file in table.files]
    return ds.dataset(paths, schema=table.inside, format="parquet", filesystem=storage.filesystem)


def scan(
    table: TableFiles, columns: Sequence[str] | None = None, where: Any = None, batch_rows: int = ROWS_PER_BATCH
) -> Iterator[pa.RecordBatch]:
    """Yields rows as they stand in the files; row groups that cannot hold what is looked for are not read."""
    if not table.files:
        return
    yield from dataset_of(table).to_batches(
        columns=None if columns is None else list(columns),
        filter=where,
        batch_size=batch_rows,
        batch_readahead=1,
        fragment_readahead=1,
    )


def whole_rows(table: TableFiles, batch_rows: int = ROWS_PER_BATCH) -> Iterator[pa.RecordBatch]:
    """Does as `scan`, with the columns that the table is partitioned by. All files are of one such partition."""
    constants = dict(zip(table.partition_by, table.files[0].values, strict=True))
    for batch in scan(table, batch_rows=batch_rows):
        arrays = [
            pa.repeat(pa.scalar(constants[field.name], field.type), batch.num_rows)
            if field.name in constants
            else batch.column(field.name)
            for field in table.schema
        ]
        yield pa.RecordBatch.from_arrays(arrays, schema=table.schema)

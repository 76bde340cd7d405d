"""Small files joined into larger ones; rows and offsets stay as they are.

Not by delta-rs's own `optimize.compact`: it overlooks that another compaction has removed the same files in between,
and then both keep their copy of every row (`replacing` does not). The joining can be done elsewhere: a `Join` is small.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

import pyarrow as pa

from chronik.errors import invariant
from chronik.pipeline.tables.delta.replacing import LiveFile, replace_files
from chronik.pipeline.tables.layout import DATE
from chronik.pipeline.tables.parquet import FILE_BYTES_TARGET, PartitionedWriter
from chronik.pipeline.tables.scanning import TableFiles, dataset_of, scan, table_files
from chronik.pipeline.tables.spans import WrittenFile


@dataclass(frozen=True, slots=True)
class Join:
    """Files of one partition of a table that are to be one."""

    table: TableFiles
    file_bytes: int

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.table.files)


@dataclass(frozen=True, slots=True)
class Compacted:
    files_removed: int = 0
    files_added: int = 0
    bytes_before: int = 0
    bytes_after: int = 0

    def __add__(self, other: Compacted) -> Compacted:
        return Compacted(
            self.files_removed + other.files_removed,
            self.files_added + other.files_added,
            self.bytes_before + other.bytes_before,
            self.bytes_after + other.bytes_after,
        )


def compact(
    uri: str,
    *,
    file_bytes: int = FILE_BYTES_TARGET,
    since: date | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> Compacted:
    """Joins small files of the same partition, of the days from `since` on or of all. May run beside landing and beside
    itself. Each new file is a commit of its own, so that what is done stays done. Raises CommitFailed."""
    done = Compacted()
    for join in plan_joins(uri, file_bytes=file_bytes, since=since, storage_options=storage_options):
        done += commit_join(join, join_files(join))
    return done


def plan_joins(
    uri: str,
    *,
    file_bytes: int = FILE_BYTES_TARGET,
    since: date | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> list[Join]:
    """Raises TableMissing, TableDiffers."""
    table = table_files(uri, storage_options)
    files = [file for file in table.files if since is None or _is_since(file, table.partition_by, since)]
    return [Join(table.of(*group), file_bytes) for group in groups_to_join(files, file_bytes)]


def groups_to_join(files: Iterable[LiveFile], file_bytes: int) -> Iterator[list[LiveFile]]:
    """Small files of one partition, together about as large as a file should be. A file that is nearly so is left.
    Neighbours in the topic are joined, in order: then who looks for some offsets finds them in few row groups."""
    groups: dict[tuple[Any, ...], list[LiveFile]] = {}
    for file in sorted(files, key=lambda file: (file.partitions[0], file.offsets[0], file.path)):
        if file.size_bytes >= file_bytes * 3 // 4:
            continue
        group = groups.setdefault(file.values, [])
        group.append(file)
        if sum(each.size_bytes for each in group) >= file_bytes:
            yield groups.pop(file.values)
    yield from (group for group in groups.values() if len(group) > 1)


def _is_since(file: LiveFile, columns: tuple[str, ...], since: date) -> bool:
    day = dict(zip(columns, file.values, strict=True)).get(DATE)
    return day is None or day >= since


def join_files(join: Join) -> tuple[WrittenFile, ...]:
    """Writes the rows of all these files anew. In the table they are with `commit_join`."""
    table = join.table
    constants = dict(zip(table.partition_by, table.files[0].values, strict=True))
    # A group may come out a little larger than a file should be; two files of it would be there to join again.
    file_bytes = 4 * join.file_bytes
    with PartitionedWriter(table.storage, table.schema, table.partition_by, file_bytes=file_bytes) as writer:
        for batch in scan(table):
            writer.write(with_constants(batch, table.schema, constants))
    rows, expected = sum(file.rows for file in writer.files), dataset_of(table).count_rows()
    invariant(rows == expected, f"{table.uri}: compaction wrote {rows} rows of {expected}")
    return writer.files


def commit_join(join: Join, written: Sequence[WrittenFile]) -> Compacted:
    """Nothing, when another has taken one of the old files away. Raises CommitFailed."""
    table = join.table
    options = table.storage_options
    if not replace_files(table.uri, table.files, written, rows_change=False, storage_options=options):
        return Compacted()
    size_after = sum(file.size_bytes for file in written)
    return Compacted(len(table.files), len(written), join.size_bytes, size_after)


def with_constants(batch: pa.RecordBatch, schema: pa.Schema, constants: Mapping[str, Any]) -> pa.RecordBatch:
    """What stands in a file, and the values of the columns that its table is partitioned by."""
    arrays = [
        pa.repeat(pa.scalar(constants[field.name], field.type), batch.num_rows)
        if field.name in constants
        else batch.column(field.name)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)

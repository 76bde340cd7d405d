"""Small files joined into larger ones; rows and offsets stay as they are.

Not by delta-rs's own `optimize.compact`: it overlooks that another compaction has removed the same files in between,
and then both keep their copy of every row. Here a commit lands on exactly the version that was looked at, and only
while every file that it replaces is still there, whoever else works on the table.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction, RemoveAction

from chronik.errors import invariant
from chronik.pipeline.tables.columns import DATE
from chronik.pipeline.tables.committer import CommitFailed, TableDiffers
from chronik.pipeline.tables.delta import ON_THIS_VERSION, Attempts, open_delta
from chronik.pipeline.tables.parquet import FILE_BYTES_TARGET, PartitionedWriter
from chronik.pipeline.tables.progress import WrittenFile
from chronik.pipeline.tables.storage import Storage

ROWS_PER_BATCH = 16_384
"""With records of a kilobyte, 16 MiB at a time."""


@dataclass(frozen=True, slots=True)
class LiveFile:
    path: str
    size_bytes: int
    values: tuple[Any, ...]
    """Of the partition columns."""


@dataclass(frozen=True, slots=True)
class Compacted:
    files_removed: int
    files_added: int
    bytes_before: int
    bytes_after: int


def compact(
    uri: str,
    *,
    file_bytes: int = FILE_BYTES_TARGET,
    since: date | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> Compacted:
    """Joins small files of the same partition, of the days from `since` on or of all. May run beside landing and beside
    itself. Each new file is a commit of its own, so that what is done stays done. Raises CommitFailed."""
    table = open_delta(uri, storage_options)
    columns = tuple(table.metadata().partition_columns)
    files = [file for file in live_files(table) if since is None or _is_since(file, columns, since)]
    removed = added = before = after = 0
    for group in groups_to_join(files, file_bytes):
        written = _joined(uri, table, group, columns, file_bytes, storage_options)
        if _replace(uri, group, written, columns, storage_options):
            removed, added = removed + len(group), added + len(written)
            before += sum(file.size_bytes for file in group)
            after += sum(file.size_bytes for file in written)
    return Compacted(removed, added, before, after)


def groups_to_join(files: Iterable[LiveFile], file_bytes: int) -> Iterator[list[LiveFile]]:
    """Small files of one partition, together about as large as a file should be. A file that is nearly so is left."""
    groups: dict[tuple[Any, ...], list[LiveFile]] = {}
    for file in sorted(files, key=lambda file: file.path):
        if file.size_bytes >= file_bytes * 3 // 4:
            continue
        group = groups.setdefault(file.values, [])
        group.append(file)
        if sum(each.size_bytes for each in group) >= file_bytes:
            yield groups.pop(file.values)
    yield from (group for group in groups.values() if len(group) > 1)


def live_files(table: DeltaTable) -> list[LiveFile]:
    """Raises TableDiffers for a table whose files do not hold just their rows (deletion vectors, renamed columns)."""
    features = table.protocol().reader_features
    if features:
        raise TableDiffers(f"{table.table_uri} has features that compaction does not know: {', '.join(features)}")
    columns = table.metadata().partition_columns
    return [
        LiveFile(row["path"], row["size_bytes"], tuple(row["partition"][name] for name in columns) if columns else ())
        for row in pa.table(table.get_add_actions()).to_pylist()
    ]


def _is_since(file: LiveFile, columns: tuple[str, ...], since: date) -> bool:
    day = dict(zip(columns, file.values, strict=True)).get(DATE)
    return day is None or day >= since


def _joined(
    uri: str,
    table: DeltaTable,
    group: Sequence[LiveFile],
    columns: tuple[str, ...],
    file_bytes: int,
    storage_options: Mapping[str, str] | None,
) -> tuple[WrittenFile, ...]:
    storage = Storage(uri, storage_options)
    schema = pa.schema(table.schema().to_arrow())
    inside = pa.schema([field for field in schema if field.name not in columns])
    paths = [storage.full_path(file.path) for file in group]
    found = ds.dataset(paths, schema=inside, format="parquet", filesystem=storage.filesystem)
    constants = dict(zip(columns, group[0].values, strict=True))
    # A group may come out a little larger than a file should be; two files of it would be there to join again.
    with PartitionedWriter(storage, schema, columns, file_bytes=4 * file_bytes) as writer:
        for batch in found.to_batches(batch_size=ROWS_PER_BATCH, batch_readahead=1, fragment_readahead=1):
            writer.write(_with_constants(batch, schema, constants))
    rows = sum(file.rows for file in writer.files)
    invariant(rows == found.count_rows(), f"{uri}: compaction wrote {rows} rows of {found.count_rows()}")
    return writer.files


def _with_constants(batch: pa.RecordBatch, schema: pa.Schema, constants: Mapping[str, Any]) -> pa.RecordBatch:
    arrays = [
        pa.repeat(pa.scalar(constants[field.name], field.type), batch.num_rows)
        if field.name in constants
        else batch.column(field.name)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _replace(
    uri: str,
    group: Sequence[LiveFile],
    written: Sequence[WrittenFile],
    columns: tuple[str, ...],
    storage_options: Mapping[str, str] | None,
) -> bool:
    """Whether the table has the new files instead of the old ones. Not so when another took one of these away."""
    attempts = Attempts()
    while True:
        table = open_delta(uri, storage_options)
        live = {file.path for file in live_files(table)}
        if any(file.path in live for file in written):
            return True  # by an attempt whose answer got lost
        if not all(file.path in live for file in group):
            for file in written:
                Storage(uri, storage_options).remove(file.path)
            return False
        try:
            table.create_write_transaction(
                [*map(_added, written), *(_removed(file, columns) for file in group)],
                mode="append",
                schema=table.schema(),
                partition_by=list(columns),
                commit_properties=ON_THIS_VERSION,
            )
        except (CommitFailedError, DeltaError, OSError) as error:
            if not attempts.another(error):
                raise CommitFailed(f"{uri}: {error}") from error
            continue
        return True


def _added(file: WrittenFile) -> AddAction:
    return AddAction(file.path, file.size_bytes, file.partition_values, file.modified_ms, False, file.stats)


def _removed(file: LiveFile, columns: tuple[str, ...]) -> RemoveAction:
    values = {name: None if value is None else str(value) for name, value in zip(columns, file.values, strict=True)}
    return RemoveAction(file.path, False, int(time.time() * 1000), file.size_bytes, values)

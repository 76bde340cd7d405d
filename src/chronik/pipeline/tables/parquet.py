"""Arrow batches into Parquet files, one set per partition of the table, with the statistics that a commit needs."""

from __future__ import annotations

import json
import time
import uuid
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from chronik.limits import MIB
from chronik.pipeline.tables.layout import OFFSET, PARTITION, VALUE, VALUE_CRC32C
from chronik.pipeline.tables.spans import WrittenFile
from chronik.pipeline.tables.storage import Storage

FILE_BYTES_TARGET = 128 * MIB
"""A file beyond it is closed: so there are few enough to list, and small enough for several tasks to share a day."""

BUFFERED_BYTES_MAX = 64 * MIB
"""Rows that wait to be a row group, over all open files: the memory of a task, whatever its records' timestamps."""

OPEN_FILES_MAX = 64
"""Days that are written at once. With records of more days, the file that waits longest is closed, which gives
small files for compaction to join instead of a task that runs out of memory or descriptors."""

CODEC = "zstd"
"""JSON events take half of what they take with snappy, for a little more time."""

CODEC_LEVELS = {"zstd": 1}

STATS_COLUMNS_MAX = 32
"""Delta's own default (`delta.dataSkippingNumIndexedCols`)."""

NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"

Values = tuple[str | None, ...]


@dataclass(slots=True)
class _OpenFile:
    path: str
    values: Values
    stream: Any
    writer: Any
    metadata: list[Any]
    rows: int = 0
    waiting: list[Any] = field(default_factory=list)
    waiting_bytes: int = 0


class PartitionedWriter:
    """Writes batches of one schema under a table. Nothing of it is in the table until a commit names the files.

    with PartitionedWriter(storage, schema, ("_date",)) as writer:
        writer.write(batch)
    writer.files
    """

    def __init__(
        self,
        storage: Storage,
        schema: pa.Schema,
        partition_by: tuple[str, ...],
        *,
        codec: str = CODEC,
        file_bytes: int = FILE_BYTES_TARGET,
        buffered_bytes_max: int = BUFFERED_BYTES_MAX,
        open_files_max: int = OPEN_FILES_MAX,
    ) -> None:
        self._storage = storage
        self._partition_by = partition_by
        self._inside = pa.schema([each for each in schema if each.name not in partition_by])
        self._codec = codec
        self._stats_columns = stats_columns(self._inside)
        self._file_bytes = file_bytes
        self._buffered_bytes_max = buffered_bytes_max
        self._open_files_max = open_files_max
        self._buffered_bytes = 0
        self._open: dict[Values, _OpenFile] = {}
        """In the order in which they were last written to."""
        self._files: list[WrittenFile] = []

    @property
    def files(self) -> tuple[WrittenFile, ...]:
        return tuple(self._files)

    def __enter__(self) -> PartitionedWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self.abandon()

    def write(self, batch: pa.RecordBatch) -> None:
        for values, part in _parted(pa.Table.from_batches([batch]), self._partition_by):
            file = self._file_for(values)
            file.waiting.append(part.select(self._inside.names))
            size = max(1, part.nbytes)
            file.waiting_bytes += size
            self._buffered_bytes += size
        while self._buffered_bytes > self._buffered_bytes_max:
            self._write_row_group(max(self._open.values(), key=lambda each: each.waiting_bytes))

    def close(self) -> None:
        """Makes `files` whole and durable."""
        for file in list(self._open.values()):
            self._finish(file)

    def abandon(self) -> None:
        """Takes back what can be: a commit will never name these files. What stays is an orphan for vacuum."""
        for file in self._open.values():
            file.waiting.clear()
            file.writer.close()
            file.stream.close()
            self._storage.remove(file.path)
        for written in self._files:
            self._storage.remove(written.path)
        self._open.clear()
        self._files.clear()

    def _file_for(self, values: Values) -> _OpenFile:
        file = self._open.pop(values, None)
        if file is None:
            if len(self._open) >= self._open_files_max:
                self._finish(next(iter(self._open.values())))
            file = self._create(values)
        self._open[values] = file
        return file

    def _create(self, values: Values) -> _OpenFile:
        folders = [f"{name}={NULL_FOLDER if value is None else value}/" for name, value in self._named(values)]
        path = f"{''.join(folders)}part-{uuid.uuid4()}.{self._codec}.parquet"
        stream = self._storage.create(path)
        metadata: list[Any] = []
        counted = [name for name in (PARTITION, OFFSET) if name in self._inside.names]
        never_twice = {VALUE, VALUE_CRC32C, *counted}
        writer = pq.ParquetWriter(
            stream,
            self._inside,
            compression=self._codec,
            compression_level=CODEC_LEVELS.get(self._codec),
            # A dictionary of what hardly ever comes twice is built for nothing.
            use_dictionary=[name for name in self._inside.names if name not in never_twice],
            # Numbers that rise by one: as differences they take next to nothing.
            column_encoding=dict.fromkeys(counted, "DELTA_BINARY_PACKED"),
            write_statistics=self._stats_columns,
            store_schema=False,
            metadata_collector=metadata,
        )
        return _OpenFile(path, values, stream, writer, metadata)

    def _named(self, values: Values) -> list[tuple[str, str | None]]:
        return list(zip(self._partition_by, values, strict=True))

    def _write_row_group(self, file: _OpenFile) -> None:
        rows = pa.concat_tables(file.waiting)
        file.waiting.clear()
        self._buffered_bytes -= file.waiting_bytes
        file.waiting_bytes = 0
        file.rows += rows.num_rows
        file.writer.write_table(rows, row_group_size=max(1, rows.num_rows))
        if file.stream.tell() >= self._file_bytes:
            self._finish(file)

    def _finish(self, file: _OpenFile) -> None:
        if file.waiting:
            self._write_row_group(file)
        if self._open.get(file.values) is not file:
            return  # that row group has filled it
        file.writer.close()
        size = file.stream.tell()
        file.stream.close()
        self._storage.make_durable(file.path)
        del self._open[file.values]
        self._files.append(
            WrittenFile(
                path=file.path,
                size_bytes=size,
                rows=file.rows,
                partition_values=dict(self._named(file.values)),
                stats=stats_json(file.metadata[0], self._stats_columns),
                modified_ms=int(time.time() * 1000),
            )
        )


def _parted(table: pa.Table, partition_by: tuple[str, ...]) -> list[tuple[Values, pa.Table]]:
    """Returns the rows by their partition, their order kept within each."""
    if not partition_by or table.num_rows == 0:
        return [((), table)] if table.num_rows else []
    keys = table.select(partition_by).group_by(list(partition_by)).aggregate([])
    if keys.num_rows == 1:
        return [(_values(keys, 0), table)]
    order = pc.sort_indices(table, sort_keys=[(name, "ascending") for name in partition_by])
    sorted_rows = table.take(order)
    starts = _starts_of_runs(sorted_rows.select(partition_by))
    ends = [*starts[1:], sorted_rows.num_rows]
    return [
        (_values(sorted_rows.select(partition_by), start), sorted_rows.slice(start, end - start))
        for start, end in zip(starts, ends, strict=True)
    ]


def _starts_of_runs(keys: pa.Table) -> list[int]:
    codes = [pc.dictionary_encode(keys[name].combine_chunks(), null_encoding="encode") for name in keys.column_names]
    changes = None
    for code in codes:
        indices = code.indices
        differs = pc.not_equal(indices.slice(1), indices.slice(0, len(indices) - 1))
        changes = differs if changes is None else pc.or_(changes, differs)
    return [0, *(pc.add(pc.indices_nonzero(changes), 1).to_pylist())]


def _values(keys: pa.Table, row: int) -> Values:
    return tuple(None if (value := keys[name][row].as_py()) is None else str(value) for name in keys.column_names)


# Statistics


def stats_columns(schema: pa.Schema) -> list[str]:
    """Returns only whole numbers, dates and times. A float's minimum says nothing of NaNs, which Spark sorts above
    everything, so a reader would skip rows that it should find; texts and bytes cost more than they save."""
    return [field.name for field in schema if _is_counted(field)][:STATS_COLUMNS_MAX]


def _is_counted(field: pa.Field) -> bool:
    kind, is_a = field.type, pa.types
    return field.name != VALUE_CRC32C and bool(is_a.is_integer(kind) or is_a.is_date(kind) or is_a.is_timestamp(kind))


def stats_json(metadata: Any, columns: list[str]) -> str:
    """Makes them as Delta keeps them, from what the Parquet writer knows of its row groups: readers skip files that
    cannot hold what they look for."""
    lowest: dict[str, Any] = {}
    highest: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for name, index in _indices(metadata, columns).items():
        groups = [metadata.row_group(number).column(index).statistics for number in range(metadata.num_row_groups)]
        if any(group is None or not group.has_null_count for group in groups):
            continue
        nulls[name] = sum(group.null_count for group in groups)
        with_values = [group for group in groups if group.num_values > 0]
        if with_values and all(group.has_min_max for group in with_values):
            lowest[name] = _text(min(group.min for group in with_values))
            highest[name] = _text(max(group.max for group in with_values))
    stats = {"numRecords": metadata.num_rows, "minValues": lowest, "maxValues": highest, "nullCount": nulls}
    return json.dumps(stats, separators=(",", ":"))


def _indices(metadata: Any, columns: list[str]) -> dict[str, int]:
    paths = {metadata.schema.column(index).path: index for index in range(metadata.num_columns)}
    return {name: paths[name] for name in columns if name in paths}


def _text(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return value.isoformat() if isinstance(value, date) else value

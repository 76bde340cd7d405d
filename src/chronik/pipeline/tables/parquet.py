"""Parquet writer for tables: one set of files per table partition, with the statistics that a Delta commit needs."""

from __future__ import annotations

import hashlib
import json
import re
import time
import uuid
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from chronik.limits import MIB
from chronik.pipeline.tables.commit_plan import WrittenFile
from chronik.pipeline.tables.layout import OFFSET, PARTITION, VALUE, VALUE_CRC32C
from chronik.pipeline.tables.storage import TableStorage

FILE_BYTES_TARGET = 128 * MIB
"""Size in bytes at which a data file is closed and the next one is started."""

BUFFERED_BYTES_MAX = 64 * MIB
"""Maximum total size in bytes of the rows that a task buffers for row groups of its open files."""

OPEN_FILES_MAX = 64
"""Maximum number of table partitions (days) written concurrently. Beyond it, the least recently used file is closed:
compaction can merge small files, but a task must not run out of memory or file descriptors."""

CODEC = "zstd"
"""Default compression codec. JSON events need half the space of snappy, at slightly more CPU time."""

CODEC_LEVELS = {"zstd": 1}

STATS_COLUMNS_MAX = 32
"""Maximum number of columns with statistics: Delta's default (`delta.dataSkippingNumIndexedCols`)."""

FIELD_ID_KEY = b"PARQUET:field_id"
"""Key of the field metadata with the id of an Iceberg column, which pyarrow stores in Parquet files."""

NULL_PARTITION_DIRECTORY = "__HIVE_DEFAULT_PARTITION__"

PARTITION_DIRECTORY_BYTES_MAX = 128
"""Maximum length in bytes of a partition directory's name. File systems allow 255 bytes, encrypted ones 143, and S3
allows 1024 for the whole path."""

_ENCODED_NON_ASCII = re.compile("%(?:25)?[89A-F][0-9A-F]")
"""Matches a percent-encoded byte of a non-ASCII character, also if the path was encoded again as a URI."""

_OWN_FILE_NAME = re.compile(r"part-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\.[a-z0-9]+\.parquet")

Values = tuple[str | None, ...]


@dataclass(slots=True)
class _OpenParquetFile:
    """A Parquet file that is being written, with its buffered rows."""

    path: str
    values: Values
    stream: Any
    writer: Any
    metadata: list[Any]
    rows: int = 0
    buffered: list[Any] = field(default_factory=list)
    buffered_bytes: int = 0


class PartitionedParquetWriter:
    """A writer of record batches to Parquet data files, one open file per table partition.

    with PartitionedParquetWriter(storage, schema, ("_date",)) as writer:
        writer.write(batch)
    writer.files
    """

    def __init__(
        self,
        storage: TableStorage,
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
        # Files of Iceberg tables have all columns of the table, and so those by whose values it is partitioned.
        self._file_schema = pa.schema(
            [each for each in schema if each.name not in partition_by or FIELD_ID_KEY in (each.metadata or {})]
        )
        self._codec = codec
        self._stats_columns = list_columns_with_stats(self._file_schema)
        self._file_bytes = file_bytes
        self._buffered_bytes_max = buffered_bytes_max
        self._open_files_max = open_files_max
        self._buffered_bytes = 0
        self._open: dict[Values, _OpenParquetFile] = {}
        """Open files by partition values, least recently written first."""
        self._files: list[WrittenFile] = []

    @property
    def files(self) -> tuple[WrittenFile, ...]:
        return tuple(self._files)

    def __enter__(self) -> PartitionedParquetWriter:
        return self

    def __exit__(self, exception_type: type[BaseException] | None, *_: object) -> None:
        if exception_type is None:
            self.close()
        else:
            self.abort()

    def write(self, batch: pa.RecordBatch) -> None:
        """Append a record batch; write row groups to the files if too many bytes are buffered."""
        for values, part in _split_by_partition(pa.Table.from_batches([batch]), self._partition_by):
            file = self._get_or_create_file(values)
            file.buffered.append(part.select(self._file_schema.names))
            size = max(1, part.nbytes)
            file.buffered_bytes += size
            self._buffered_bytes += size
        while self._buffered_bytes > self._buffered_bytes_max:
            self._write_row_group(max(self._open.values(), key=lambda each: each.buffered_bytes))

    def close(self) -> None:
        """Close all files and make them durable; `files` is complete afterwards."""
        for file in list(self._open.values()):
            self._close_parquet_file(file)

    def abort(self) -> None:
        """Delete all files written so far. Files that cannot be deleted are removed later by a vacuum."""
        for file in self._open.values():
            file.buffered.clear()
            with suppress(OSError):  # a full disk or an unreachable store, as in the error that caused the abort
                file.writer.close()
            with suppress(OSError):
                file.stream.close()
        self._storage.discard_files(
            [*(file.path for file in self._open.values()), *(file.path for file in self._files)]
        )
        self._open.clear()
        self._files.clear()

    def _get_or_create_file(self, values: Values) -> _OpenParquetFile:
        file = self._open.pop(values, None)
        if file is None:
            if len(self._open) >= self._open_files_max:
                self._close_parquet_file(next(iter(self._open.values())))
            file = self._create_file(values)
        self._open[values] = file
        return file

    def _create_file(self, values: Values) -> _OpenParquetFile:
        directories = [
            f"{_name_partition_directory(name, value)}/" for name, value in self._name_partition_values(values)
        ]
        path = f"{''.join(directories)}part-{uuid.uuid4()}.{self._codec}.parquet"
        stream = self._storage.create(path)
        metadata: list[Any] = []
        ascending_columns = [name for name in (PARTITION, OFFSET) if name in self._file_schema.names]
        unique_columns = {VALUE, VALUE_CRC32C, *ascending_columns}
        writer = pq.ParquetWriter(
            stream,
            self._file_schema,
            compression=self._codec,
            compression_level=CODEC_LEVELS.get(self._codec),
            # A dictionary does not pay off for values that rarely repeat.
            use_dictionary=[name for name in self._file_schema.names if name not in unique_columns],
            # Delta encoding makes ascending numbers almost free.
            column_encoding=dict.fromkeys(ascending_columns, "DELTA_BINARY_PACKED"),
            write_statistics=self._stats_columns,
            store_schema=False,
            metadata_collector=metadata,
        )
        return _OpenParquetFile(path, values, stream, writer, metadata)

    def _name_partition_values(self, values: Values) -> list[tuple[str, str | None]]:
        return list(zip(self._partition_by, values, strict=True))

    def _write_row_group(self, file: _OpenParquetFile) -> None:
        rows = pa.concat_tables(file.buffered)
        file.buffered.clear()
        self._buffered_bytes -= file.buffered_bytes
        file.buffered_bytes = 0
        file.rows += rows.num_rows
        file.writer.write_table(rows, row_group_size=max(1, rows.num_rows))
        if file.stream.tell() >= self._file_bytes:
            self._close_parquet_file(file)

    def _close_parquet_file(self, file: _OpenParquetFile) -> None:
        if file.buffered:
            self._write_row_group(file)
        if self._open.get(file.values) is not file:
            return  # the row group has filled the file, which is closed already
        file.writer.close()
        size = file.stream.tell()
        file.stream.close()
        self._storage.sync_file(file.path)
        del self._open[file.values]
        self._files.append(
            WrittenFile(
                path=file.path,
                size_bytes=size,
                rows=file.rows,
                partition_values=dict(self._name_partition_values(file.values)),
                stats=build_delta_stats_json(file.metadata[0], self._stats_columns),
                modified_ms=int(time.time() * 1000),
            )
        )


def _split_by_partition(table: pa.Table, partition_by: tuple[str, ...]) -> list[tuple[Values, pa.Table]]:
    """Return the rows of each table partition, in their original order."""
    if not partition_by or table.num_rows == 0:
        return [((), table)] if table.num_rows else []
    keys = table.select(partition_by).group_by(list(partition_by)).aggregate([])
    if keys.num_rows == 1:
        return [(_get_partition_values(keys, 0), table)]
    order = pc.sort_indices(table, sort_keys=[(name, "ascending") for name in partition_by])
    sorted_rows = table.take(order)
    starts = _find_run_starts(sorted_rows.select(partition_by))
    ends = [*starts[1:], sorted_rows.num_rows]
    return [
        (_get_partition_values(sorted_rows.select(partition_by), start), sorted_rows.slice(start, end - start))
        for start, end in zip(starts, ends, strict=True)
    ]


def _find_run_starts(keys: pa.Table) -> list[int]:
    codes = [pc.dictionary_encode(keys[name].combine_chunks(), null_encoding="encode") for name in keys.column_names]
    changes = None
    for code in codes:
        indices = code.indices
        differs = pc.not_equal(indices.slice(1), indices.slice(0, len(indices) - 1))
        changes = differs if changes is None else pc.or_(changes, differs)
    return [0, *(pc.add(pc.indices_nonzero(changes), 1).to_pylist())]


def _get_partition_values(keys: pa.Table, row: int) -> Values:
    return tuple(format_partition_value(keys[name][row].as_py()) for name in keys.column_names)


def _name_partition_directory(name: str, value: str | None) -> str:
    """Return the name of a partition directory: `name=value` as in Hive, or a hash if that name would be unusable.

    Delta readers take partition values from the transaction log, so any name is valid.
    """
    quoted = NULL_PARTITION_DIRECTORY if value is None else quote(value, safe="")
    directory = f"{name}={quoted}"
    is_readable = value != NULL_PARTITION_DIRECTORY and not {"/", "%"} & set(name)
    if is_readable and len(directory.encode()) <= PARTITION_DIRECTORY_BYTES_MAX:
        return directory
    return hashlib.sha256(directory.encode()).hexdigest()[:32]


def is_own_file(path: str) -> bool:
    """Return whether a file has the name of one that Chronik writes. Spark and Iceberg's writers choose other names."""
    return _OWN_FILE_NAME.fullmatch(path.rpartition("/")[2]) is not None


def directories_contain_values(file_uris: Iterable[str], partition_columns: int) -> bool:
    """Return whether Spark's file reader restores all partition values from the names of the files' directories.

    It does not restore hashed names, and decodes each byte of a percent-encoded non-ASCII character separately.
    """
    directories = (name for uri in file_uris for name in uri.split("/")[-1 - partition_columns : -1])
    return all("=" in name and not _ENCODED_NON_ASCII.search(name) for name in directories)


def format_partition_value(value: Any) -> str | None:
    """Return a value of a partition column as Delta stores it."""
    if value is None:
        return None
    return str(value).lower() if isinstance(value, bool) else str(value)


# Statistics


def list_columns_with_stats(schema: pa.Schema) -> list[str]:
    """Return the names of the columns for which statistics are written: integers, dates and timestamps.

    Floats are excluded because their minimum ignores NaN, which Spark sorts above all numbers, so readers would skip
    matching rows. Statistics of strings and bytes cost more than they save.
    """
    return [field.name for field in schema if _has_stats(field)][:STATS_COLUMNS_MAX]


def _has_stats(field: pa.Field) -> bool:
    data_type, types = field.type, pa.types
    return field.name != VALUE_CRC32C and bool(
        types.is_integer(data_type) or types.is_date(data_type) or types.is_timestamp(data_type)
    )


def build_delta_stats_json(metadata: Any, columns: list[str]) -> str:
    """Return the statistics of a Parquet file as Delta's JSON, with which readers skip files."""
    lowest: dict[str, Any] = {}
    highest: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for name, index in _find_column_indices(metadata, columns).items():
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


def _find_column_indices(metadata: Any, columns: list[str]) -> dict[str, int]:
    paths = {metadata.schema.column(index).path: index for index in range(metadata.num_columns)}
    return {name: paths[name] for name in columns if name in paths}


def _text(value: Any) -> Any:
    if isinstance(value, datetime):
        utc = value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value
        return utc.isoformat(timespec="microseconds") + ("Z" if value.tzinfo else "")
    return value.isoformat() if isinstance(value, date) else value

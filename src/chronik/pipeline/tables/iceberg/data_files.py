"""Data files of Iceberg tables: their manifest entries, with metrics for pruning, and what readers learn from them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import date, datetime
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import pyarrow as pa
from pyiceberg.conversions import from_bytes, to_bytes
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
)
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.types import DateType, IcebergType, PrimitiveType, TimestampType, TimestamptzType

from chronik.pipeline.tables.commit_plan import WrittenFile
from chronik.pipeline.tables.file_statistics import FileStatistics
from chronik.pipeline.tables.iceberg.schemas import (
    EPOCH,
    from_partition_record,
    get_partition_field,
    has_iceberg_names,
    to_column_name,
    to_partition_record,
)
from chronik.pipeline.tables.layout import OFFSET
from chronik.pipeline.tables.parquet import is_own_file
from chronik.pipeline.tables.partitioning import Partitioning
from chronik.pipeline.tables.table_files import UNKNOWN_BOUNDS, LiveFile
from chronik.pipeline.tables.topic_table import TableMismatchError

DATA_DIRECTORY: Final = "data"
"""Directory of the data files, as Iceberg's writers name it."""

_EPOCH_TIME: Final = datetime(1970, 1, 1)


def build_data_file(
    file: WrittenFile,
    location: str,
    schema: Schema,
    partitioning: Partitioning,
    spec_id: int,
    sort_order_id: int | None,
) -> DataFile:
    """Return the manifest entry's description of a written file, with the metrics of its columns."""
    stats: dict[str, Any] = json.loads(file.stats)
    fields = {to_column_name(field.name, schema): field for field in schema.fields}
    null_counts = {
        fields[name].field_id: number for name, number in stats.get("nullCount", {}).items() if name in fields
    }
    found = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=f"{location}/{DATA_DIRECTORY}/{file.path}",
        file_format=FileFormat.PARQUET,
        partition=to_partition_record(partitioning, file.partition_values, schema),
        record_count=file.rows,
        file_size_in_bytes=file.size_bytes,
        column_sizes={},
        value_counts=dict.fromkeys(null_counts, file.rows),
        null_value_counts=null_counts,
        nan_value_counts={},
        lower_bounds=_encode_bounds(stats.get("minValues", {}), fields),
        upper_bounds=_encode_bounds(stats.get("maxValues", {}), fields),
        key_metadata=None,
        split_offsets=None,
        equality_ids=None,
        sort_order_id=sort_order_id,
    )
    found.spec_id = spec_id
    return found


def _encode_bounds(values: Mapping[str, Any], fields: Mapping[str, Any]) -> dict[int, bytes]:
    return {
        fields[name].field_id: to_bytes(fields[name].field_type, _parse_bound(value, fields[name].field_type))
        for name, value in values.items()
        if name in fields
    }


def _parse_bound(value: Any, data_type: IcebergType) -> Any:
    """Convert a bound of the written file's statistics, which are JSON, to what PyIceberg stores."""
    if isinstance(data_type, DateType):
        return (date.fromisoformat(value) - EPOCH).days
    if isinstance(data_type, TimestampType | TimestamptzType):
        passed = datetime.fromisoformat(value.removesuffix("Z")) - _EPOCH_TIME
        return (passed.days * 86_400 + passed.seconds) * 1_000_000 + passed.microseconds
    return value


def iter_entries(table: Table, snapshot: Snapshot) -> Iterator[ManifestEntry]:
    """Yield the entries of all data files of a snapshot.

    Raises:
        TableMismatchError: The files do not contain exactly the table's rows, because another tool has deleted some.
    """
    for manifest in snapshot.manifests(table.io):
        if manifest.content is not ManifestContent.DATA:
            raise TableMismatchError(
                f"{table.location()} has delete files of another tool: rewrite its data files with that tool"
            )
        yield from manifest.fetch_manifest_entry(table.io, discard_deleted=True)


def list_live_files(
    table: Table, entries: Iterable[ManifestEntry], schema: Schema, partitioning: Partitioning
) -> tuple[LiveFile, ...]:
    """Return the data files of entries.

    Raises:
        TableMismatchError: A file is outside of the table's location, or has another partitioning.
    """
    written_ms = {each.snapshot_id: each.timestamp_ms for each in table.metadata.snapshots}
    prefix = f"{to_path(table.location())}/{DATA_DIRECTORY}/"
    partition_id, offset_id = get_partition_field(schema).field_id, schema.find_field(OFFSET).field_id
    may_have_iceberg_names = has_iceberg_names(schema)
    found = []
    for entry in entries:
        file = entry.data_file
        path = to_path(file.file_path)
        if not path.startswith(prefix) or file.file_format is not FileFormat.PARQUET:
            raise TableMismatchError(f"{table.location()} has a file that Chronik cannot read: {file.file_path}")
        if file.spec_id != table.metadata.default_spec_id:
            raise TableMismatchError(f"{table.location()}: another tool has changed the partitioning")
        found.append(
            LiveFile(
                path.removeprefix(prefix),
                file.file_size_in_bytes,
                from_partition_record(partitioning, file.partition, schema),
                _read_bounds(file, partition_id, schema),
                _read_bounds(file, offset_id, schema),
                file.record_count,
                written_ms.get(entry.snapshot_id, 0),
                may_have_iceberg_names and not is_own_file(path),
            )
        )
    return tuple(found)


def to_path(location: str) -> str:
    """Return a location in the form in which locations are compared: local files as a path."""
    parts = urlsplit(location)
    return unquote(parts.path) if parts.scheme == "file" else location.replace("s3a://", "s3://", 1)


def _read_bounds(file: DataFile, field_id: int, schema: Schema) -> tuple[int, int]:
    low, high = (file.lower_bounds or {}).get(field_id), (file.upper_bounds or {}).get(field_id)
    data_type = schema.find_type(field_id)
    assert isinstance(data_type, PrimitiveType)
    return (
        UNKNOWN_BOUNDS[0] if low is None else from_bytes(data_type, low),
        UNKNOWN_BOUNDS[1] if high is None else from_bytes(data_type, high),
    )


def read_file_statistics(
    entries: Iterable[ManifestEntry],
    files: Iterable[LiveFile],
    schema: Schema,
    arrow: pa.Schema,
    partition_by: tuple[str, ...],
) -> FileStatistics:
    """Return the metrics of data files, with the values of the partition columns."""
    data_files = [entry.data_file for entry in entries]
    rows = pa.array([file.record_count for file in data_files], pa.int64())
    lower: dict[str, pa.Array] = {}
    upper: dict[str, pa.Array] = {}
    null_counts: dict[str, pa.Array] = {}
    for field in schema.fields:
        name = to_column_name(field.name, schema)
        counts = [(file.null_value_counts or {}).get(field.field_id) for file in data_files]
        if any(count is not None for count in counts):
            null_counts[name] = pa.array(counts, pa.int64())
        if isinstance(field.field_type, PrimitiveType):
            data_type = arrow.field(name).type
            for target, maps in (
                (lower, [file.lower_bounds for file in data_files]),
                (upper, [file.upper_bounds for file in data_files]),
            ):
                raw = [(bounds or {}).get(field.field_id) for bounds in maps]
                if any(each is not None for each in raw):
                    target[name] = _decode_bounds(raw, field.field_type, data_type)
    values = list(zip(*(file.partition_values for file in files), strict=True))
    for name, column in zip(partition_by, values, strict=False):
        lower[name] = upper[name] = pa.array(column, arrow.field(name).type)
        null_counts[name] = pa.array(
            [count if value is None else 0 for value, count in zip(column, rows.to_pylist(), strict=True)], pa.int64()
        )
    return FileStatistics(rows, lower, upper, null_counts)


def _decode_bounds(raw: Iterable[bytes | None], data_type: PrimitiveType, arrow: pa.DataType) -> pa.Array:
    values = [None if each is None else from_bytes(data_type, each) for each in raw]
    if isinstance(data_type, DateType):
        return pa.array(values, pa.int32()).cast(arrow)
    if isinstance(data_type, TimestampType | TimestamptzType):
        return pa.array(values, pa.int64()).cast(arrow)
    return pa.array(values, arrow)


def copy_entry(entry: ManifestEntry, status: ManifestEntryStatus, snapshot_id: int) -> ManifestEntry:
    """Return an entry with another status; that of a deleted file names the snapshot that deletes it."""
    is_deleted = status is ManifestEntryStatus.DELETED
    return ManifestEntry.from_args(
        status=status,
        snapshot_id=snapshot_id if is_deleted else entry.snapshot_id,
        sequence_number=entry.sequence_number,
        file_sequence_number=entry.file_sequence_number,
        data_file=entry.data_file,
    )

"""The landed rows of a table in an object store, as tasks of a query read them with pyarrow.

They skip files by partition values and offsets, and row groups by statistics.
"""

from __future__ import annotations

import base64
import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from functools import reduce
from itertools import chain
from operator import and_
from typing import Any, Final

import pyarrow as pa
import pyarrow.dataset as ds

from chronik.limits import MIB
from chronik.pipeline.tables.layout import OFFSET, PARTITION
from chronik.pipeline.tables.table_files import ROWS_PER_BATCH, UNKNOWN_BOUNDS, LiveFile, TableFiles
from chronik.pipeline.tables.table_files import scan as scan_rows

BYTES_PER_TASK: Final = 64 * MIB
"""Target size in bytes of the files that one task reads."""


@dataclass(frozen=True, slots=True)
class LandedScan:
    """The parameters for reading the landed rows of a table."""

    table: TableFiles
    names: tuple[str, ...]
    """The columns to return, in this order."""

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([self.table.schema.field(name) for name in self.names])


FileIndices = tuple[int, ...]
"""Positions of a task's files in the table's list of files."""


def encode_scan(scan: LandedScan) -> str:
    """Encode a scan without its storage options, because Spark's plans and event logs may show it."""
    scan = replace(scan, table=replace(scan.table, storage_options=None))
    return base64.b64encode(pickle.dumps(scan)).decode()


def decode_scan(text: str, storage_options: Mapping[str, str] | None) -> LandedScan:
    """Decode a scan, and complete it with the storage options of its table."""
    found = pickle.loads(base64.b64decode(text))
    assert isinstance(found, LandedScan)
    return replace(found, table=replace(found.table, storage_options=storage_options))


def plan_landed_tasks(
    files: Sequence[LiveFile], selected: Iterable[int], bytes_max: int = BYTES_PER_TASK
) -> tuple[FileIndices, ...]:
    """Divide files into tasks of about `bytes_max` bytes."""
    tasks: list[list[int]] = []
    size = bytes_max
    for index in selected:
        if size + files[index].size_bytes > bytes_max:
            tasks.append([])
            size = 0
        tasks[-1].append(index)
        size += files[index].size_bytes
    return tuple(map(tuple, tasks))


def read_landed_rows(scan: LandedScan, files: FileIndices, where: Any = None) -> Iterator[pa.RecordBatch]:
    """Read the rows of files, without those that the filter `where` excludes.

    Raises:
        TableStorageError: A request to the object store failed.
        FileNotFoundError: A vacuum has deleted a file since the snapshot.
    """
    table = scan.table.with_files(*(scan.table.files[index] for index in files))
    own = table.with_files(*(file for file in table.files if not file.may_have_iceberg_names))
    others = table.with_files(*(file for file in table.files if file.may_have_iceberg_names))
    batches = open_partitioned_dataset(own).to_batches(
        columns=list(scan.names), filter=where, batch_size=ROWS_PER_BATCH, batch_readahead=1, fragment_readahead=1
    )
    for batch in chain(batches, scan_rows(others, scan.names, where)):
        if batch.num_rows:
            yield batch.cast(scan.schema)


def open_partitioned_dataset(table: TableFiles) -> Any:
    """Return an Arrow dataset that knows the partition values and offsets of each file, and skips files by them."""
    storage = table.storage
    parquet = ds.ParquetFileFormat()
    fragments = [
        parquet.make_fragment(storage.full_path(file.path), storage.filesystem, _build_guarantee(table, file))
        for file in table.files
    ]
    return ds.FileSystemDataset(fragments, table.schema, parquet, storage.filesystem)


def find_matching_files(table: TableFiles, where: Any) -> list[int]:
    """Return the positions of the files that may contain rows for which the filter is true."""
    if where is None:
        return list(range(len(table.files)))
    indices = {table.storage.full_path(file.path): index for index, file in enumerate(table.files)}
    return sorted(indices[fragment.path] for fragment in open_partitioned_dataset(table).get_fragments(filter=where))


def _build_guarantee(table: TableFiles, file: LiveFile) -> Any:
    """Return an expression that is true for all rows of a file."""
    guarantees = [
        ds.field(name).is_null() if value is None else ds.field(name) == pa.scalar(value, table.schema.field(name).type)
        for name, value in zip(table.partition_by, file.partition_values, strict=True)
    ]
    for name, (low, high) in ((PARTITION, file.partitions), (OFFSET, file.offsets)):
        if (low, high) != UNKNOWN_BOUNDS:
            kind = table.schema.field(name).type
            guarantees.append((ds.field(name) >= pa.scalar(low, kind)) & (ds.field(name) <= pa.scalar(high, kind)))
    return reduce(and_, guarantees, ds.scalar(True))


# Filters


def build_filter(schema: pa.Schema, filters: Iterable[Any]) -> Any:
    """Return an expression for those of Spark's pushed-down filters that can skip rows, or None if there are none.

    Spark evaluates all filters again, so the expression may be true for more rows, but not for fewer.
    """
    found = [each for each in (_convert_filter(schema, each) for each in filters) if each is not None]
    return reduce(and_, found) if found else None


def _convert_filter(schema: pa.Schema, pushed: Any) -> Any:
    attribute: tuple[str, ...] = getattr(pushed, "attribute", ())
    if len(attribute) != 1 or attribute[0] not in schema.names:
        return None
    column = schema.field(attribute[0])
    if not _has_same_order_as_spark(column.type):
        return None
    field = ds.field(column.name)
    kind = type(pushed).__name__
    if kind == "IsNotNull":
        return field.is_valid()
    if kind == "IsNull":
        return field.is_null()
    if kind == "In":
        values = [_convert_value(value, column.type) for value in pushed.value]
        return field.isin(pa.array(pushed.value, column.type)) if values and None not in values else None
    value = _convert_value(getattr(pushed, "value", None), column.type)
    if value is None:
        return None
    comparisons = {
        "EqualTo": lambda: field == value,
        "GreaterThan": lambda: field > value,
        "GreaterThanOrEqual": lambda: field >= value,
        "LessThan": lambda: field < value,
        "LessThanOrEqual": lambda: field <= value,
    }
    return comparisons[kind]() if kind in comparisons else None


def _has_same_order_as_spark(kind: pa.DataType) -> bool:
    """Return whether Arrow compares values of a type as Spark does. It does not for NaN."""
    types: Any = pa.types
    return bool(types.is_integer(kind) or types.is_date(kind) or types.is_timestamp(kind) or _is_text(kind))


def _is_text(kind: pa.DataType) -> bool:
    types: Any = pa.types
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _convert_value(value: Any, kind: pa.DataType) -> pa.Scalar | None:
    """Convert a literal of Spark to a column's type, or return None if it cannot be converted exactly."""
    types: Any = pa.types
    matches = (
        (types.is_integer(kind) and type(value) is int)
        or (types.is_date(kind) and type(value) is date)
        or (_is_text(kind) and type(value) is str)
        # A timestamp without time zone depends on the session's time zone.
        or (types.is_timestamp(kind) and isinstance(value, datetime) and (value.tzinfo is None) == (kind.tz is None))
    )
    if not matches:
        return None
    try:
        return pa.scalar(value, kind)
    except (pa.ArrowException, OverflowError):
        return None

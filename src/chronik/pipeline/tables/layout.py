"""Columns of the tables. System columns start with `_`, so that fields of records may be named `date` or `hour`."""

from __future__ import annotations

from collections.abc import Callable, Container
from enum import StrEnum
from itertools import pairwise

import crc32c
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from chronik.pipeline.records.columns import HEADERS_TYPE, RecordColumns
from chronik.pipeline.tables.partitioning import DATE_COLUMN, HOUR_COLUMN, PARTITION_KEY, Partitioning

PARTITION, OFFSET = "_partition", "_offset"
TIMESTAMP, TIMESTAMP_MS = "_timestamp", "_timestamp_ms"
KEY, VALUE, HEADERS, VALUE_CRC32C = "_key", "_value", "_headers", "_value_crc32c"
RESCUED, ERROR = "_rescued", "_error"
KEY_VALUE, VALUE_SCHEMA = "_key_value", "_value_schema"
"""Columns of typed tables: the decoded key, and the id or GUID of the schema of the value."""
DATE, HOUR = DATE_COLUMN, HOUR_COLUMN

ICEBERG_PARTITION = "_kafka_partition"
"""Name of the column `_partition` in the schemas of Iceberg tables, because Iceberg reserves `_partition`."""

SYSTEM_NAMES = frozenset(
    {
        PARTITION, OFFSET, TIMESTAMP, TIMESTAMP_MS, KEY, VALUE, HEADERS, VALUE_CRC32C, RESCUED, ERROR, DATE, HOUR,
        KEY_VALUE, VALUE_SCHEMA,
    }
)  # fmt: skip
"""Names of the columns that describe records."""

ENGINE_NAMES = frozenset(
    {
        ICEBERG_PARTITION,
        "_metadata",  # reserved by Spark for every file
        "_change_type", "_commit_version", "_commit_timestamp",  # reserved by Delta's change data feed
        # Reserved by Iceberg for metadata columns, rows of changelogs and row lineage.
        "_file", "_pos", "_deleted", "_spec_id", "_change_ordinal", "_commit_snapshot_id",
        "_row_id", "_last_updated_sequence_number",
    }
)  # fmt: skip
"""Names that Spark, Delta or Iceberg reserve, so that they do not return the values of a column with such a name.

Tables of earlier versions may have columns with some of these names.
"""

RESERVED_NAMES = SYSTEM_NAMES | ENGINE_NAMES
"""Reserved column names, which new columns for fields of a value cannot use."""

SYSTEM_KEY = b"chronik.system"
"""Key of the field metadata of `KEY_VALUE` and `VALUE_SCHEMA`, which older tables may have as names of fields."""

TIMESTAMP_TYPE = pa.timestamp("us", tz="UTC")

DECODING_RULES_VERSION = 2
"""Version of the decoding rules.

It is incremented when the set of decodable records or the decoding of fields changes, because drivers with different
rules must not land into the same table.
"""

TYPED_DECODING_RULES_VERSION = 3
"""Version of the decoding rules of tables with decoded keys or typed values.

Earlier drivers reject it, because they would decode values as JSON and ignore keys.
"""

MS_PER_HOUR = 3_600_000
MS_PER_DAY = 24 * MS_PER_HOUR
MS_OF_YEAR_10000 = 253_402_300_800_000
"""First timestamp beyond year 9999. Records have any 64-bit timestamp, but Delta, Spark and Python agree on dates only
from 1970 to 9999."""


class TableKind(StrEnum):
    """The kind of rows in a table: raw, decoded, or dead-letter records."""

    RAW = "raw"
    """Key, value and headers as bytes."""
    DECODED = "decoded"
    """Fields of the value as columns, added when they first occur. Values without a column are JSON in `_rescued`."""
    DEAD_LETTERS = "dead_letters"
    """Like RAW, with the decoding error."""


def initial_schema(
    kind: TableKind, partitioning: Partitioning = Partitioning.DATE, *, is_typed: bool = False
) -> pa.Schema:
    """Return the Arrow schema of a new table of this kind: its system columns and computed partition columns.

    `is_typed` says whether records name the schemas of their values.
    """
    fields = [
        pa.field(PARTITION, pa.int32()),
        pa.field(OFFSET, pa.int64()),
        pa.field(TIMESTAMP, TIMESTAMP_TYPE),
        pa.field(TIMESTAMP_MS, pa.int64()),
        pa.field(KEY, pa.binary()),
        pa.field(HEADERS, HEADERS_TYPE),
        pa.field(VALUE_CRC32C, pa.int64()),
        pa.field(DATE, pa.date32()),
    ]
    if partitioning.by_hour:
        fields.append(pa.field(HOUR, pa.int32()))
    fields += {
        TableKind.RAW: [pa.field(VALUE, pa.binary())],
        TableKind.DECODED: [pa.field(RESCUED, pa.string())],
        TableKind.DEAD_LETTERS: [pa.field(VALUE, pa.binary()), pa.field(ERROR, pa.string())],
    }[kind]
    if is_typed:
        fields.append(pa.field(VALUE_SCHEMA, pa.string(), metadata={SYSTEM_KEY: b"1"}))
    return pa.schema([*fields, *partitioning.computed_fields()])


def list_value_fields(schema: pa.Schema) -> list[pa.Field]:
    """Return the columns that hold decoded values: those that are neither system columns nor partition columns."""
    return [field for field in schema if not is_system_column(field) and PARTITION_KEY not in (field.metadata or {})]


def is_system_column(field: pa.Field) -> bool:
    """Return whether a column describes the record instead of a field of its value."""
    if field.name in (KEY_VALUE, VALUE_SCHEMA):
        return SYSTEM_KEY in (field.metadata or {})
    return field.name in SYSTEM_NAMES


def system_columns(partition: int, records: RecordColumns, names: Container[str] | None = None) -> dict[str, pa.Array]:
    """Return the system columns of records, such as `_offset`, `_value` and `_hour`, or only those in `names`.

    The records must have been decoded with the columns that `names` require.
    """
    timestamps_ms = records.timestamp_ms
    valid = pc.and_(pc.greater_equal(timestamps_ms, 0), pc.less(timestamps_ms, MS_OF_YEAR_10000))
    ms = pc.if_else(valid, timestamps_ms, pa.scalar(None, pa.int64()))
    builders: dict[str, Callable[[], pa.Array]] = {
        PARTITION: lambda: pa.repeat(pa.scalar(partition, pa.int32()), len(records)),
        OFFSET: lambda: records.offset,
        TIMESTAMP: lambda: pc.multiply(ms, 1000).cast(TIMESTAMP_TYPE),
        # Only timestamps that `_timestamp` cannot represent (such as -1, Kafka's "none"), so that none are lost.
        TIMESTAMP_MS: lambda: pc.if_else(valid, pa.scalar(None, pa.int64()), timestamps_ms),
        KEY: lambda: records.key,
        HEADERS: lambda: records.headers,
        VALUE_CRC32C: lambda: compute_value_checksums(records.value),
        DATE: lambda: pc.divide(ms, MS_PER_DAY).cast(pa.int32()).cast(pa.date32()),
        HOUR: lambda: _compute_hour_of_day(ms),
        VALUE: lambda: records.value,
    }
    return {name: make() for name, make in builders.items() if names is None or name in names}


def restore_timestamps_ms(table: pa.Table) -> pa.ChunkedArray:
    """Restore the records' original timestamps in milliseconds, from the columns `_timestamp` and `_timestamp_ms`."""
    ms = pc.divide(table[TIMESTAMP].cast(pa.int64()), 1000)
    return pc.coalesce(table[TIMESTAMP_MS], ms)


def _compute_hour_of_day(ms: pa.Array) -> pa.Array:
    hours = pc.divide(ms, MS_PER_HOUR)
    return pc.subtract(hours, pc.multiply(pc.divide(hours, 24), 24)).cast(pa.int32())


def compute_value_checksums(values: pa.Array) -> pa.Array:
    """Return the CRC-32C of each value (null for null), by which an audit compares rows with the log."""
    if len(values) == 0:
        return pa.array([], pa.int64())
    large = pa.types.is_large_binary(values.type)
    _, offsets_buffer, data = values.buffers()
    ends = np.frombuffer(offsets_buffer, np.int64 if large else np.int32)
    ends = ends[values.offset : values.offset + len(values) + 1].tolist()
    view = memoryview(data) if data is not None else memoryview(b"")
    crc = crc32c.crc32c
    crcs = np.fromiter((crc(view[start:end]) for start, end in pairwise(ends)), np.int64, len(values))
    return pa.array(crcs, mask=values.is_null().to_numpy(zero_copy_only=False))


def build_table_batch(columns: dict[str, pa.Array], schema: pa.Schema) -> pa.RecordBatch:
    """Return a record batch in the schema's column order. Columns added after the decoding are null."""
    rows = len(columns[OFFSET])
    arrays = [columns[field.name] if field.name in columns else pa.nulls(rows, field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)

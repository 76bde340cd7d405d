"""Columns of the source, the same as those of Spark's Kafka source, as Spark and Arrow types."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from chronik.client.records import TopicPartition
from chronik.pipeline.records.columns import HEADERS_TYPE, ColumnSelection, RecordColumns
from chronik.pipeline.source.typed_options import ERROR_SUFFIX, RESCUED_SUFFIX, TypedColumns

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

# Spark compares types exactly, including the unit and the time zone of a timestamp.
ARROW_TYPES: Final = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestampType": pa.int32(),
    "headers": HEADERS_TYPE,
}

SPARK_TYPES: Final = {
    "key": "BINARY",
    "value": "BINARY",
    "topic": "STRING",
    "partition": "INT",
    "offset": "BIGINT",
    "timestamp": "TIMESTAMP",
    "timestampType": "INT",
    "headers": "ARRAY<STRUCT<key: STRING, value: BINARY>>",
}

_MILLISECONDS_MAX: Final = (2**63 - 1) // 1000


def spark_schema(names: Sequence[str], typed: TypedColumns | None = None) -> StructType | str:
    """Return Spark's schema of a query with these columns, of which some may be typed."""
    if typed is None:
        return ", ".join(f"`{name}` {SPARK_TYPES[name]}" for name in names)
    from pyspark.sql.pandas.types import from_arrow_type
    from pyspark.sql.types import StructType

    types = ARROW_TYPES | {column.name: column.arrow_field.type for column in typed.columns}
    schema = StructType()
    for name in names:
        schema.add(name, from_arrow_type(types.get(name, pa.string()), prefer_timestamp_ntz=True))
    return schema


def arrow_schema(names: Sequence[str]) -> pa.Schema:
    return pa.schema([pa.field(name, ARROW_TYPES[name]) for name in names])


def select_columns(names: Sequence[str], typed: TypedColumns | None = None) -> ColumnSelection:
    """Return the fields of records from which the columns are built. Headers may name the schemas of typed columns."""
    wanted = set(names)
    for column in () if typed is None else typed.columns:
        if wanted & {column.name, column.name + ERROR_SUFFIX, column.name + RESCUED_SUFFIX}:
            wanted |= {column.name, "headers"} if column.writer_schema is None else {column.name}
    return ColumnSelection(key="key" in wanted, value="value" in wanted, headers="headers" in wanted)


def build_record_batch(
    source: TopicPartition, columns: RecordColumns, names: Sequence[str], typed: Mapping[str, pa.Array] | None = None
) -> pa.RecordBatch:
    """Return records as an Arrow record batch; `columns` and `typed` must contain the columns in `names`."""
    count = len(columns)
    typed = typed or {}
    builders: dict[str, Callable[[], pa.Array | None]] = {
        "key": lambda: columns.key,
        "value": lambda: columns.value,
        "topic": lambda: pa.repeat(source.topic, count),
        "partition": lambda: pa.repeat(pa.scalar(source.partition, pa.int32()), count),
        "offset": lambda: columns.offset,
        "timestamp": lambda: _to_timestamps(columns.timestamp_ms),
        "timestampType": lambda: columns.timestamp_type,
        "headers": lambda: columns.headers,
    }
    arrays = [typed[name] if name in typed else builders[name]() for name in names]
    fields = [pa.field(name, typed[name].type if name in typed else ARROW_TYPES[name]) for name in names]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def _to_timestamps(milliseconds: pa.Int64Array) -> pa.TimestampArray:
    """Convert milliseconds to timestamps. Values out of range for microseconds become null."""
    values = milliseconds.to_numpy()
    out_of_range = (values > _MILLISECONDS_MAX) | (values < -_MILLISECONDS_MAX)
    with np.errstate(over="ignore"):
        return pa.array(values * 1000, mask=out_of_range).cast(ARROW_TYPES["timestamp"])

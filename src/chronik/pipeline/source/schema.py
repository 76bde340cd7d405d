"""Columns of the source, the same as those of Spark's Kafka source, as Spark and Arrow types."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from chronik.client.records import TopicPartition
from chronik.pipeline.records.columns import HEADERS_TYPE, ColumnSelection, RecordColumns

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


def spark_schema(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}` {SPARK_TYPES[name]}" for name in names)


def arrow_schema(names: Sequence[str]) -> pa.Schema:
    return pa.schema([pa.field(name, ARROW_TYPES[name]) for name in names])


def select_columns(names: Sequence[str]) -> ColumnSelection:
    return ColumnSelection(key="key" in names, value="value" in names, headers="headers" in names)


def build_record_batch(source: TopicPartition, columns: RecordColumns, names: Sequence[str]) -> pa.RecordBatch:
    """Return records as an Arrow record batch; `columns` must contain the columns in `names`."""
    count = len(columns)
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
    return pa.RecordBatch.from_arrays([builders[name]() for name in names], schema=arrow_schema(names))


def _to_timestamps(milliseconds: pa.Int64Array) -> pa.TimestampArray:
    """Convert milliseconds to timestamps. Values out of range for microseconds become null."""
    values = milliseconds.to_numpy()
    out_of_range = (values > _MILLISECONDS_MAX) | (values < -_MILLISECONDS_MAX)
    with np.errstate(over="ignore"):
        return pa.array(values * 1000, mask=out_of_range).cast(ARROW_TYPES["timestamp"])

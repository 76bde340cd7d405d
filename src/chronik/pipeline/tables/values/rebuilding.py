"""Rows of tables back into records: the way back from `layout.own_columns` and `shaping.shape`.

From a raw table a record comes back byte for byte: key, value, headers and timestamp, null and empty told apart. From a
decoded one its value comes back equal: an object with the same fields, as JSON text of our own. Fields that were null
and fields that were not there are the same in a table, and are left out; nulls in lists, and in what was rescued, stay.
A record without a value (a tombstone) has none again.

Names of headers are texts in tables, as in Spark's own source. What was no UTF-8 in one has become U+FFFD for good.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from chronik.pipeline.tables.layout import (
    HEADERS,
    KEY,
    OFFSET,
    PARTITION,
    RESCUED,
    RESERVED,
    TIMESTAMP,
    TIMESTAMP_MS,
    VALUE,
    VALUE_CRC32C,
    timestamps_ms_of,
)

OUTSIDE_VALUE = (PARTITION, OFFSET, TIMESTAMP, TIMESTAMP_MS, KEY, HEADERS)

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


def columns_needed(schema: pa.Schema) -> list[str]:
    """Returns the columns of a table with this schema that it takes to make records of its rows."""
    if VALUE in schema.names:
        return [*OUTSIDE_VALUE, VALUE]
    return [*OUTSIDE_VALUE, VALUE_CRC32C, RESCUED, *(name for name in schema.names if name not in RESERVED)]


def outgoing_rows(rows: pa.Table) -> pa.RecordBatch:
    """Makes rows as `publishing` takes them, from the columns that `columns_needed` names."""
    values = rows[VALUE].combine_chunks() if VALUE in rows.column_names else json_values(rows)
    return pa.RecordBatch.from_pydict(
        {
            "key": _whole(rows[KEY]),
            "value": _whole(values),
            "headers": _whole(rows[HEADERS]),
            "timestamp_ms": _whole(timestamps_ms_of(rows)),
            "partition": _whole(rows[PARTITION]),
        }
    )


def with_names_replaced(rows: pa.Table) -> int:
    """Counts those with a header whose name is not as it was written. (Or was written with U+FFFD: nobody can tell.)"""
    headers = _whole(rows[HEADERS])
    replaced = pc.match_substring(pc.struct_field(pc.list_flatten(headers), "key"), REPLACEMENT)
    return len(pc.unique(pc.list_parent_indices(headers).filter(replaced)))


def _whole(column: Any) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def json_values(rows: pa.Table) -> pa.BinaryArray:
    """Returns the values of the rows of a decoded table."""
    encode = msgspec.json.Encoder().encode
    # What was rescued is copied as it stands, without a look inside.
    rescued_of = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
    names = [name for name in rows.column_names if name not in RESERVED]
    columns = [_objects(rows[name]) for name in names]
    values: list[bytes | None] = []
    for row, (crc, rescued) in enumerate(zip(rows[VALUE_CRC32C].to_pylist(), rows[RESCUED].to_pylist(), strict=True)):
        if crc is None:
            values.append(None)
            continue
        value = {name: column[row] for name, column in zip(names, columns, strict=True) if column[row] is not None}
        if rescued is not None:
            value |= rescued_of(rescued)
        values.append(encode(value))
    return pa.array(values, pa.binary())


def _objects(column: pa.ChunkedArray) -> list[Any]:
    values: list[Any] = column.to_pylist()
    strip = _stripping(column.type)
    return values if strip is None else [None if value is None else strip(value) for value in values]


def _stripping(kind: pa.DataType) -> Callable[[Any], Any] | None:
    """Returns what leaves null fields out of objects within values of this type; None when there are no objects."""
    if pa.types.is_struct(kind):
        inner = {field.name: _stripping(field.type) for field in kind}
        return lambda value: _stripped(value, inner)
    if pa.types.is_list(kind):
        element = _stripping(kind.value_type)
        if element is not None:
            return lambda value: [None if each is None else element(each) for each in value]
    return None


def _stripped(value: Mapping[str, Any], inner: Mapping[str, Callable[[Any], Any] | None]) -> dict[str, Any]:
    kept = {}
    for name, each in value.items():
        if each is not None:
            strip = inner[name]
            kept[name] = each if strip is None else strip(each)
    return kept

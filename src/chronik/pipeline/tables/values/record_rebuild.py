"""Reconstruction of records from the rows of a table.

From a raw table, records are restored byte for byte: key, value, headers and timestamp, with null and empty kept apart.
From a decoded table, the value is an equal JSON object, formatted differently: null fields are left out, because a
table does not distinguish them from missing ones, but nulls in lists and in rescued values are kept. Tombstones stay
tombstones.

Header names are strings in tables, as in Spark's Kafka source, so bytes that are not UTF-8 were replaced by U+FFFD.
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
    RESERVED_NAMES,
    TIMESTAMP,
    TIMESTAMP_MS,
    VALUE,
    VALUE_CRC32C,
    restore_timestamps_ms,
)

OUTSIDE_VALUE = (PARTITION, OFFSET, TIMESTAMP, TIMESTAMP_MS, KEY, HEADERS)

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


def record_source_columns(schema: pa.Schema) -> list[str]:
    """Return the columns of a table that are needed to reconstruct its records."""
    if VALUE in schema.names:
        return [*OUTSIDE_VALUE, VALUE]
    return [*OUTSIDE_VALUE, VALUE_CRC32C, RESCUED, *(name for name in schema.names if name not in RESERVED_NAMES)]


def build_outgoing_rows(rows: pa.Table) -> pa.RecordBatch:
    """Return rows in the format of `Publisher.publish`, from the columns that `record_source_columns` returns."""
    values = rows[VALUE].combine_chunks() if VALUE in rows.column_names else encode_json_values(rows)
    return pa.RecordBatch.from_pydict(
        {
            "key": _combine_chunks(rows[KEY]),
            "value": _combine_chunks(values),
            "headers": _combine_chunks(rows[HEADERS]),
            "timestamp_ms": _combine_chunks(restore_timestamps_ms(rows)),
            "partition": _combine_chunks(rows[PARTITION]),
        }
    )


def count_replaced_header_names(rows: pa.Table) -> int:
    """Return the number of rows with U+FFFD in a header name, which usually stands for replaced bytes."""
    headers = _combine_chunks(rows[HEADERS])
    replaced = pc.match_substring(pc.struct_field(pc.list_flatten(headers), "key"), REPLACEMENT)
    return len(pc.unique(pc.list_parent_indices(headers).filter(replaced)))


def _combine_chunks(column: Any) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def encode_json_values(rows: pa.Table) -> pa.BinaryArray:
    """Return the JSON values of the rows of a decoded table."""
    encode = msgspec.json.Encoder().encode
    # Rescued JSON is copied verbatim.
    decode_rescued = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
    names = [name for name in rows.column_names if name not in RESERVED_NAMES]
    columns = [_objects(rows[name]) for name in names]
    values: list[bytes | None] = []
    for row, (crc, rescued) in enumerate(zip(rows[VALUE_CRC32C].to_pylist(), rows[RESCUED].to_pylist(), strict=True)):
        if crc is None:
            values.append(None)
            continue
        value = {name: column[row] for name, column in zip(names, columns, strict=True) if column[row] is not None}
        if rescued is not None:
            value |= decode_rescued(rescued)
        values.append(encode(value))
    return pa.array(values, pa.binary())


def _objects(column: pa.ChunkedArray) -> list[Any]:
    values: list[Any] = column.to_pylist()
    strip = _null_stripper(column.type)
    return values if strip is None else [None if value is None else strip(value) for value in values]


def _null_stripper(data_type: pa.DataType) -> Callable[[Any], Any] | None:
    """Return a function that removes null fields from objects of this type, or None if it has no objects."""
    if pa.types.is_struct(data_type):
        inner = {field.name: _null_stripper(field.type) for field in data_type}
        return lambda value: _strip_nulls(value, inner)
    if pa.types.is_list(data_type):
        element = _null_stripper(data_type.value_type)
        if element is not None:
            return lambda value: [None if each is None else element(each) for each in value]
    return None


def _strip_nulls(value: Mapping[str, Any], inner: Mapping[str, Callable[[Any], Any] | None]) -> dict[str, Any]:
    kept = {}
    for name, each in value.items():
        if each is not None:
            strip = inner[name]
            kept[name] = each if strip is None else strip(each)
    return kept

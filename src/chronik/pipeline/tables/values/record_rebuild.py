"""Reconstruction of records from the rows of a table.

From a raw table, records are restored byte for byte: key, value, headers and timestamp, with null and empty kept apart.
From a decoded table, the value is an equal JSON object, formatted differently: null fields are left out, because a
table does not distinguish them from missing ones, but nulls in lists and in rescued values are kept. Tombstones stay
tombstones. From a typed table, the value is encoded again with the schema of its writer.

Header names are strings in tables, as in Spark's Kafka source, so bytes that are not UTF-8 were replaced by U+FFFD.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from chronik.formats.encoding import UnencodableValueError
from chronik.formats.registry_client import RegistrySettings
from chronik.pipeline.tables.layout import (
    HEADERS,
    KEY,
    OFFSET,
    PARTITION,
    RESCUED,
    TIMESTAMP,
    TIMESTAMP_MS,
    VALUE,
    VALUE_CRC32C,
    VALUE_SCHEMA,
    is_system_column,
    list_value_fields,
    restore_timestamps_ms,
)
from chronik.pipeline.tables.values.data_format import JSON_VALUES, RecordFormat
from chronik.pipeline.tables.values.exact_json import decode_exact_json
from chronik.pipeline.tables.values.json_decoder import merge_json_values
from chronik.pipeline.tables.values.table_schema import Path, TableSchema
from chronik.pipeline.tables.values.typed_rebuild import TypedEncoder, UnknownWriterError
from chronik.pipeline.tables.values.value_codecs import TYPED_OPTIONS, create_column_codec

OUTSIDE_VALUE = (PARTITION, OFFSET, TIMESTAMP, TIMESTAMP_MS, KEY, HEADERS)

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


def list_source_columns(schema: pa.Schema) -> list[str]:
    """Return the columns of a table that are needed to reconstruct its records."""
    if VALUE in schema.names:
        return [*OUTSIDE_VALUE, VALUE]
    typed = [name for name in (VALUE_SCHEMA,) if name in schema.names and is_system_column(schema.field(name))]
    return [*OUTSIDE_VALUE, VALUE_CRC32C, RESCUED, *typed, *(field.name for field in list_value_fields(schema))]


def build_outgoing_rows(
    rows: pa.Table,
    schema: TableSchema,
    format: RecordFormat = JSON_VALUES,
    registry: RegistrySettings | None = None,
) -> pa.RecordBatch:
    """Return rows in the format of `Publisher.publish`, from the columns that `list_source_columns` returns.

    Raises:
        ChronikError: A typed value cannot be encoded with the schema of its writer.
    """
    if VALUE in rows.column_names:
        values = rows[VALUE].combine_chunks()
    elif format.is_typed:
        values = encode_typed_values(rows, schema, format, registry)
    else:
        values = encode_json_values(rows, schema)
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
    """Count the rows with a U+FFFD character in a header name, where it usually replaces invalid UTF-8."""
    headers = _combine_chunks(rows[HEADERS])
    replaced = pc.match_substring(pc.struct_field(pc.list_flatten(headers), "key"), REPLACEMENT)
    return len(pc.unique(pc.list_parent_indices(headers).filter(replaced)))


def _combine_chunks(column: Any) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def encode_json_values(rows: pa.Table, schema: TableSchema) -> pa.BinaryArray:
    """Return the JSON values of the rows of a decoded table."""
    values = zip(rows[VALUE_CRC32C].to_pylist(), _restore_values(rows, schema), strict=True)
    return pa.array([None if crc is None else _encode(value) for crc, value in values], pa.binary())


def encode_typed_values(
    rows: pa.Table, schema: TableSchema, format: RecordFormat, registry: RegistrySettings | None
) -> pa.BinaryArray:
    """Return the values of the rows of a typed table, encoded with the schemas of their writers.

    Raises:
        ChronikError: A value cannot be encoded; the message names its offset.
    """
    encoder = TypedEncoder(format, registry, schema, rows.schema)
    columns = (rows[name].to_pylist() for name in (OFFSET, VALUE_CRC32C, VALUE_SCHEMA, HEADERS))
    values: list[bytes | None] = []
    for offset, crc, name, headers, form in zip(*columns, _restore_values(rows, schema), strict=True):
        try:
            values.append(None if crc is None else encoder.encode(form, name, headers))
        except (UnencodableValueError, UnknownWriterError) as error:
            raise UnencodableValueError(f"offset {offset}: {error}") from error
    return pa.array(values, pa.binary())


def restore_value(row: pa.Table, schema: TableSchema) -> dict[str, Any] | None:
    """Restore the JSON object of a record from its row in a decoded table; None for a record type's null.

    Raises:
        DecodeError, UnicodeError: `_rescued` is damaged.
    """
    (value,) = _restore_values(row, schema)
    restored: dict[str, Any] | None = decode_exact_json(_encode(value))
    return restored


def _restore_values(rows: pa.Table, schema: TableSchema) -> Iterator[dict[str, Any] | None]:
    """Yield the JSON objects of rows; None for a record type's null, for which `_rescued` is the text `null`."""
    columns = schema.resolve_columns(rows.schema)
    codecs = [create_column_codec(column, TYPED_OPTIONS) for column in columns]
    arrays = [rows[column.name].to_pylist() for column in columns]
    for row, rescued in enumerate(rows[RESCUED].to_pylist()):
        value: dict[str, Any] = {}
        for column, codec, array in zip(columns, codecs, arrays, strict=True):
            if array[row] is not None:
                _put(value, column.path, codec.restore(array[row]))
        yield value if rescued is None else merge_json_values(value, _decode_rescued(rescued))


_encode = msgspec.json.Encoder().encode


def _decode_rescued(text: str) -> dict[str, Any] | None:
    """Parse the JSON text of `_rescued`, keeping numbers that float64 cannot represent as raw JSON."""
    found = decode_exact_json(text.encode())
    if found is not None and not isinstance(found, dict):
        raise msgspec.DecodeError("the rescued value is neither an object nor null")
    return found


def _put(target: dict[str, Any], path: Path, value: Any) -> None:
    for key in path[:-1]:
        target = target.setdefault(key, {})
    target[path[-1]] = value

"""Lossless conversion of decoded values to the columns of a table: values that do not fit go to `_rescued`.

It works column by column, so that a batch whose values all fit takes a few passes over lists; only misfits are handled
one by one.

Records with JSON values become rows of a decoded table or dead-letter records. Which of them depends only on a record's
bytes, so reading a range again gives the same result.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

from chronik.pipeline.records.columns import RecordColumns
from chronik.pipeline.tables.layout import ERROR, RESCUED, RESERVED_NAMES, VALUE, system_columns
from chronik.pipeline.tables.values.exact_json import (
    NESTING_MAX,
    decode_exact_json,
    is_nested_too_deep,
    rows_needing_exact_decoding,
)
from chronik.pipeline.tables.values.schema_evolution import INT64_MAX, INT64_MIN, JsonObject

EXACT_IN_FLOAT_MAX = 2**53
"""Largest integer up to which float64 represents all integers exactly."""

DECODE_BATCH_ROWS = 8192
"""Number of rows decoded at a time.

The Python objects are several times larger than the encoded values. Objects of this many rows fit into the CPU cache
and reuse the same memory.
"""


@dataclass(frozen=True, slots=True)
class DecodedValues:
    """Decoded JSON objects, and the errors of values that could not be decoded."""

    objects: list[JsonObject | None]
    """Decoded object of each row; None for a tombstone or a value that could not be decoded."""
    errors: dict[int, str]
    """Error message of each dead-letter record, by row."""


@dataclass(frozen=True, slots=True)
class ConvertedColumns:
    """JSON objects converted to table columns, and the rescued fields, which have no matching column."""

    columns: dict[str, pa.Array]
    rescued: list[JsonObject | None]
    """Fields of each row without a matching column, from which `infer_fields` derives new columns."""


def decode_json_values(values: Sequence[bytes | None]) -> DecodedValues:
    """Decode JSON objects and tombstones. Other values are reported as errors."""
    decode = msgspec.json.Decoder().decode
    careful_rows = rows_needing_exact_decoding(values)
    objects: list[JsonObject | None] = []
    errors: dict[int, str] = {}
    for row, value in enumerate(values):
        found = None
        if value is not None:
            try:
                found = None if row in careful_rows else decode(value)
            except (msgspec.DecodeError, UnicodeError):
                found = None  # _decode_carefully reports the error
            if type(found) is not dict:
                found = _decode_carefully(row, value, errors)
        objects.append(found)
    return DecodedValues(objects, errors)


def _decode_carefully(row: int, value: bytes, errors: dict[int, str]) -> JsonObject | None:
    if is_nested_too_deep(value):
        errors[row] = f"lists and objects are nested more than {NESTING_MAX} deep"
        return None
    try:
        found = decode_exact_json(value)
    except (msgspec.DecodeError, UnicodeError) as error:
        errors[row] = str(error) or type(error).__name__
        return None
    if not isinstance(found, dict):
        errors[row] = f"a JSON object was expected, this is {_describe_type(found)}"
        return None
    return found


def _describe_type(value: Any) -> str:
    descriptions = {list: "a list", str: "a text", bool: "true or false", type(None): "null"}
    return descriptions.get(type(value), "a number")


def convert_to_columns(objects: Sequence[JsonObject | None], schema: pa.Schema) -> ConvertedColumns:
    """Convert JSON objects to the table's columns. Fields without a matching column are stored in `_rescued`.

    Without `_rescued` in the schema (in a query of few columns), values that do not fit are dropped.
    """
    fields = [field for field in schema if field.name not in RESERVED_NAMES]
    rescued: dict[int, dict[str, Any]] = {}
    columns: dict[str, pa.Array] = {}
    for field in fields:
        values = [None if each is None else each.get(field.name) for each in objects]
        columns[field.name], misfits = _convert_column(values, field.type)
        for row in misfits:
            rescued.setdefault(row, {})[field.name] = values[row]
    if RESCUED not in schema.names:
        return ConvertedColumns(columns, [None] * len(objects))
    _rescue_unknown(objects, {field.name for field in fields}, rescued)
    encode = msgspec.json.Encoder().encode
    texts = [encode(rescued[row]).decode() if row in rescued else None for row in range(len(objects))]
    columns[RESCUED] = pa.array(texts, pa.string())
    return ConvertedColumns(columns, [rescued.get(row) for row in range(len(objects))])


def _rescue_unknown(objects: Sequence[JsonObject | None], known: set[str], rescued: dict[int, dict[str, Any]]) -> None:
    if not set().union(*(each for each in objects if each)) - known:
        return
    for row, each in enumerate(objects):
        # Null fields are not rescued: the missing column is null anyway.
        unknown = {name: value for name, value in (each or {}).items() if name not in known and value is not None}
        if unknown:
            rescued.setdefault(row, {}).update(unknown)


def _convert_column(values: list[Any], data_type: pa.DataType) -> tuple[pa.Array, set[int]]:
    """Return a column with nulls for values that do not match the type, and the rows of these values."""
    if pa.types.is_struct(data_type):
        return _convert_structs(values, data_type)
    if pa.types.is_list(data_type):
        return _convert_lists(values, data_type)
    if _have_plain_type(values, data_type):
        try:
            return pa.array(values, data_type), set()
        except (OverflowError, pa.ArrowInvalid):
            pass  # a number beyond 64 bits, which is found below
    misfits = {row for row, value in enumerate(values) if value is not None and not _fits(value, data_type)}
    return pa.array([None if row in misfits else value for row, value in enumerate(values)], data_type), misfits


def _have_plain_type(values: list[Any], data_type: pa.DataType) -> bool:
    plain = PLAIN_TYPES.get(data_type)
    return plain is not None and set(map(type, values)) <= {plain, type(None)}


PLAIN_TYPES: dict[pa.DataType, type] = {pa.bool_(): bool, pa.int64(): int, pa.float64(): float, pa.string(): str}


def _fits(value: Any, data_type: pa.DataType) -> bool:
    plain = PLAIN_TYPES.get(data_type)
    if plain is float and type(value) is int:
        return -EXACT_IN_FLOAT_MAX <= value <= EXACT_IN_FLOAT_MAX
    if plain is int and type(value) is int:
        return INT64_MIN <= value <= INT64_MAX
    return type(value) is plain


def _convert_structs(values: list[Any], data_type: pa.DataType) -> tuple[pa.Array, set[int]]:
    names = {field.name for field in data_type}
    misfits = {
        row
        for row, value in enumerate(values)
        if value is not None and not (type(value) is dict and value.keys() <= names)
    }
    while True:
        kept = [None if row in misfits else value for row, value in enumerate(values)]
        children, found = [], set()
        for field in data_type:
            child, element_misfits = _convert_column(
                [None if each is None else each.get(field.name) for each in kept], field.type
            )
            children.append(child)
            found |= element_misfits
        if not found:
            mask = pa.array([each is None for each in kept], pa.bool_())
            return pa.StructArray.from_arrays(children, fields=list(data_type), mask=mask), misfits
        misfits |= found  # objects are rescued as a whole, never in part


def _convert_lists(values: list[Any], data_type: pa.DataType) -> tuple[pa.Array, set[int]]:
    misfits = {row for row, value in enumerate(values) if value is not None and type(value) is not list}
    while True:
        kept = [None if row in misfits else value for row, value in enumerate(values)]
        rows = [row for row, each in enumerate(kept) for _ in each or ()]
        elements, element_misfits = _convert_column(
            [element for each in kept for element in each or ()], data_type.value_type
        )
        if not element_misfits:
            ends = [0]
            for each in kept:
                ends.append(ends[-1] + len(each or ()))
            mask = pa.array([each is None for each in kept], pa.bool_())
            lists = pa.ListArray.from_arrays(pa.array(ends, pa.int32()), elements, type=data_type, mask=mask)
            return lists, misfits
        misfits |= {rows[element] for element in element_misfits}


class DecodedRows(NamedTuple):
    """Records decoded for a table: its rows, the fields without a matching column, and dead-letter records."""

    rows: dict[str, pa.Array]
    """System columns and fields of the values, for `build_table_batch` with the table's schema."""
    rescued: list[JsonObject | None]
    """Fields of each row without a matching column, from which `infer_fields` derives new columns."""
    dead_letters: dict[str, pa.Array] | None
    """System columns and `_error` of dead-letter records for `build_table_batch`; None if there are none."""


def decode_records(partition: int, records: RecordColumns, schema: pa.Schema) -> Iterator[DecodedRows]:
    """Decode records in order, and yield the results in chunks of DECODE_BATCH_ROWS."""
    for start in range(0, len(records), DECODE_BATCH_ROWS):
        part = RecordColumns(*(None if each is None else each.slice(start, DECODE_BATCH_ROWS) for each in records))
        yield decode_rows(system_columns(partition, part), schema)


def decode_rows(own: Mapping[str, pa.Array], schema: pa.Schema) -> DecodedRows:
    """Decode the `_value` column of records; `own` are their system columns."""
    decoded = decode_json_values(own[VALUE].to_pylist())
    if not decoded.errors:
        shaped = convert_to_columns(decoded.objects, schema)
        return DecodedRows({**own, **shaped.columns}, shaped.rescued, None)
    decodable = [row for row in range(len(decoded.objects)) if row not in decoded.errors]
    shaped = convert_to_columns([decoded.objects[row] for row in decodable], schema)
    dead = _take_rows(own, list(decoded.errors)) | {ERROR: pa.array(decoded.errors.values(), pa.string())}
    return DecodedRows(_take_rows(own, decodable) | shaped.columns, shaped.rescued, dead)


def _take_rows(columns: Mapping[str, pa.Array], rows: list[int]) -> dict[str, pa.Array]:
    indices = pa.array(rows, pa.int64())
    return {name: values.take(indices) for name, values in columns.items()}

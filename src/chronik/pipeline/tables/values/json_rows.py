"""Decoding of records with JSON values into rows of a decoded table and dead-letter records.

Whether a record becomes a dead-letter record depends only on its bytes, so reading a range again gives the same result.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import pyarrow as pa

from chronik.pipeline.records.columns import RecordColumns
from chronik.pipeline.tables.layout import ERROR, VALUE, system_columns
from chronik.pipeline.tables.values.column_conversion import convert_to_columns, decode_json_values
from chronik.pipeline.tables.values.inference import JsonObject

DECODE_BATCH_ROWS = 8192
"""Rows decoded at a time. The Python objects are several times the size of their values; this many stay in the
processor's cache and reuse the same memory."""


class DecodedRows(NamedTuple):
    """Rows of a decoded table, with rescued values and dead-letter records."""

    rows: dict[str, pa.Array]
    """System columns and fields of the values, for `build_table_batch` with the table's schema."""
    rescued: list[JsonObject | None]
    """Rescued fields of each row, from which `infer_fields` derives the missing columns."""
    dead_letters: dict[str, pa.Array] | None
    """System columns and `_error` of dead-letter records, for `build_table_batch` with their schema; None without
    any."""


def decode_records(partition: int, records: RecordColumns, schema: pa.Schema) -> Iterator[DecodedRows]:
    """Yield decoded rows in order, in chunks of ROWS_AT_ONCE."""
    for start in range(0, len(records), DECODE_BATCH_ROWS):
        part = RecordColumns(*(None if each is None else each.slice(start, DECODE_BATCH_ROWS) for each in records))
        yield decode_rows(system_columns(partition, part), schema)


def decode_rows(own: Mapping[str, pa.Array], schema: pa.Schema) -> DecodedRows:
    """Decode the `_value` column of new or dead-letter records; `own` are their system columns."""
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

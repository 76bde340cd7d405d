"""Records of a partition as rows of its table: what landing writes, and what a query shows of the records to be landed.

Both take them from here, so that a row does not change when it lands.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass

import pyarrow as pa

from chronik.pipeline.columns import Columns
from chronik.pipeline.tables.columns import ERROR, OFFSET, VALUE, Kind, batch_of, own_columns, schema_of
from chronik.pipeline.tables.shaping import Object, decode_json, shape

DEAD_LETTERS_SCHEMA = schema_of(Kind.DEAD_LETTERS)


@dataclass(frozen=True, slots=True)
class Rows:
    """What becomes of some records of one partition; each is in one of the two."""

    good: pa.RecordBatch
    """In the table's schema."""
    dead: pa.RecordBatch | None
    """Records that could not be decoded, as rows of a dead-letter table (`DEAD_LETTERS_SCHEMA`); None without any."""
    rescued: list[Object | None]
    """Of each good row, what has no place in the columns: `infer_fields` of it says which columns would help."""


def raw_rows(partition: int, records: Columns, schema: pa.Schema) -> pa.RecordBatch:
    """Every record as it is. Columns that the schema does not have are not made."""
    names = {*schema.names, OFFSET}
    return batch_of(own_columns(partition, records, names), schema)


def json_rows(partition: int, records: Columns, schema: pa.Schema, *, dead_letters: bool = True) -> Rows:
    """The fields of JSON objects as columns. Without `dead_letters` what cannot be decoded is left out and not told."""
    decoded = decode_json(records.value.to_pylist())
    objects, dead = decoded.objects, None
    names: Container[str] = {*schema.names, OFFSET}
    if decoded.errors:
        if dead_letters:
            dead = _dead_rows(partition, _taken(records, list(decoded.errors)), list(decoded.errors.values()))
        kept = [row for row in range(len(records)) if row not in decoded.errors]
        records, objects = _taken(records, kept), [objects[row] for row in kept]
    shaped = shape(objects, schema)
    good = batch_of(own_columns(partition, records, names) | shaped.columns, schema)
    return Rows(good, dead, shaped.rescued)


def _dead_rows(partition: int, records: Columns, errors: list[str]) -> pa.RecordBatch:
    own = own_columns(partition, records, {*DEAD_LETTERS_SCHEMA.names, VALUE})
    return batch_of(own | {ERROR: pa.array(errors, pa.string())}, DEAD_LETTERS_SCHEMA)


def _taken(records: Columns, rows: list[int]) -> Columns:
    indices = pa.array(rows, pa.int64())
    return Columns(*(None if column is None else column.take(indices) for column in records))

"""Comparison of a decoded table's columns with the record values they were decoded from.

Each value is decoded as landing does and compared with its row. If a column differs, the row is compared as a whole:
a row that landed before a column was added has the field in `_rescued`, or nowhere if it was null. The row is correct
if all its fields together equal the value.
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from chronik.pipeline.records.columns import RecordColumns
from chronik.pipeline.tables.layout import OFFSET, RESCUED, RESERVED_NAMES
from chronik.pipeline.tables.values.column_conversion import decode_json_values
from chronik.pipeline.tables.values.exact_json import decode_exact_json
from chronik.pipeline.tables.values.json_rows import decode_records


def decoded_columns(schema: pa.Schema) -> list[str]:
    """Return the columns that hold decoded fields; none for a table that stores the values themselves."""
    if RESCUED not in schema.names:
        return []
    return [name for name in schema.names if name not in RESERVED_NAMES or name == RESCUED]


class DecodedFieldCheck:
    """A comparison of decoded rows with the records of the log, which are passed in one batch at a time."""

    def __init__(self, partition: int, schema: pa.Schema, rows: pa.Table) -> None:
        """Create a check of `rows`, which has the offset and the decoded fields, sorted by offset."""
        self._partition = partition
        self._schema = schema
        self._rows = rows
        self._offsets = rows[OFFSET].to_numpy()
        self.mismatches: dict[int, str] = {}
        """By offset, the first column that differs."""

    def check_records(self, records: RecordColumns) -> None:
        assert records.value is not None, "values are read"
        positions = records.offset.to_numpy()
        for decoded in decode_records(self._partition, records, self._schema):
            offsets = decoded.rows[OFFSET].to_numpy()
            _, here, there = np.intersect1d(offsets, self._offsets, return_indices=True)
            rows = self._rows.take(pa.array(there))
            for name in decoded_columns(self._schema):
                expected = pa.chunked_array([decoded.rows[name].take(pa.array(here))])
                for row in find_unequal_rows(rows[name], expected):
                    offset = rows[OFFSET][row].as_py()
                    value = records.value[int(np.searchsorted(positions, offset))].as_py()
                    if offset not in self.mismatches and not _equals_value(rows, row, value):
                        self.mismatches[offset] = name


def _equals_value(rows: pa.Table, row: int, value: bytes | None) -> bool:
    """Return whether all fields of a row together equal a record's value."""
    found = {name: rows[name][row].as_py() for name in rows.column_names if name not in (OFFSET, RESCUED)}
    found = {name: each for name, each in found.items() if each is not None}
    text = rows[RESCUED][row].as_py()
    try:
        rescued = {} if text is None else decode_exact_json(text.encode())
    except (msgspec.DecodeError, UnicodeError):
        return False
    if not isinstance(rescued, dict) or found.keys() & rescued.keys():
        return False
    (expected,) = decode_json_values([value]).objects
    return bool(_without_nulls(found | rescued) == _without_nulls(dict(expected or {})))


def _without_nulls(value: Any) -> Any:
    """Return a decoded value without nulls, since a null in a column may mean null or missing."""
    if isinstance(value, dict):
        return {name: _without_nulls(each) for name, each in value.items() if each is not None}
    if isinstance(value, list):
        return [_without_nulls(each) for each in value]
    return value


def find_unequal_rows(found: pa.ChunkedArray, expected: pa.ChunkedArray) -> list[int]:
    """Return the indexes of the rows in which two columns differ; null equals only null."""
    if found.equals(expected):
        return []
    if pa.types.is_nested(found.type):
        pairs = zip(found.to_pylist(), expected.to_pylist(), strict=True)
        return [row for row, (mine, other) in enumerate(pairs) if mine != other]
    same = pc.fill_null(pc.equal(found, expected), False)
    both_null = pc.and_(pc.is_null(found), pc.is_null(expected))
    unequal: list[int] = pc.indices_nonzero(pc.invert(pc.or_(same, both_null))).to_pylist()
    return unequal

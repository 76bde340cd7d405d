"""The fields of a decoded table beside the values that they were taken from.

A value is decoded once more, as landing does it, and laid beside its row. Where a column differs the row is looked at
by itself: one that landed before a column was added holds the field elsewhere, or nowhere when it was null, and that is
right. A row is right when all of it together says what the value says.
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from chronik.pipeline.records.columns import Columns
from chronik.pipeline.tables.layout import OFFSET, RESCUED, RESERVED
from chronik.pipeline.tables.values.exact_json import decode_exactly
from chronik.pipeline.tables.values.json_rows import decode_records
from chronik.pipeline.tables.values.shaping import decode_json


def field_names(schema: pa.Schema) -> list[str]:
    """Returns the columns that hold what became of values; none for a table that holds the values themselves."""
    if RESCUED not in schema.names:
        return []
    return [name for name in schema.names if name not in RESERVED or name == RESCUED]


class FieldsCheck:
    """Is shown the records of the log, and remembers which rows are not what they say."""

    def __init__(self, partition: int, schema: pa.Schema, rows: pa.Table) -> None:
        """`rows`: offsets and fields, by offset."""
        self._partition = partition
        self._schema = schema
        self._rows = rows
        self._offsets = rows[OFFSET].to_numpy()
        self.different: dict[int, str] = {}
        """Offset → the first column that is wrong."""

    def look(self, records: Columns) -> None:
        assert records.value is not None, "values are read"
        positions = records.offset.to_numpy()
        for decoded in decode_records(self._partition, records, self._schema):
            offsets = decoded.rows[OFFSET].to_numpy()
            _, here, there = np.intersect1d(offsets, self._offsets, return_indices=True)
            rows = self._rows.take(pa.array(there))
            for name in field_names(self._schema):
                expected = pa.chunked_array([decoded.rows[name].take(pa.array(here))])
                for row in unequal_rows(rows[name], expected):
                    offset = rows[OFFSET][row].as_py()
                    value = records.value[int(np.searchsorted(positions, offset))].as_py()
                    if offset not in self.different and not _says(rows, row, value):
                        self.different[offset] = name


def _says(rows: pa.Table, row: int, value: bytes | None) -> bool:
    """Says whether everything in the row, taken together, is the value."""
    found = {name: rows[name][row].as_py() for name in rows.column_names if name not in (OFFSET, RESCUED)}
    found = {name: each for name, each in found.items() if each is not None}
    text = rows[RESCUED][row].as_py()
    try:
        rescued = {} if text is None else decode_exactly(text.encode())
    except (msgspec.DecodeError, UnicodeError):
        return False
    if not isinstance(rescued, dict) or found.keys() & rescued.keys():
        return False
    (expected,) = decode_json([value]).objects
    return bool(_without_nulls(found | rescued) == _without_nulls(dict(expected or {})))


def _without_nulls(value: Any) -> Any:
    """A column, or a field of a structure, that holds nothing cannot be told from a null."""
    if isinstance(value, dict):
        return {name: _without_nulls(each) for name, each in value.items() if each is not None}
    if isinstance(value, list):
        return [_without_nulls(each) for each in value]
    return value


def unequal_rows(found: pa.ChunkedArray, expected: pa.ChunkedArray) -> list[int]:
    """Returns the rows in which they differ; null is equal to null alone."""
    if found.equals(expected):
        return []
    if pa.types.is_nested(found.type):
        pairs = zip(found.to_pylist(), expected.to_pylist(), strict=True)
        return [row for row, (mine, other) in enumerate(pairs) if mine != other]
    same = pc.fill_null(pc.equal(found, expected), False)
    both_null = pc.and_(pc.is_null(found), pc.is_null(expected))
    unequal: list[int] = pc.indices_nonzero(pc.invert(pc.or_(same, both_null))).to_pylist()
    return unequal

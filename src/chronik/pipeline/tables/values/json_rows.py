"""Records with JSON values into rows of a decoded table and dead letters: the same wherever it is done.

Which records are dead letters depends on their bytes alone, so a range that is read again splits in the same way.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import pyarrow as pa

from chronik.pipeline.records.columns import Columns
from chronik.pipeline.tables.layout import ERROR, VALUE, own_columns
from chronik.pipeline.tables.values.inference import Object
from chronik.pipeline.tables.values.shaping import decode_json, shape

ROWS_AT_ONCE = 8192
"""Values are Python objects while they are shaped, several times their size: so many at a time stay near the
processor, and their memory is used again."""


class DecodedRows(NamedTuple):
    rows: dict[str, pa.Array]
    """Columns of ours and fields of the values, for `batch_of` with the table's schema."""
    rescued: list[Object | None]
    """What of each row has no place in the schema; `infer_fields` of it says which columns would help."""
    dead: dict[str, pa.Array] | None
    """Columns of ours and `_error` of what could not be decoded, for `batch_of` with the schema of dead letters."""


def decode_records(partition: int, records: Columns, schema: pa.Schema) -> Iterator[DecodedRows]:
    """Decodes portion by portion, in order."""
    for start in range(0, len(records), ROWS_AT_ONCE):
        part = Columns(*(None if each is None else each.slice(start, ROWS_AT_ONCE) for each in records))
        yield decode_rows(own_columns(partition, part), schema)


def decode_rows(own: Mapping[str, pa.Array], schema: pa.Schema) -> DecodedRows:
    """`own`: columns of ours, `_value` among them, of records or of dead letters that are tried again."""
    decoded = decode_json(own[VALUE].to_pylist())
    if not decoded.errors:
        shaped = shape(decoded.objects, schema)
        return DecodedRows({**own, **shaped.columns}, shaped.rescued, None)
    good = [row for row in range(len(decoded.objects)) if row not in decoded.errors]
    shaped = shape([decoded.objects[row] for row in good], schema)
    dead = _taken(own, list(decoded.errors)) | {ERROR: pa.array(decoded.errors.values(), pa.string())}
    return DecodedRows(_taken(own, good) | shaped.columns, shaped.rescued, dead)


def _taken(columns: Mapping[str, pa.Array], rows: list[int]) -> dict[str, pa.Array]:
    chosen = pa.array(rows, pa.int64())
    return {name: values.take(chosen) for name, values in columns.items()}

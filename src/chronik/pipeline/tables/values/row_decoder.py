"""Records with JSON values as rows of a decoded table or as dead-letter records.

Which of them a record becomes depends only on its bytes and on the table's schema, so reading a range again gives the
same result.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import pyarrow as pa

from chronik.pipeline.records.columns import RecordColumns
from chronik.pipeline.tables.layout import ERROR, RESCUED, VALUE, system_columns
from chronik.pipeline.tables.partitioning import PARTITION_KEY, parse_partitioning
from chronik.pipeline.tables.values.field_statistics import FieldStatistics
from chronik.pipeline.tables.values.json_decoder import JsonDecoder, UnknownField
from chronik.pipeline.tables.values.table_schema import INFERRED, TableSchema

DECODE_BATCH_ROWS: Final = 8192
"""Number of rows decoded at a time.

The Python objects are several times larger than the encoded values. Objects of this many rows fit into the CPU cache
and reuse the same memory.
"""


class DecodedRows(NamedTuple):
    """Records decoded for a table: its rows, the fields without a column, and dead-letter records."""

    rows: dict[str, pa.Array]
    """System columns and columns of the values, for `build_table_batch` with the table's schema."""
    unknown_fields: list[UnknownField]
    """Fields without a column, if columns are to be added for them."""
    misfits: Counter[str]
    """Number of values that did not fit, by column."""
    dead_letters: dict[str, pa.Array] | None
    """System columns and `_error` of dead-letter records for `build_table_batch`; None if there are none."""


class RowDecoder:
    """A decoder of records for one version of a table's schema. Not thread-safe."""

    def __init__(self, schema: TableSchema, table: pa.Schema, partition_by: Collection[str] = ()) -> None:
        self._values = JsonDecoder(schema, table, partition_by)
        self._computed = [
            parse_partitioning(field.metadata[PARTITION_KEY].decode()).fields[0]
            for field in table
            if PARTITION_KEY in (field.metadata or {})
        ]

    def decode_records(self, partition: int, records: RecordColumns) -> Iterator[DecodedRows]:
        """Decode records in order, and yield the results in chunks of DECODE_BATCH_ROWS."""
        for start in range(0, len(records), DECODE_BATCH_ROWS):
            part = RecordColumns(*(None if each is None else each.slice(start, DECODE_BATCH_ROWS) for each in records))
            yield self.decode_rows(system_columns(partition, part))

    def decode_rows(self, own: Mapping[str, pa.Array]) -> DecodedRows:
        """Decode the values of records into table rows; `own` contains the records' system columns."""
        decoded = self._values.decode(own[VALUE].to_pylist())
        for field in self._computed:
            decoded.columns[field.column] = field.compute(decoded.columns[field.source])
        if not decoded.errors:
            return DecodedRows({**own, **decoded.columns}, decoded.unknown_fields, decoded.misfits, None)
        decodable = [row for row in range(len(own[VALUE])) if row not in decoded.errors]
        dead = _select_rows(own, list(decoded.errors)) | {ERROR: pa.array(decoded.errors.values(), pa.string())}
        rows = _select_rows(own, decodable) | decoded.columns
        return DecodedRows(rows, decoded.unknown_fields, decoded.misfits, dead)


def _select_rows(columns: Mapping[str, pa.Array], rows: list[int]) -> dict[str, pa.Array]:
    indices = pa.array(rows, pa.int64())
    return {name: values.take(indices) for name, values in columns.items()}


def collect_statistics(unknown_fields: list[UnknownField]) -> FieldStatistics:
    """Return the statistics of the JSON fields for which the table has no column."""
    statistics = FieldStatistics()
    for path, value in unknown_fields:
        statistics.add_nested_value(path, value)
    return statistics


def infer_statistics(values: Sequence[bytes | None]) -> FieldStatistics:
    """Count the types of all JSON fields in a sample of values, ignoring values that cannot be decoded."""
    decoder = JsonDecoder(INFERRED, pa.schema([pa.field(RESCUED, pa.string())]))
    return collect_statistics(decoder.decode(values).unknown_fields)

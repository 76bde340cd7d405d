"""Tasks that retry dead-letter records on executors: find decodable records, and write and rewrite files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from chronik.pipeline.records.columns import Columns
from chronik.pipeline.tables.files import FrozenTable, LiveFile, TableFiles, scan, whole_rows
from chronik.pipeline.tables.layout import (
    HEADERS,
    KEY,
    OFFSET,
    PARTITION,
    TIMESTAMP,
    TIMESTAMP_MS,
    VALUE,
    batch_of,
    own_columns,
    timestamps_ms_of,
)
from chronik.pipeline.tables.offset_sets import OffsetSets, are_among, count_of, offsets_in
from chronik.pipeline.tables.spans import WrittenFile
from chronik.pipeline.tables.values.growth import plan_columns
from chronik.pipeline.tables.values.inference import infer_fields
from chronik.pipeline.tables.values.json_rows import ROWS_AT_ONCE, DecodedRows, decode_rows

POSITION_COLUMNS = [PARTITION, OFFSET]
RECORD_COLUMNS = [*POSITION_COLUMNS, TIMESTAMP, TIMESTAMP_MS, KEY, HEADERS, VALUE]


@dataclass(frozen=True, slots=True)
class Looked:
    """The result of decoding a file of dead-letter records again."""

    decodable: OffsetSets
    failing: int
    waiting: int
    """Records at or after the table's next offset, which were not tried."""
    wanted: tuple[pa.Field, ...]
    """Columns to add to the table."""


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A file of dead-letter records that was rewritten without some of its rows."""

    file: LiveFile
    removed: int
    """Number of removed rows. If it is 0, the file is unchanged."""
    written: tuple[WrittenFile, ...] = ()


def scan_dead_letters(table: FrozenTable, next_offsets: Mapping[int, int], letters: TableFiles) -> Looked:
    """Find the dead-letter records that decode with the current rules.

    Only records below the table's next offsets are tried: landing does not process them again.
    """
    found: list[pa.RecordBatch] = []
    tried = waiting = 0
    fields: tuple[pa.Field, ...] = ()
    schema = table.schema
    for batch in _record_batches(letters):
        below = _below_next_offsets(batch, next_offsets)
        waiting += int((~below).sum())
        tried += int(below.sum())
        for decoded in _decode_batch(batch.filter(pa.array(below)), schema):
            found.append(_offset_columns(decoded))
            fields += plan_columns(schema, infer_fields(decoded.rescued)).added
    decodable = offsets_in(found)
    return Looked(decodable, tried - count_of(decodable), waiting, fields)


def offsets_of(letters: TableFiles) -> OffsetSets:
    """Return the offsets of all dead-letter records in the files."""
    return offsets_in(scan(letters, POSITION_COLUMNS))


def present(wanted: OffsetSets, table: TableFiles) -> OffsetSets:
    """Return the wanted offsets that the table already has."""
    return offsets_in(batch.filter(pa.array(are_among(batch, wanted))) for batch in scan(table, POSITION_COLUMNS))


def write_decoded_rows(table: FrozenTable, chosen: OffsetSets, letters: TableFiles) -> tuple[WrittenFile, ...]:
    """Write the chosen dead-letter records as rows to new files, which a commit adds to the table."""
    with table.writer() as writer:
        for batch in _record_batches(letters):
            for decoded in _decode_batch(batch.filter(pa.array(are_among(batch, chosen))), table.schema):
                writer.write(batch_of(decoded.rows, table.schema))
    return writer.files


def rewrite_without(settled: OffsetSets, letters: TableFiles) -> Rewritten:
    """Rewrite a file of dead-letter records without the settled ones."""
    (file,) = letters.files
    removed = sum(int(are_among(batch, settled).sum()) for batch in scan(letters, POSITION_COLUMNS))
    if not removed:
        return Rewritten(file, 0)
    with letters.writer() as writer:
        for batch in whole_rows(letters):
            kept = batch.filter(pa.array(~are_among(batch, settled)))
            if kept.num_rows:
                writer.write(kept)
    return Rewritten(file, removed, writer.files)


def _record_batches(letters: TableFiles) -> Iterator[pa.RecordBatch]:
    for batch in scan(letters, RECORD_COLUMNS):
        for first in range(0, batch.num_rows, ROWS_AT_ONCE):
            yield batch.slice(first, ROWS_AT_ONCE)


def _below_next_offsets(batch: pa.RecordBatch, next_offsets: Mapping[int, int]) -> npt.NDArray[np.bool_]:
    partitions, offsets = batch.column(PARTITION).to_pylist(), batch.column(OFFSET).to_pylist()
    pairs = zip(partitions, offsets, strict=True)
    below = [offset < next_offsets.get(partition, 0) for partition, offset in pairs]
    return np.array(below, np.bool_)


def _decode_batch(batch: pa.RecordBatch, schema: pa.Schema) -> Iterable[DecodedRows]:
    if not batch.num_rows:
        return ()
    return (decode_rows(_system_columns(batch, schema), schema),)


def _system_columns(batch: pa.RecordBatch, schema: pa.Schema) -> dict[str, pa.Array]:
    """Return the system columns that landing would have created for these records."""
    timestamps_ms = timestamps_ms_of(pa.Table.from_batches([batch])).combine_chunks()
    records = Columns(
        offset=batch.column(OFFSET),
        timestamp_ms=timestamps_ms,
        timestamp_type=pa.nulls(batch.num_rows, pa.int32()),  # not stored in tables
        key=batch.column(KEY),
        value=batch.column(VALUE),
        headers=batch.column(HEADERS),
    )
    return own_columns(0, records, [*schema.names, VALUE]) | {PARTITION: batch.column(PARTITION)}


def _offset_columns(decoded: DecodedRows) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([decoded.rows[name] for name in POSITION_COLUMNS], names=POSITION_COLUMNS)

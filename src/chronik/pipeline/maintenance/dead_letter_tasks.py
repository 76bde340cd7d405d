"""Tasks that retry dead-letter records on executors: find decodable records, and write and rewrite files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from chronik.pipeline.records.columns import RecordColumns
from chronik.pipeline.tables.commit_plan import WrittenFile
from chronik.pipeline.tables.layout import (
    HEADERS,
    KEY,
    OFFSET,
    PARTITION,
    TIMESTAMP,
    TIMESTAMP_MS,
    VALUE,
    build_table_batch,
    restore_timestamps_ms,
    system_columns,
)
from chronik.pipeline.tables.offset_sets import OffsetSets, collect_offsets, compute_offsets_mask, count_offsets
from chronik.pipeline.tables.table_files import LiveFile, TableDescriptor, TableFiles, scan
from chronik.pipeline.tables.values.field_statistics import FieldStatistics
from chronik.pipeline.tables.values.row_decoder import DECODE_BATCH_ROWS, DecodedRows, RowDecoder, collect_statistics

POSITION_COLUMNS = [PARTITION, OFFSET]
RECORD_COLUMNS = [*POSITION_COLUMNS, TIMESTAMP, TIMESTAMP_MS, KEY, HEADERS, VALUE]


@dataclass(frozen=True, slots=True)
class RetryScan:
    """The result of decoding one file of dead-letter records again."""

    decodable: OffsetSets
    failing: int
    waiting: int
    """Number of records at or after the table's next offset, which were not retried."""
    unknown_fields: FieldStatistics
    """Statistics of JSON fields for which the table has no column."""


@dataclass(frozen=True, slots=True)
class RewrittenFile:
    """A file of dead-letter records that was rewritten without some of its rows."""

    file: LiveFile
    removed: int
    """Number of removed rows. If it is 0, the file is unchanged."""
    written: tuple[WrittenFile, ...] = ()


def scan_dead_letters(table: TableDescriptor, next_offsets: Mapping[int, int], letters: TableFiles) -> RetryScan:
    """Find the dead-letter records that the current decoding rules can decode.

    Only records below the table's next offsets are tried: landing does not process them again.
    """
    found: list[pa.RecordBatch] = []
    tried = waiting = 0
    unknown_fields = FieldStatistics()
    decoder = table.row_decoder()
    for batch in _iter_record_batches(letters):
        below = _compute_below_next_offsets_mask(batch, next_offsets)
        waiting += int((~below).sum())
        tried += int(below.sum())
        for decoded in _decode_batch(batch.filter(pa.array(below)), table.schema, decoder):
            found.append(_select_offset_columns(decoded))
            unknown_fields.merge(collect_statistics(decoded.unknown_fields))
    decodable = collect_offsets(found)
    return RetryScan(decodable, tried - count_offsets(decodable), waiting, unknown_fields)


def read_dead_letter_offsets(letters: TableFiles) -> OffsetSets:
    """Return the offsets of all dead-letter records in the files."""
    return collect_offsets(scan(letters, POSITION_COLUMNS))


def find_offsets_in_table(wanted: OffsetSets, table: TableFiles) -> OffsetSets:
    """Return those of the wanted offsets that already have a row in the topic's table."""
    return collect_offsets(
        batch.filter(pa.array(compute_offsets_mask(batch, wanted))) for batch in scan(table, POSITION_COLUMNS)
    )


def write_decoded_rows(table: TableDescriptor, chosen: OffsetSets, letters: TableFiles) -> tuple[WrittenFile, ...]:
    """Decode the chosen dead-letter records and write them as table rows to new files, which a commit adds later."""
    decoder = table.row_decoder()
    with table.writer() as writer:
        for batch in _iter_record_batches(letters):
            for decoded in _decode_batch(
                batch.filter(pa.array(compute_offsets_mask(batch, chosen))), table.schema, decoder
            ):
                writer.write(build_table_batch(decoded.rows, table.schema))
    return writer.files


def rewrite_dead_letter_file(settled: OffsetSets, letters: TableFiles) -> RewrittenFile:
    """Write a copy of a dead-letter file without the records that now have rows in the topic's table."""
    (file,) = letters.files
    removed = sum(int(compute_offsets_mask(batch, settled).sum()) for batch in scan(letters, POSITION_COLUMNS))
    if not removed:
        return RewrittenFile(file, 0)
    with letters.writer() as writer:
        for batch in scan(letters):
            kept = batch.filter(pa.array(~compute_offsets_mask(batch, settled)))
            if kept.num_rows:
                writer.write(kept)
    return RewrittenFile(file, removed, writer.files)


def _iter_record_batches(letters: TableFiles) -> Iterator[pa.RecordBatch]:
    for batch in scan(letters, RECORD_COLUMNS):
        for first in range(0, batch.num_rows, DECODE_BATCH_ROWS):
            yield batch.slice(first, DECODE_BATCH_ROWS)


def _compute_below_next_offsets_mask(batch: pa.RecordBatch, next_offsets: Mapping[int, int]) -> npt.NDArray[np.bool_]:
    partitions, offsets = batch.column(PARTITION).to_pylist(), batch.column(OFFSET).to_pylist()
    pairs = zip(partitions, offsets, strict=True)
    below = [offset < next_offsets.get(partition, 0) for partition, offset in pairs]
    return np.array(below, np.bool_)


def _decode_batch(batch: pa.RecordBatch, schema: pa.Schema, decoder: RowDecoder) -> Iterable[DecodedRows]:
    if not batch.num_rows:
        return ()
    return decoder.decode_rows_in_parts(_build_system_columns(batch, schema))


def _build_system_columns(batch: pa.RecordBatch, schema: pa.Schema) -> dict[str, pa.Array]:
    """Return the system columns of these records, such as the offset and date, as landing would have created them."""
    timestamps_ms = restore_timestamps_ms(pa.Table.from_batches([batch])).combine_chunks()
    records = RecordColumns(
        offset=batch.column(OFFSET),
        timestamp_ms=timestamps_ms,
        timestamp_type=pa.nulls(batch.num_rows, pa.int32()),  # not stored in tables
        key=batch.column(KEY),
        value=batch.column(VALUE),
        headers=batch.column(HEADERS),
    )
    return system_columns(0, records, [*schema.names, VALUE]) | {PARTITION: batch.column(PARTITION)}


def _select_offset_columns(decoded: DecodedRows) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([decoded.rows[name] for name in POSITION_COLUMNS], names=POSITION_COLUMNS)

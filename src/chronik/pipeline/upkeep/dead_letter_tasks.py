"""Tasks of a retry of dead letters, on executors: what decodes by now, what is in the table already, and the files."""

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

POSITION = [PARTITION, OFFSET]
RECORD = [*POSITION, TIMESTAMP, TIMESTAMP_MS, KEY, HEADERS, VALUE]


@dataclass(frozen=True, slots=True)
class Looked:
    decodable: OffsetSets
    failing: int
    waiting: int
    """Letters that are not below the table's next offset."""
    wanted: tuple[pa.Field, ...]
    """Columns that the table should have."""


@dataclass(frozen=True, slots=True)
class Rewritten:
    file: LiveFile
    removed: int
    """Rows that were removed. Without any, the file stays as it is."""
    written: tuple[WrittenFile, ...] = ()


def look(table: FrozenTable, next_offsets: Mapping[int, int], letters: TableFiles) -> Looked:
    """Finds letters that decode by today's rules. Only those below the next offsets of the table that they are to go to
    are tried: landing is done with them, whatever its rules will be."""
    found: list[pa.RecordBatch] = []
    tried = waiting = 0
    fields: tuple[pa.Field, ...] = ()
    schema = table.schema
    for batch in _letters(letters):
        below = _are_below(batch, next_offsets)
        waiting += int((~below).sum())
        tried += int(below.sum())
        for decoded in _decoded(batch.filter(pa.array(below)), schema):
            found.append(_position(decoded))
            fields += plan_columns(schema, infer_fields(decoded.rescued)).added
    decodable = offsets_in(found)
    return Looked(decodable, tried - count_of(decodable), waiting, fields)


def offsets_of(letters: TableFiles) -> OffsetSets:
    return offsets_in(scan(letters, POSITION))


def present(wanted: OffsetSets, table: TableFiles) -> OffsetSets:
    """Returns those of these that the table has."""
    return offsets_in(batch.filter(pa.array(are_among(batch, wanted))) for batch in scan(table, POSITION))


def write_rows(table: FrozenTable, chosen: OffsetSets, letters: TableFiles) -> tuple[WrittenFile, ...]:
    """Writes rows of the chosen letters as files of the table, which are in it after a commit."""
    with table.writer() as writer:
        for batch in _letters(letters):
            for decoded in _decoded(batch.filter(pa.array(are_among(batch, chosen))), table.schema):
                writer.write(batch_of(decoded.rows, table.schema))
    return writer.files


def rewritten_without(settled: OffsetSets, letters: TableFiles) -> Rewritten:
    """Writes one file of dead letters anew, without these."""
    (file,) = letters.files
    removed = sum(int(are_among(batch, settled).sum()) for batch in scan(letters, POSITION))
    if not removed:
        return Rewritten(file, 0)
    with letters.writer() as writer:
        for batch in whole_rows(letters):
            kept = batch.filter(pa.array(~are_among(batch, settled)))
            if kept.num_rows:
                writer.write(kept)
    return Rewritten(file, removed, writer.files)


def _letters(letters: TableFiles) -> Iterator[pa.RecordBatch]:
    for batch in scan(letters, RECORD):
        for first in range(0, batch.num_rows, ROWS_AT_ONCE):
            yield batch.slice(first, ROWS_AT_ONCE)


def _are_below(batch: pa.RecordBatch, next_offsets: Mapping[int, int]) -> npt.NDArray[np.bool_]:
    partitions, offsets = batch.column(PARTITION).to_pylist(), batch.column(OFFSET).to_pylist()
    pairs = zip(partitions, offsets, strict=True)
    below = [offset < next_offsets.get(partition, 0) for partition, offset in pairs]
    return np.array(below, np.bool_)


def _decoded(batch: pa.RecordBatch, schema: pa.Schema) -> Iterable[DecodedRows]:
    if not batch.num_rows:
        return ()
    return (decode_rows(_own(batch, schema), schema),)


def _own(batch: pa.RecordBatch, schema: pa.Schema) -> dict[str, pa.Array]:
    """Returns the columns that landing would have made of these records."""
    timestamps_ms = timestamps_ms_of(pa.Table.from_batches([batch])).combine_chunks()
    records = Columns(
        offset=batch.column(OFFSET),
        timestamp_ms=timestamps_ms,
        timestamp_type=pa.nulls(batch.num_rows, pa.int32()),  # which tables do not keep
        key=batch.column(KEY),
        value=batch.column(VALUE),
        headers=batch.column(HEADERS),
    )
    return own_columns(0, records, [*schema.names, VALUE]) | {PARTITION: batch.column(PARTITION)}


def _position(decoded: DecodedRows) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([decoded.rows[name] for name in POSITION], names=POSITION)

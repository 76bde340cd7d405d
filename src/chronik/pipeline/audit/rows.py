"""A stretch of a partition, its log beside its table: every record has its row, every row its record, and they agree.

The log is read from one replica (that replicas are the same is looked at elsewhere). Compared are the positions, the
key, the time, the headers, and the checksum of the value, which decoded tables have too; where a table holds the value
itself, that it has this checksum. A file of the table that cannot be read is told, and the others are compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from chronik.pipeline.audit.decoding import records_of
from chronik.pipeline.audit.findings import Finding, Kind, first_line
from chronik.pipeline.audit.walk import Batch, Event, Place, Walk
from chronik.pipeline.columns import HEADERS_TYPE, Columns
from chronik.pipeline.segments import AbortedSpan, aborted_transactions
from chronik.pipeline.tables.columns import (
    HEADERS,
    KEY,
    OFFSET,
    PARTITION,
    TIMESTAMP,
    TIMESTAMP_MS,
    VALUE,
    VALUE_CRC32C,
    timestamps_ms_of,
    value_crcs,
)
from chronik.pipeline.tables.replacing import LiveFile
from chronik.pipeline.tables.scanning import TableFiles, scan

FINDINGS_MAX: Final = 20
"""Of one stretch and kind."""

EVERYTHING: Final = 2**63 - 1

UNREADABLE: Final = (OSError, pa.ArrowException)
"""What pyarrow raises over a file that is damaged or not there."""

TIME: Final = "timestamp"
_ROWS = pa.schema(
    [
        pa.field(OFFSET, pa.int64()),
        pa.field(TIME, pa.int64()),
        pa.field(KEY, pa.binary()),
        pa.field(HEADERS, HEADERS_TYPE),
        pa.field(VALUE_CRC32C, pa.int64()),
    ]
)
_SAID = {TIME: "timestamp", KEY: "key", HEADERS: "headers", VALUE_CRC32C: "value"}

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class RowsSlice:
    """Offsets [start, end) of a partition that are in the log and have landed."""

    topic: str
    partition: int
    start: int
    end: int
    node: int
    folder: str
    is_compacted: bool
    table: TableFiles
    dead_letters: TableFiles | None
    beyond: int | None
    """In the last stretch the table's next offset: from here on it must have no rows."""


@dataclass(frozen=True, slots=True)
class RowsCompared:
    findings: tuple[Finding, ...]
    rows: int
    gone: tuple[str, ...] = ()
    """Files that are not there: they are findings if the table still names them. Otherwise others have taken their
    place since, and it has to be looked at anew."""


def compare_all_rows(slices: Sequence[RowsSlice]) -> list[RowsCompared]:
    return [compare_rows(each) for each in slices]


def compare_rows(slice: RowsSlice) -> RowsCompared:
    table = _landed(slice, slice.table, slice.end if slice.beyond is None else EVERYTHING)
    dead = _landed(slice, slice.dead_letters, slice.end)
    unread = [*table.unread, *dead.unread]
    found = _Comparison(slice, _log(slice), table.rows, dead.rows, unread)
    gone = tuple(each.path for each in unread if each.is_gone)
    return RowsCompared(tuple(found.findings()), table.rows.num_rows + dead.rows.num_rows, gone)


# The table's side


class _Unread(NamedTuple):
    file: LiveFile
    path: str
    says: str
    is_gone: bool


class _Landed(NamedTuple):
    rows: pa.Table
    """By offset. Of a value that does not have its own checksum, the checksum that it has."""
    unread: list[_Unread]


def _landed(slice: RowsSlice, table: TableFiles | None, end: int) -> _Landed:
    if table is None:
        return _Landed(_ROWS.empty_table(), [])
    where = (pc.field(PARTITION) == slice.partition) & (pc.field(OFFSET) >= slice.start) & (pc.field(OFFSET) < end)
    try:
        return _Landed(_by_offset(_scanned(table, where)), [])
    except UNREADABLE:
        return _landed_by_file(table, where)


def _landed_by_file(table: TableFiles, where: Any) -> _Landed:
    """Not all of them can be read: which ones, and what do the others hold?"""
    batches: list[pa.RecordBatch] = []
    unread: list[_Unread] = []
    for file in table.files:
        path = table.storage.full_path(file.path)
        try:
            batches += _scanned(table.of(file), where)
        except FileNotFoundError:
            unread.append(_Unread(file, path, "a file of the table is not there", is_gone=True))
        except UNREADABLE as error:
            says = f"a file of the table cannot be read: {first_line(error)}"
            unread.append(_Unread(file, path, says, is_gone=False))
    return _Landed(_by_offset(batches), unread)


def _scanned(table: TableFiles, where: Any) -> list[pa.RecordBatch]:
    columns = [OFFSET, TIMESTAMP, TIMESTAMP_MS, KEY, HEADERS, VALUE_CRC32C]
    columns += [VALUE] * (VALUE in table.schema.names)
    return [_as_rows(batch) for batch in scan(table, columns, where) if batch.num_rows]


def _by_offset(batches: list[pa.RecordBatch]) -> pa.Table:
    return pa.Table.from_batches(batches, _ROWS).sort_by(OFFSET)


def _as_rows(batch: pa.RecordBatch) -> pa.RecordBatch:
    found = pa.Table.from_batches([batch])
    crcs = batch.column(VALUE_CRC32C)
    if VALUE in batch.schema.names:
        crcs = value_crcs(batch.column(VALUE))
    times = timestamps_ms_of(found).combine_chunks()
    arrays = [batch.column(OFFSET), times, batch.column(KEY), batch.column(HEADERS), crcs]
    cast = [_as(array, field.type) for array, field in zip(arrays, _ROWS, strict=True)]
    return pa.RecordBatch.from_arrays(cast, schema=_ROWS)


def _as(array: Any, kind: pa.DataType) -> pa.Array:
    flat = array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
    return flat if flat.type == kind else flat.cast(kind)


# The log's side


class _Stored(NamedTuple):
    first: int
    end: int
    file: str
    position: int


class _Log(NamedTuple):
    start: int
    """Where the log begins by now."""
    reached: int
    rows: pa.Table
    unreadable: list[tuple[int, int]]
    """Offsets that the log ought to have and does not give: what the table says of them cannot be judged."""
    batches: list[_Stored]


def _log(slice: RowsSlice) -> _Log:
    place = Place(slice.topic, slice.partition, slice.node)
    walk = Walk(
        slice.folder, place, slice.start, slice.end, slice.is_compacted, is_final=False, must_reach_end=False
    )
    batches: list[_Stored] = []
    rows: list[pa.RecordBatch] = []
    unreadable: list[tuple[int, int]] = []
    for each in records_of(_visible(walk, slice, batches), place, slice.start, slice.end):
        if isinstance(each, Finding):
            if each.offset is not None:
                unreadable.append((each.offset, each.end_offset or each.offset + 1))
        else:
            rows.append(_record_rows(each))
    return _Log(walk.start, min(walk.due, slice.end), pa.Table.from_batches(rows, _ROWS), unreadable, batches)


def _record_rows(records: Columns) -> pa.RecordBatch:
    arrays = [records.offset, records.timestamp_ms, records.key, records.headers, value_crcs(records.value)]
    return pa.RecordBatch.from_arrays(arrays, schema=_ROWS)


def _visible(walk: Iterable[Event], slice: RowsSlice, batches: list[_Stored]) -> Iterator[Event]:
    """Without control batches, and without what aborted transactions wrote: neither lands."""
    aborted: tuple[AbortedSpan, ...] | None = None
    for event in walk:
        if not isinstance(event, Batch):
            yield event
            continue
        header = event.header
        if header.is_transactional and aborted is None:
            aborted = aborted_transactions(Path(slice.folder), slice.start, slice.end)
        if header.is_control or _is_aborted(event, aborted or ()):
            continue
        batches.append(_Stored(header.base_offset, header.next_offset, event.file, event.position))
        yield event


def _is_aborted(batch: Batch, aborted: Iterable[AbortedSpan]) -> bool:
    header = batch.header
    return header.is_transactional and any(
        each.producer_id == header.producer_id and each.first_offset <= header.base_offset < each.marker_offset
        for each in aborted
    )


# Both


class _Comparison:
    def __init__(
        self, slice: RowsSlice, log: _Log, table: pa.Table, dead: pa.Table, unread: Sequence[_Unread]
    ) -> None:
        self._slice = slice
        self._log = log
        self._table = table
        self._dead = dead
        self._unread = unread

    def findings(self) -> Iterator[Finding]:
        log, slice = self._log, self._slice
        for each in self._unread:
            yield Finding(Kind.TABLE_FILE, each.says, slice.topic, file=each.path)
        records, rows, dead = _offsets(log.rows), _offsets(self._table), _offsets(self._dead)
        yield from self._duplicates(rows)
        landed = np.union1d(rows, dead)
        yield from self._lost(np.setdiff1d(records[records >= log.start], landed))
        judged = landed[(landed >= log.start) & (landed < log.reached)]
        for first, end in log.unreadable:
            judged = judged[(judged < first) | (judged >= end)]
        if not slice.is_compacted:
            yield from self._foreign(np.setdiff1d(judged, records), "no record has this offset")
        if slice.beyond is not None:
            says = f"the table says that it ends at {slice.beyond}, and has this row"
            yield from self._foreign(rows[rows >= slice.beyond], says)
        yield from self._different(self._table, slice.table)
        if slice.dead_letters is not None:
            yield from self._different(self._dead, slice.dead_letters)

    def _finding(self, kind: Kind, offset: int, says: str, file: str | None, end: int | None = None) -> Finding:
        slice = self._slice
        return Finding(kind, says, slice.topic, slice.partition, offset=offset, end_offset=end, file=file)

    def _lost(self, offsets: Ints) -> Iterator[Finding]:
        for each in self._unread:  # what such a file may hold is not known to be lost
            lowest, highest = each.file.offsets
            offsets = offsets[(offsets < lowest) | (offsets > highest)]
        for first, end in list(_runs(offsets))[:FINDINGS_MAX]:
            where = next((each for each in self._log.batches if each.first <= first < each.end), None)
            source = "" if where is None else f" (in the log: {where.file}, the batch at byte {where.position})"
            what = f"the record at offset {first} has" if end - first == 1 else f"the records {first} to {end - 1} have"
            says = f"{what} no row{source}"
            yield self._finding(Kind.LOST_ROW, first, says, self._slice.table.uri, end)

    def _duplicates(self, rows: Ints) -> Iterator[Finding]:
        doubled, counts = np.unique(rows, return_counts=True)
        for offset, count in list(zip(doubled.tolist(), counts.tolist(), strict=True)):
            if count > 1:
                files = self._files_with(self._slice.table, offset)
                says = f"{count} rows for the record at offset {offset}"
                yield self._finding(Kind.DUPLICATE_ROW, offset, says, ", ".join(files))

    def _foreign(self, offsets: Ints, says: str) -> Iterator[Finding]:
        for offset in offsets[:FINDINGS_MAX].tolist():
            slice = self._slice
            files = self._files_with(slice.table, offset) or self._files_with(slice.dead_letters, offset)
            yield self._finding(Kind.FOREIGN_ROW, offset, says, ", ".join(files))

    def _different(self, table: pa.Table, source: TableFiles) -> Iterator[Finding]:
        offsets, records = _offsets(table), _offsets(self._log.rows)
        _, here, there = np.intersect1d(offsets, records, return_indices=True)
        rows, expected = table.take(pa.array(here)), self._log.rows.take(pa.array(there))
        told = 0
        for name, said in _SAID.items():
            for row in _unequal(rows[name], expected[name]):
                offset = rows[OFFSET][row].as_py()
                told += 1
                if told <= FINDINGS_MAX:
                    says = f"the {said} of the row at offset {offset} is not that of its record"
                    files = ", ".join(self._files_with(source, offset))
                    yield self._finding(Kind.DIFFERENT_ROW, offset, says, files)

    def _files_with(self, table: TableFiles | None, offset: int) -> list[str]:
        if table is None:
            return []
        where = (pc.field(PARTITION) == self._slice.partition) & (pc.field(OFFSET) == offset)
        likely = (file for file in table.files if file.may_hold(self._slice.partition, offset, offset + 1))
        return [table.storage.full_path(file.path) for file in likely if _has_rows(table.of(file), where)]


def _has_rows(table: TableFiles, where: Any) -> bool:
    """False also for what cannot be read: that is told by itself."""
    try:
        return any(batch.num_rows for batch in scan(table, [OFFSET], where))
    except UNREADABLE:
        return False


def _offsets(rows: pa.Table) -> Ints:
    found: Ints = rows[OFFSET].to_numpy()
    return found


def _unequal(found: pa.ChunkedArray, expected: pa.ChunkedArray) -> list[int]:
    """The rows in which they differ; null is equal to null alone."""
    if found.equals(expected):
        return []
    if pa.types.is_list(found.type):
        pairs = zip(found.to_pylist(), expected.to_pylist(), strict=True)
        return [row for row, (mine, other) in enumerate(pairs) if mine != other]
    same = pc.fill_null(pc.equal(found, expected), False)
    both_null = pc.and_(pc.is_null(found), pc.is_null(expected))
    unequal: list[int] = pc.indices_nonzero(pc.invert(pc.or_(same, both_null))).to_pylist()
    return unequal


def _runs(offsets: Ints) -> Iterator[tuple[int, int]]:
    """Consecutive numbers, as [first, end)."""
    if not len(offsets):
        return
    breaks = np.flatnonzero(np.diff(offsets) > 1)
    for first, last in zip([0, *(breaks + 1)], [*breaks, len(offsets) - 1], strict=True):
        yield int(offsets[first]), int(offsets[last]) + 1

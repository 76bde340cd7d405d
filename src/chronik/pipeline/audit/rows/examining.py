"""A stretch of a partition, its log beside its table: every record has its row, every row its record, and they agree.

Compared are the positions, the key, the time, the headers, and the checksum of the value, which decoded tables have
too; where a table holds the value itself, that it has this checksum, and where it holds the value's fields, that they
are those. A file of the table that cannot be read is told, and the others are compared. So are rows whose records no
replica can give: nobody knows whether they are right.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from chronik.pipeline.audit.findings import Finding, Kind, first_line
from chronik.pipeline.audit.rows.fields import FieldsCheck, field_names, unequal_rows
from chronik.pipeline.audit.rows.recorded import ROWS, TIME, Log, read_log
from chronik.pipeline.audit.standing import Replica
from chronik.pipeline.tables.files import LiveFile, TableFiles, scan
from chronik.pipeline.tables.layout import (
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
from chronik.wording import counted

FINDINGS_MAX: Final = 20
"""Findings of one stretch and kind."""

EVERYTHING: Final = 2**63 - 1

UNREADABLE: Final = (OSError, pa.ArrowException)
"""What pyarrow raises over a file that is damaged or not there."""

_SAID = {TIME: "timestamp", KEY: "key", HEADERS: "headers", VALUE_CRC32C: "value"}

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class RowsSlice:
    """Offsets [start, end) of a partition that are in the log and have landed."""

    topic: str
    partition: int
    start: int
    end: int
    copies: tuple[Replica, ...]
    """Copies of the log, the most trusted first. The others are read where it is damaged."""
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
    fields = None if table.fields is None else FieldsCheck(slice.partition, slice.table.schema, table.fields)
    log = read_log(slice.topic, slice.partition, slice.start, slice.end, slice.copies, slice.is_compacted, fields)
    found = _Comparison(slice, log, table.rows, dead.rows, unread, fields)
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
    """Rows by offset. For a value that does not have its own checksum, the checksum that it has."""
    unread: list[_Unread]
    fields: pa.Table | None = None
    """What became of the values, by offset, in a decoded table."""


def _landed(slice: RowsSlice, table: TableFiles | None, end: int) -> _Landed:
    if table is None:
        return _Landed(ROWS.empty_table(), [])
    where = (pc.field(PARTITION) == slice.partition) & (pc.field(OFFSET) >= slice.start) & (pc.field(OFFSET) < end)
    try:
        return _as_landed(table, _scanned(table, where), [])
    except UNREADABLE:
        return _landed_by_file(table, where)


def _landed_by_file(table: TableFiles, where: Any) -> _Landed:
    """Reads file by file, when not all can be read: which ones, and what do the others hold?"""
    batches: list[pa.RecordBatch] = []
    unread: list[_Unread] = []
    for file in table.files:
        path = table.storage.full_path(file.path)
        try:
            batches += _scanned(table.with_files(file), where)
        except FileNotFoundError:
            unread.append(_Unread(file, path, "a file of the table is not there", is_gone=True))
        except UNREADABLE as error:
            says = f"a file of the table cannot be read: {first_line(error)}"
            unread.append(_Unread(file, path, says, is_gone=False))
    return _as_landed(table, batches, unread)


def _scanned(table: TableFiles, where: Any) -> list[pa.RecordBatch]:
    columns = [OFFSET, TIMESTAMP, TIMESTAMP_MS, KEY, HEADERS, VALUE_CRC32C]
    columns += [VALUE] * (VALUE in table.schema.names)
    columns += field_names(table.schema)
    return [batch for batch in scan(table, columns, where) if batch.num_rows]


def _as_landed(table: TableFiles, batches: list[pa.RecordBatch], unread: list[_Unread]) -> _Landed:
    rows = pa.Table.from_batches([_as_rows(batch) for batch in batches], ROWS).sort_by(OFFSET)
    names = field_names(table.schema)
    if not names or not batches:
        return _Landed(rows, unread)
    fields = pa.Table.from_batches(batches).select([OFFSET, *names])
    order = pc.sort_indices(fields, sort_keys=[(OFFSET, "ascending")])
    return _Landed(rows, unread, fields.take(order))


def _as_rows(batch: pa.RecordBatch) -> pa.RecordBatch:
    found = pa.Table.from_batches([batch])
    crcs = batch.column(VALUE_CRC32C)
    if VALUE in batch.schema.names:
        crcs = value_crcs(batch.column(VALUE))
    times = timestamps_ms_of(found).combine_chunks()
    arrays = [batch.column(OFFSET), times, batch.column(KEY), batch.column(HEADERS), crcs]
    cast = [_as(array, field.type) for array, field in zip(arrays, ROWS, strict=True)]
    return pa.RecordBatch.from_arrays(cast, schema=ROWS)


def _as(array: Any, kind: pa.DataType) -> pa.Array:
    flat = array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
    return flat if flat.type == kind else flat.cast(kind)


# Both


class _Comparison:
    def __init__(
        self,
        slice: RowsSlice,
        log: Log,
        table: pa.Table,
        dead: pa.Table,
        unread: Sequence[_Unread],
        fields: FieldsCheck | None,
    ) -> None:
        self._fields = fields
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
            yield from self._unjudged(judged[(judged >= first) & (judged < end)])
            judged = judged[(judged < first) | (judged >= end)]
        if not slice.is_compacted:
            yield from self._foreign(np.setdiff1d(judged, records), "no record has this offset")
        if slice.beyond is not None:
            says = f"the table says that it ends at {slice.beyond}, and has this row"
            yield from self._foreign(rows[rows >= slice.beyond], says)
        yield from self._different(self._table, slice.table)
        yield from self._different_fields()
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
                says = f"{counted(count, 'row')} for the record at offset {offset}"
                yield self._finding(Kind.DUPLICATE_ROW, offset, says, ", ".join(files))

    def _foreign(self, offsets: Ints, says: str) -> Iterator[Finding]:
        for offset in offsets[:FINDINGS_MAX].tolist():
            slice = self._slice
            files = self._files_with(slice.table, offset) or self._files_with(slice.dead_letters, offset)
            yield self._finding(Kind.FOREIGN_ROW, offset, says, ", ".join(files))

    def _unjudged(self, offsets: Ints) -> Iterator[Finding]:
        for first, end in list(_runs(offsets))[:FINDINGS_MAX]:
            what = f"the row at offset {first}" if end - first == 1 else f"the rows {first} to {end - 1}"
            says = f"nobody can say whether {what} are right: no replica has the records undamaged"
            yield self._finding(Kind.UNJUDGED_ROW, first, says, self._slice.table.uri, end)

    def _different_fields(self) -> Iterator[Finding]:
        different = {} if self._fields is None else self._fields.different
        for offset, name in list(different.items())[:FINDINGS_MAX]:
            says = f"the column {name} of the row at offset {offset} is not what its record's value says"
            files = ", ".join(self._files_with(self._slice.table, offset))
            yield self._finding(Kind.DIFFERENT_ROW, offset, says, files)

    def _different(self, table: pa.Table, source: TableFiles) -> Iterator[Finding]:
        offsets, records = _offsets(table), _offsets(self._log.rows)
        _, here, there = np.intersect1d(offsets, records, return_indices=True)
        rows, expected = table.take(pa.array(here)), self._log.rows.take(pa.array(there))
        told = 0
        for name, said in _SAID.items():
            for row in unequal_rows(rows[name], expected[name]):
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
        likely = table.that_may_hold(self._slice.partition, offset, offset + 1).files
        return [table.storage.full_path(file.path) for file in likely if _has_rows(table.with_files(file), where)]


def _has_rows(table: TableFiles, where: Any) -> bool:
    """Says no for what cannot be read, too: that is told by itself."""
    try:
        return any(batch.num_rows for batch in scan(table, [OFFSET], where))
    except UNREADABLE:
        return False


def _offsets(rows: pa.Table) -> Ints:
    found: Ints = rows[OFFSET].to_numpy()
    return found


def _runs(offsets: Ints) -> Iterator[tuple[int, int]]:
    """Yields runs of consecutive numbers, as [first, end)."""
    if not len(offsets):
        return
    breaks = np.flatnonzero(np.diff(offsets) > 1)
    for first, last in zip([0, *(breaks + 1)], [*breaks, len(offsets) - 1], strict=True):
        yield int(offsets[first]), int(offsets[last]) + 1

"""Comparison of a slice of a partition's log with its table: the task side.

Compared are offset, key, timestamp, headers and the checksum of the value, which decoded tables store too. If the table
stores the value, its checksum is computed; if it stores decoded fields, they are compared with the decoded record.
Unreadable table files, and rows whose records are damaged on all replicas, are reported; the rest is still compared.
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
"""Maximum number of findings of one kind per slice."""

MAX_OFFSET: Final = 2**63 - 1

UNREADABLE: Final = (OSError, pa.ArrowException)
"""Exceptions that pyarrow raises for a damaged or missing file."""

_COLUMN_LABELS = {TIME: "timestamp", KEY: "key", HEADERS: "headers", VALUE_CRC32C: "value"}

Int64Array = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class RowsSlice:
    """Offsets [start, end) of a partition that are in the log and have landed, and where to read them."""

    topic: str
    partition: int
    start: int
    end: int
    copies: tuple[Replica, ...]
    """Replicas to read, the most trusted first. Further replicas are read where the first one is damaged."""
    is_compacted: bool
    table: TableFiles
    dead_letters: TableFiles | None
    beyond: int | None
    """In a partition's last slice: the table's next offset, from which on it must have no rows."""


@dataclass(frozen=True, slots=True)
class RowsCompared:
    """The result of comparing one slice."""

    findings: tuple[Finding, ...]
    rows: int
    gone: tuple[str, ...] = ()
    """Missing files. They are findings if the table still references them; otherwise the table has changed and must be
    compared again."""


def compare_all_rows(slices: Sequence[RowsSlice]) -> list[RowsCompared]:
    return [compare_rows(each) for each in slices]


def compare_rows(slice: RowsSlice) -> RowsCompared:
    table = _read_rows(slice, slice.table, slice.end if slice.beyond is None else MAX_OFFSET)
    dead = _read_rows(slice, slice.dead_letters, slice.end)
    unread = [*table.unread, *dead.unread]
    fields = None if table.fields is None else FieldsCheck(slice.partition, slice.table.schema, table.fields)
    log = read_log(slice.topic, slice.partition, slice.start, slice.end, slice.copies, slice.is_compacted, fields)
    found = _SliceComparison(slice, log, table.rows, dead.rows, unread, fields)
    gone = tuple(each.path for each in unread if each.is_missing)
    return RowsCompared(tuple(found.findings()), table.rows.num_rows + dead.rows.num_rows, gone)


# Reading the table


class _UnreadableFile(NamedTuple):
    file: LiveFile
    path: str
    message: str
    is_missing: bool


class _TableRows(NamedTuple):
    rows: pa.Table
    """Rows sorted by offset. If a value does not match its stored checksum, the row has the actual checksum."""
    unread: list[_UnreadableFile]
    fields: pa.Table | None = None
    """The decoded fields sorted by offset, if the table is decoded."""


def _read_rows(slice: RowsSlice, table: TableFiles | None, end: int) -> _TableRows:
    if table is None:
        return _TableRows(ROWS.empty_table(), [])
    where = (pc.field(PARTITION) == slice.partition) & (pc.field(OFFSET) >= slice.start) & (pc.field(OFFSET) < end)
    try:
        return _build_table_rows(table, _scan_batches(table, where), [])
    except UNREADABLE:
        return _read_rows_by_file(table, where)


def _read_rows_by_file(table: TableFiles, where: Any) -> _TableRows:
    """Read the table file by file, to find out which files cannot be read."""
    batches: list[pa.RecordBatch] = []
    unread: list[_UnreadableFile] = []
    for file in table.files:
        path = table.storage.full_path(file.path)
        try:
            batches += _scan_batches(table.with_files(file), where)
        except FileNotFoundError:
            unread.append(_UnreadableFile(file, path, "the table file does not exist", is_missing=True))
        except UNREADABLE as error:
            message = f"the table file cannot be read: {first_line(error)}"
            unread.append(_UnreadableFile(file, path, message, is_missing=False))
    return _build_table_rows(table, batches, unread)


def _scan_batches(table: TableFiles, where: Any) -> list[pa.RecordBatch]:
    columns = [OFFSET, TIMESTAMP, TIMESTAMP_MS, KEY, HEADERS, VALUE_CRC32C]
    columns += [VALUE] * (VALUE in table.schema.names)
    columns += field_names(table.schema)
    return [batch for batch in scan(table, columns, where) if batch.num_rows]


def _build_table_rows(table: TableFiles, batches: list[pa.RecordBatch], unread: list[_UnreadableFile]) -> _TableRows:
    rows = pa.Table.from_batches([_to_rows(batch) for batch in batches], ROWS).sort_by(OFFSET)
    names = field_names(table.schema)
    if not names or not batches:
        return _TableRows(rows, unread)
    fields = pa.Table.from_batches(batches).select([OFFSET, *names])
    order = pc.sort_indices(fields, sort_keys=[(OFFSET, "ascending")])
    return _TableRows(rows, unread, fields.take(order))


def _to_rows(batch: pa.RecordBatch) -> pa.RecordBatch:
    found = pa.Table.from_batches([batch])
    crcs = batch.column(VALUE_CRC32C)
    if VALUE in batch.schema.names:
        crcs = value_crcs(batch.column(VALUE))
    times = timestamps_ms_of(found).combine_chunks()
    arrays = [batch.column(OFFSET), times, batch.column(KEY), batch.column(HEADERS), crcs]
    cast = [_cast(array, field.type) for array, field in zip(arrays, ROWS, strict=True)]
    return pa.RecordBatch.from_arrays(cast, schema=ROWS)


def _cast(array: Any, kind: pa.DataType) -> pa.Array:
    flat = array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
    return flat if flat.type == kind else flat.cast(kind)


# Comparing


class _SliceComparison:
    def __init__(
        self,
        slice: RowsSlice,
        log: Log,
        table: pa.Table,
        dead: pa.Table,
        unread: Sequence[_UnreadableFile],
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
            yield Finding(Kind.TABLE_FILE, each.message, slice.topic, file=each.path)
        records, rows, dead = _offsets(log.rows), _offsets(self._table), _offsets(self._dead)
        yield from self._find_duplicate_rows(rows)
        landed = np.union1d(rows, dead)
        yield from self._find_lost_rows(np.setdiff1d(records[records >= log.start], landed))
        verifiable = landed[(landed >= log.start) & (landed < log.reached)]
        for first, end in log.unreadable:
            yield from self._find_unverifiable_rows(verifiable[(verifiable >= first) & (verifiable < end)])
            verifiable = verifiable[(verifiable < first) | (verifiable >= end)]
        if not slice.is_compacted:
            yield from self._find_foreign_rows(np.setdiff1d(verifiable, records), "no record has this offset")
        if slice.beyond is not None:
            message = f"the table has this row, although its next offset is {slice.beyond}"
            yield from self._find_foreign_rows(rows[rows >= slice.beyond], message)
        yield from self._find_different_rows(self._table, slice.table)
        yield from self._find_different_fields()
        if slice.dead_letters is not None:
            yield from self._find_different_rows(self._dead, slice.dead_letters)

    def _finding(self, kind: Kind, offset: int, message: str, file: str | None, end: int | None = None) -> Finding:
        slice = self._slice
        return Finding(kind, message, slice.topic, slice.partition, offset=offset, end_offset=end, file=file)

    def _find_lost_rows(self, offsets: Int64Array) -> Iterator[Finding]:
        for each in self._unread:  # an unreadable file may hold the rows
            lowest, highest = each.file.offsets
            offsets = offsets[(offsets < lowest) | (offsets > highest)]
        for first, end in list(_consecutive_ranges(offsets))[:FINDINGS_MAX]:
            where = next((each for each in self._log.batches if each.first <= first < each.end), None)
            source = "" if where is None else f" (in the log: {where.file}, batch at byte {where.position})"
            what = f"the record at offset {first} has" if end - first == 1 else f"records {first} to {end - 1} have"
            message = f"{what} no row{source}"
            yield self._finding(Kind.LOST_ROW, first, message, self._slice.table.uri, end)

    def _find_duplicate_rows(self, rows: Int64Array) -> Iterator[Finding]:
        doubled, counts = np.unique(rows, return_counts=True)
        for offset, count in list(zip(doubled.tolist(), counts.tolist(), strict=True)):
            if count > 1:
                files = self._files_containing(self._slice.table, offset)
                message = f"{counted(count, 'row')} for the record at offset {offset}"
                yield self._finding(Kind.DUPLICATE_ROW, offset, message, ", ".join(files))

    def _find_foreign_rows(self, offsets: Int64Array, message: str) -> Iterator[Finding]:
        for offset in offsets[:FINDINGS_MAX].tolist():
            slice = self._slice
            files = self._files_containing(slice.table, offset) or self._files_containing(slice.dead_letters, offset)
            yield self._finding(Kind.FOREIGN_ROW, offset, message, ", ".join(files))

    def _find_unverifiable_rows(self, offsets: Int64Array) -> Iterator[Finding]:
        for first, end in list(_consecutive_ranges(offsets))[:FINDINGS_MAX]:
            what = f"the row at offset {first}" if end - first == 1 else f"rows {first} to {end - 1}"
            message = f"cannot verify {what}: the records are damaged on all replicas"
            yield self._finding(Kind.UNJUDGED_ROW, first, message, self._slice.table.uri, end)

    def _find_different_fields(self) -> Iterator[Finding]:
        different = {} if self._fields is None else self._fields.different
        for offset, name in list(different.items())[:FINDINGS_MAX]:
            message = f"column {name} of the row at offset {offset} differs from the value of its record"
            files = ", ".join(self._files_containing(self._slice.table, offset))
            yield self._finding(Kind.DIFFERENT_ROW, offset, message, files)

    def _find_different_rows(self, table: pa.Table, source: TableFiles) -> Iterator[Finding]:
        offsets, records = _offsets(table), _offsets(self._log.rows)
        _, here, there = np.intersect1d(offsets, records, return_indices=True)
        rows, expected = table.take(pa.array(here)), self._log.rows.take(pa.array(there))
        reported = 0
        for name, label in _COLUMN_LABELS.items():
            for row in unequal_rows(rows[name], expected[name]):
                offset = rows[OFFSET][row].as_py()
                reported += 1
                if reported <= FINDINGS_MAX:
                    message = f"the {label} of the row at offset {offset} differs from its record"
                    files = ", ".join(self._files_containing(source, offset))
                    yield self._finding(Kind.DIFFERENT_ROW, offset, message, files)

    def _files_containing(self, table: TableFiles | None, offset: int) -> list[str]:
        if table is None:
            return []
        where = (pc.field(PARTITION) == self._slice.partition) & (pc.field(OFFSET) == offset)
        candidates = table.that_may_hold(self._slice.partition, offset, offset + 1).files
        return [table.storage.full_path(file.path) for file in candidates if _has_rows(table.with_files(file), where)]


def _has_rows(table: TableFiles, where: Any) -> bool:
    """Return whether a file has matching rows; False if it cannot be read, which is reported separately."""
    try:
        return any(batch.num_rows for batch in scan(table, [OFFSET], where))
    except UNREADABLE:
        return False


def _offsets(rows: pa.Table) -> Int64Array:
    found: Int64Array = rows[OFFSET].to_numpy()
    return found


def _consecutive_ranges(offsets: Int64Array) -> Iterator[tuple[int, int]]:
    """Yield ranges [first, end) of consecutive offsets."""
    if not len(offsets):
        return
    breaks = np.flatnonzero(np.diff(offsets) > 1)
    for first, last in zip([0, *(breaks + 1)], [*breaks, len(offsets) - 1], strict=True):
        yield int(offsets[first]), int(offsets[last]) + 1

"""Comparison of a slice of a partition's log with its table: the task side.

Compared are offset, key, timestamp, headers and the checksum of the value, which decoded tables store too. If the table
stores the value, its checksum is computed; if it stores decoded fields, they are compared with the decoded record.
Unreadable table files, and rows whose records are damaged on all replicas, are reported; the rest is still compared.

Rows of the log are read from the most trusted replica, or from another where it is damaged. Each value is decoded as
landing does and compared with its row. If a column differs, the row is compared as a whole: a row that landed before a
column was added has the field in `_rescued`, or nowhere if it was null. The row is correct if all its fields together
equal the value.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from chronik.errors import ConfigError
from chronik.formats.registry_client import RegistryRequestError, RegistryUnavailableError
from chronik.pipeline.audit.batch_scanner import BatchScanner, CheckedBatch, ScanEvent, decode_valid_batches
from chronik.pipeline.audit.data_directories import AuditInputError
from chronik.pipeline.audit.findings import Finding, FindingKind, ReplicaId, extract_first_error_line
from chronik.pipeline.audit.partition_plan import AuditedReplica
from chronik.pipeline.records.columns import HEADERS_TYPE, RecordColumns
from chronik.pipeline.source.segment_transport import AbortedTransactionRange, find_aborted_transactions
from chronik.pipeline.tables.layout import (
    ERROR,
    HEADERS,
    KEY,
    KEY_VALUE,
    OFFSET,
    PARTITION,
    RESCUED,
    TIMESTAMP,
    TIMESTAMP_MS,
    VALUE,
    VALUE_CRC32C,
    VALUE_SCHEMA,
    compute_value_checksums,
    is_system_column,
    list_value_fields,
    restore_timestamps_ms,
    system_columns,
)
from chronik.pipeline.tables.storage_errors import TableStorageError
from chronik.pipeline.tables.table_files import LiveFile, TableDescriptor, TableFiles, scan
from chronik.pipeline.tables.values.exact_json import decode_exact_json
from chronik.pipeline.tables.values.record_rebuild import restore_value
from chronik.pipeline.tables.values.table_schema import TableSchema
from chronik.wording import pluralize

TIMESTAMP_COLUMN: Final = "timestamp"
ROWS_SCHEMA: Final = pa.schema(
    [
        pa.field(OFFSET, pa.int64()),
        pa.field(TIMESTAMP_COLUMN, pa.int64()),
        pa.field(KEY, pa.binary()),
        pa.field(HEADERS, HEADERS_TYPE),
        pa.field(VALUE_CRC32C, pa.int64()),
    ]
)

FINDINGS_MAX: Final = 20
"""Maximum number of findings of each kind that the comparison of one row slice reports."""

MAX_OFFSET: Final = 2**63 - 1

READ_ERRORS: Final = (OSError, pa.ArrowException)
"""Exceptions that pyarrow raises for a damaged or missing file."""

_COLUMN_LABELS = {TIMESTAMP_COLUMN: "timestamp", KEY: "key", HEADERS: "headers", VALUE_CRC32C: "value"}

Int64Array = npt.NDArray[np.int64]


def list_decoded_columns(schema: pa.Schema) -> list[str]:
    """Return the names of the columns with decoded fields; none if the table stores undecoded values."""
    if RESCUED not in schema.names:
        return []
    typed = [
        name for name in (KEY_VALUE, VALUE_SCHEMA) if name in schema.names and is_system_column(schema.field(name))
    ]
    return [RESCUED, *typed, *(field.name for field in list_value_fields(schema))]


class DecodedFieldCheck:
    """A check that the decoded fields of table rows match the log's records, which are passed in batch by batch."""

    def __init__(self, partition: int, table: TableDescriptor, rows: pa.Table) -> None:
        """Create a check of `rows`, a table of offsets and decoded fields, sorted by offset."""
        self._partition = partition
        self._schema = table.schema
        self._table = table
        self._decoder = table.row_decoder()
        self._earlier_schemas = (table.value_schema, *table.earlier_schemas)
        self._rows = rows
        self._offsets = rows[OFFSET].to_numpy()
        self.mismatches: dict[int, str] = {}
        """Name of the first differing column of each mismatching row, by offset."""

    def check_records(self, records: RecordColumns) -> None:
        assert records.value is not None, "values are read"
        positions = records.offset.to_numpy()
        for decoded in self._decoder.decode_records(self._partition, records):
            if self._table.format.needs_registry and decoded.dead_letters is not None:
                self._check_undecodable_records(records, decoded.dead_letters)
            offsets = decoded.rows[OFFSET].to_numpy()
            _, here, there = np.intersect1d(offsets, self._offsets, return_indices=True)
            rows = self._rows.take(pa.array(there))
            for name in list_decoded_columns(self._schema):
                expected = pa.chunked_array([decoded.rows[name].take(pa.array(here))])
                for row in find_unequal_rows(rows[name], expected):
                    offset = rows[OFFSET][row].as_py()
                    position = int(np.searchsorted(positions, offset))
                    record = RecordColumns(*(None if each is None else each.slice(position, 1) for each in records))
                    if offset not in self.mismatches and not self._is_explained_by_schema_change(
                        name, rows.slice(row, 1), system_columns(self._partition, record)
                    ):
                        self.mismatches[offset] = name

    def _check_undecodable_records(self, records: RecordColumns, undecodable: Mapping[str, pa.Array]) -> None:
        """Raise RegistryRequestError if a row in the table is of a record that the registry's schemas do not decode.

        Such a row cannot be verified: the registry is not the one of the writers, or it has lost their schema.
        """
        offsets = undecodable[OFFSET].to_numpy()
        for offset in np.intersect1d(offsets, self._offsets):
            row = self._rows.slice(int(np.searchsorted(self._offsets, offset)), 1)
            position = int(np.searchsorted(records.offset.to_numpy(), offset))
            record = RecordColumns(*(None if each is None else each.slice(position, 1) for each in records))
            columns = system_columns(self._partition, record)
            if not any(self._is_decoded_by_schema(schema, row, columns) for schema in self._earlier_schemas):
                reason = undecodable[ERROR][int(np.flatnonzero(offsets == offset)[0])].as_py()
                problem = f"the record at offset {offset} cannot be decoded as it was: {reason}"
                raise RegistryRequestError(f"{problem}; --registry selects the registry of the writers")

    def _is_explained_by_schema_change(self, name: str, row: pa.Table, record: Mapping[str, pa.Array]) -> bool:
        """Return whether a row is correct although the current schema would decode the record differently."""
        if name == KEY_VALUE:  # the column or some of its fields were added later
            (expected,) = self._decoder.decode_rows(record).rows[KEY_VALUE].to_pylist()
            return _is_part_of(row[name][0].as_py(), expected)
        return self._restores_value(row, record) or any(
            self._is_decoded_by_schema(schema, row, record) for schema in self._earlier_schemas
        )

    def _restores_value(self, row: pa.Table, record: Mapping[str, pa.Array]) -> bool:
        """Return whether a row's columns and its `_rescued` value together contain the record's complete value."""
        try:
            restored = restore_value(row, self._table.value_schema)
        except (msgspec.DecodeError, UnicodeError):
            return False
        (expected,) = self._decoder.iter_objects(record)
        return expected is not None and bool(_strip_null_fields(restored) == _strip_null_fields(expected))

    def _is_decoded_by_schema(self, schema: TableSchema, row: pa.Table, record: Mapping[str, pa.Array]) -> bool:
        """Return whether a version of the schema decodes the record to the row.

        If the schema drops, converts or adds values, a column that is null in the row may have been added later.
        """
        table = replace(self._table, value_schema=schema, schema=schema.to_arrow(self._schema))
        decoded = table.row_decoder().decode_rows(record)
        if decoded.dead_letters is not None:
            return False
        for name in list_decoded_columns(self._schema):
            found, expected = row[name][0].as_py(), decoded.rows[name][0].as_py()
            if name == RESCUED:
                found, expected = _parse_rescued(found), _parse_rescued(expected)
            if found != expected and not (schema.is_lossy and found is None):
                return False
        return True


def _parse_rescued(text: str | None) -> Any:
    """Return the content of `_rescued`, whose keys may be in any order."""
    try:
        return None if text is None else decode_exact_json(text.encode())
    except (msgspec.DecodeError, UnicodeError):
        return text


def _strip_null_fields(value: Any) -> Any:
    """Return a decoded value without null fields, because a null column may stand for a field that is missing."""
    if isinstance(value, dict):
        return {name: _strip_null_fields(each) for name, each in value.items() if each is not None}
    if isinstance(value, list):
        return [_strip_null_fields(each) for each in value]
    return value


def _is_part_of(stored: Any, expected: Any) -> bool:
    """Return whether a value equals the expected one except for fields that are null."""
    if stored is None:
        return True
    if isinstance(stored, dict) and isinstance(expected, dict):
        return all(_is_part_of(value, expected.get(name)) for name, value in stored.items())
    return bool(stored == expected) or (stored != stored and expected != expected)  # NaN


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


class BatchLocation(NamedTuple):
    """The location of a batch in a segment file."""

    first: int
    end: int
    file: str
    position: int


class LogRows(NamedTuple):
    """The rows of a range of offsets, as read from the log."""

    start: int
    """The log start offset, or the range's start if that is higher."""
    end: int
    rows: pa.Table
    unreadable: list[tuple[int, int]]
    """Offset ranges that are unreadable on all replicas."""
    batches: list[BatchLocation]


class _LogRange(NamedTuple):
    topic: str
    partition: int
    start: int
    end: int
    is_compacted: bool


def read_log_rows(
    topic: str,
    partition: int,
    start: int,
    end: int,
    replicas: Sequence[AuditedReplica],
    is_compacted: bool,
    fields: DecodedFieldCheck | None = None,
) -> LogRows:
    """Read an offset range of the log as table rows, using other replicas where the first replica is damaged.

    `fields` checks the value of each record while it is read, since values are not retained.
    """
    log = _read_replica(_LogRange(topic, partition, start, end, is_compacted), replicas[0], fields)
    for replica in replicas[1:]:
        if log.unreadable:
            log = _fill_unreadable_gaps(log, _LogRange(topic, partition, start, end, is_compacted), replica, fields)
    return log


def _fill_unreadable_gaps(
    log: LogRows, offsets: _LogRange, replica: AuditedReplica, fields: DecodedFieldCheck | None
) -> LogRows:
    rows, unreadable, batches = [log.rows], [], list(log.batches)
    for first, end in log.unreadable:
        found = _read_replica(
            offsets._replace(start=max(first, offsets.start), end=min(end, offsets.end)), replica, fields
        )
        rows.append(found.rows)
        unreadable += found.unreadable
        batches += found.batches
    return log._replace(rows=pa.concat_tables(rows).sort_by(OFFSET), unreadable=unreadable, batches=batches)


def _read_replica(offsets: _LogRange, replica: AuditedReplica, fields: DecodedFieldCheck | None) -> LogRows:
    replica_id = ReplicaId(offsets.topic, offsets.partition, replica.node)
    scanner = BatchScanner(
        replica.directory,
        replica_id,
        offsets.start,
        offsets.end,
        offsets.is_compacted,
        is_last=False,
        must_reach_end=False,
    )
    batches: list[BatchLocation] = []
    rows: list[pa.RecordBatch] = []
    unreadable: list[tuple[int, int]] = []
    for each in decode_valid_batches(
        _filter_visible_batches(scanner, offsets, replica, batches), replica_id, offsets.start, offsets.end
    ):
        if isinstance(each, Finding):
            if each.offset is not None:
                unreadable.append((each.offset, each.end_offset or each.offset + 1))
        else:
            rows.append(_convert_records_to_rows(each))
            if fields is not None:
                fields.check_records(each)
    return LogRows(
        scanner.start,
        min(scanner.next_offset, offsets.end),
        pa.Table.from_batches(rows, ROWS_SCHEMA),
        unreadable,
        batches,
    )


def _convert_records_to_rows(records: RecordColumns) -> pa.RecordBatch:
    arrays = [
        records.offset,
        records.timestamp_ms,
        records.key,
        records.headers,
        compute_value_checksums(records.value),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=ROWS_SCHEMA)


def _filter_visible_batches(
    scanner: Iterable[ScanEvent], offsets: _LogRange, replica: AuditedReplica, batches: list[BatchLocation]
) -> Iterator[ScanEvent]:
    """Yield scan events except control batches and aborted transactions, which are not written to tables."""
    aborted: tuple[AbortedTransactionRange, ...] | None = None
    for event in scanner:
        if not isinstance(event, CheckedBatch):
            yield event
            continue
        header = event.header
        if header.is_transactional and aborted is None:
            aborted = find_aborted_transactions(Path(replica.directory), offsets.start, offsets.end)
        if header.is_control or _is_aborted_batch(event, aborted or ()):
            continue
        batches.append(BatchLocation(header.base_offset, header.next_offset, event.file, event.position))
        yield event


def _is_aborted_batch(batch: CheckedBatch, aborted: Iterable[AbortedTransactionRange]) -> bool:
    header = batch.header
    return header.is_transactional and any(
        each.producer_id == header.producer_id and each.first_offset <= header.base_offset < each.marker_offset
        for each in aborted
    )


@dataclass(frozen=True, slots=True)
class RowSlice:
    """A range of offsets whose log records are compared with the table rows, and the replicas and files to read."""

    topic: str
    partition: int
    start: int
    end: int
    replicas: tuple[AuditedReplica, ...]
    """Replicas to read, the most trusted first. Further replicas are read where the first one is damaged."""
    is_compacted: bool
    table: TableFiles
    dead_letters: TableFiles | None
    table_end: int | None
    """In a partition's last slice, the table's next offset: the table must have no row with this or a higher offset."""


@dataclass(frozen=True, slots=True)
class RowComparison:
    """The result of comparing one slice of a table with the log."""

    findings: tuple[Finding, ...]
    rows: int
    missing_files: tuple[str, ...] = ()
    """Table files that do not exist. They are findings if the table still references them; otherwise the table has
    changed and must be compared again."""


def compare_row_slices(slices: Sequence[RowSlice]) -> list[RowComparison]:
    return [compare_row_slice(each) for each in slices]


def compare_row_slice(slice: RowSlice) -> RowComparison:
    table = _read_rows(slice, slice.table, slice.end if slice.table_end is None else MAX_OFFSET)
    dead = _read_rows(slice, slice.dead_letters, slice.end)
    unread = [*table.unread, *dead.unread]
    fields = None if table.fields is None else DecodedFieldCheck(slice.partition, slice.table, table.fields)
    try:
        log = read_log_rows(
            slice.topic, slice.partition, slice.start, slice.end, slice.replicas, slice.is_compacted, fields
        )
    except (RegistryUnavailableError, RegistryRequestError, ConfigError) as error:
        raise AuditInputError(f"cannot audit table {slice.table.uri}: {error}") from error
    found = _SliceComparison(slice, log, table.rows, dead.rows, unread, fields)
    gone = tuple(each.path for each in unread if each.is_missing)
    return RowComparison(tuple(found.findings()), table.rows.num_rows + dead.rows.num_rows, gone)


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


def _read_rows(slice: RowSlice, table: TableFiles | None, end: int) -> _TableRows:
    if table is None:
        return _TableRows(ROWS_SCHEMA.empty_table(), [])
    where = (pc.field(PARTITION) == slice.partition) & (pc.field(OFFSET) >= slice.start) & (pc.field(OFFSET) < end)
    try:
        return _build_table_rows(table, _scan_batches(table, where), [])
    except TableStorageError as error:  # the store cannot be read, which says nothing about the files
        raise AuditInputError(f"cannot read table {table.uri}: {error}") from error
    except READ_ERRORS:
        return _read_rows_by_file(table, where)


def _read_rows_by_file(table: TableFiles, where: Any) -> _TableRows:
    """Read the table file by file to identify unreadable files."""
    batches: list[pa.RecordBatch] = []
    unread: list[_UnreadableFile] = []
    for file in table.files:
        path = table.storage.describe_path(file.path)
        try:
            batches += _scan_batches(table.with_files(file), where)
        except TableStorageError as error:
            raise AuditInputError(f"cannot read table {table.uri}: {error}") from error
        except FileNotFoundError:
            unread.append(_UnreadableFile(file, path, "the table file does not exist", is_missing=True))
        except READ_ERRORS as error:
            message = f"the table file cannot be read: {extract_first_error_line(error)}"
            unread.append(_UnreadableFile(file, path, message, is_missing=False))
    return _build_table_rows(table, batches, unread)


def _scan_batches(table: TableFiles, where: Any) -> list[pa.RecordBatch]:
    columns = [OFFSET, TIMESTAMP, TIMESTAMP_MS, KEY, HEADERS, VALUE_CRC32C]
    columns += [VALUE] * (VALUE in table.schema.names)
    columns += list_decoded_columns(table.schema)
    return [batch for batch in scan(table, columns, where) if batch.num_rows]


def _build_table_rows(table: TableFiles, batches: list[pa.RecordBatch], unread: list[_UnreadableFile]) -> _TableRows:
    rows = pa.Table.from_batches([_to_audit_rows(batch) for batch in batches], ROWS_SCHEMA).sort_by(OFFSET)
    names = list_decoded_columns(table.schema)
    if not names or not batches:
        return _TableRows(rows, unread)
    fields = pa.Table.from_batches(batches).select([OFFSET, *names])
    order = pc.sort_indices(fields, sort_keys=[(OFFSET, "ascending")])
    return _TableRows(rows, unread, fields.take(order))


def _to_audit_rows(batch: pa.RecordBatch) -> pa.RecordBatch:
    found = pa.Table.from_batches([batch])
    crcs = batch.column(VALUE_CRC32C)
    if VALUE in batch.schema.names:
        crcs = compute_value_checksums(batch.column(VALUE))
    times = restore_timestamps_ms(found).combine_chunks()
    arrays = [batch.column(OFFSET), times, batch.column(KEY), batch.column(HEADERS), crcs]
    cast = [_cast(array, field.type) for array, field in zip(arrays, ROWS_SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(cast, schema=ROWS_SCHEMA)


def _cast(array: Any, kind: pa.DataType) -> pa.Array:
    flat = array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
    return flat if flat.type == kind else flat.cast(kind)


# Comparing


class _SliceComparison:
    def __init__(
        self,
        slice: RowSlice,
        log: LogRows,
        table: pa.Table,
        dead: pa.Table,
        unread: Sequence[_UnreadableFile],
        fields: DecodedFieldCheck | None,
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
            yield Finding(FindingKind.TABLE_FILE, each.message, slice.topic, file=each.path)
        records, rows, dead = _get_offsets(log.rows), _get_offsets(self._table), _get_offsets(self._dead)
        yield from self._find_duplicate_rows(rows)
        landed = np.union1d(rows, dead)
        yield from self._find_lost_rows(np.setdiff1d(records[records >= log.start], landed))
        verifiable = landed[(landed >= log.start) & (landed < log.end)]
        for first, end in log.unreadable:
            yield from self._find_unverifiable_rows(verifiable[(verifiable >= first) & (verifiable < end)])
            verifiable = verifiable[(verifiable < first) | (verifiable >= end)]
        if not slice.is_compacted:
            yield from self._find_unexpected_rows(np.setdiff1d(verifiable, records), "no record has this offset")
        if slice.table_end is not None:
            message = f"the table has this row, although its next offset is {slice.table_end}"
            yield from self._find_unexpected_rows(rows[rows >= slice.table_end], message)
        yield from self._find_different_rows(self._table, slice.table)
        yield from self._find_different_fields()
        if slice.dead_letters is not None:
            yield from self._find_different_rows(self._dead, slice.dead_letters)

    def _build_finding(
        self, kind: FindingKind, offset: int, message: str, file: str | None, end: int | None = None
    ) -> Finding:
        slice = self._slice
        return Finding(kind, message, slice.topic, slice.partition, offset=offset, end_offset=end, file=file)

    def _find_lost_rows(self, offsets: Int64Array) -> Iterator[Finding]:
        for each in self._unread:  # an unreadable file may hold the rows
            lowest, highest = each.file.offsets
            offsets = offsets[(offsets < lowest) | (offsets > highest)]
        for first, end in list(_group_consecutive_offsets(offsets))[:FINDINGS_MAX]:
            where = next((each for each in self._log.batches if each.first <= first < each.end), None)
            source = "" if where is None else f" (in the log: {where.file}, batch at byte {where.position})"
            what = f"the record at offset {first} has" if end - first == 1 else f"records {first} to {end - 1} have"
            message = f"{what} no row{source}"
            yield self._build_finding(FindingKind.LOST_ROW, first, message, self._slice.table.uri, end)

    def _find_duplicate_rows(self, rows: Int64Array) -> Iterator[Finding]:
        doubled, counts = np.unique(rows, return_counts=True)
        for offset, count in list(zip(doubled.tolist(), counts.tolist(), strict=True)):
            if count > 1:
                files = self._find_files_containing(self._slice.table, offset)
                message = f"{pluralize(count, 'row')} for the record at offset {offset}"
                yield self._build_finding(FindingKind.DUPLICATE_ROW, offset, message, ", ".join(files))

    def _find_unexpected_rows(self, offsets: Int64Array, message: str) -> Iterator[Finding]:
        for offset in offsets[:FINDINGS_MAX].tolist():
            slice = self._slice
            files = self._find_files_containing(slice.table, offset) or self._find_files_containing(
                slice.dead_letters, offset
            )
            yield self._build_finding(FindingKind.FOREIGN_ROW, offset, message, ", ".join(files))

    def _find_unverifiable_rows(self, offsets: Int64Array) -> Iterator[Finding]:
        for first, end in list(_group_consecutive_offsets(offsets))[:FINDINGS_MAX]:
            what = f"the row at offset {first}" if end - first == 1 else f"rows {first} to {end - 1}"
            message = f"cannot verify {what}: the records are damaged on all replicas"
            yield self._build_finding(FindingKind.UNJUDGED_ROW, first, message, self._slice.table.uri, end)

    def _find_different_fields(self) -> Iterator[Finding]:
        different = {} if self._fields is None else self._fields.mismatches
        for offset, name in list(different.items())[:FINDINGS_MAX]:
            side = "key" if name == KEY_VALUE else "value"
            message = f"column {name} of the row at offset {offset} differs from the {side} of its record"
            files = ", ".join(self._find_files_containing(self._slice.table, offset))
            yield self._build_finding(FindingKind.DIFFERENT_ROW, offset, message, files)

    def _find_different_rows(self, table: pa.Table, source: TableFiles) -> Iterator[Finding]:
        offsets, records = _get_offsets(table), _get_offsets(self._log.rows)
        _, here, there = np.intersect1d(offsets, records, return_indices=True)
        rows, expected = table.take(pa.array(here)), self._log.rows.take(pa.array(there))
        reported = 0
        for name, label in _COLUMN_LABELS.items():
            for row in find_unequal_rows(rows[name], expected[name]):
                offset = rows[OFFSET][row].as_py()
                reported += 1
                if reported <= FINDINGS_MAX:
                    message = f"the {label} of the row at offset {offset} differs from its record"
                    files = ", ".join(self._find_files_containing(source, offset))
                    yield self._build_finding(FindingKind.DIFFERENT_ROW, offset, message, files)

    def _find_files_containing(self, table: TableFiles | None, offset: int) -> list[str]:
        if table is None:
            return []
        where = (pc.field(PARTITION) == self._slice.partition) & (pc.field(OFFSET) == offset)
        candidates = table.select_overlapping_files(self._slice.partition, offset, offset + 1).files
        storage = table.storage
        return [
            storage.describe_path(file.path) for file in candidates if _file_has_rows(table.with_files(file), where)
        ]


def _file_has_rows(table: TableFiles, where: Any) -> bool:
    """Return whether a file has matching rows. An unreadable file, which is reported separately, has none."""
    try:
        return any(batch.num_rows for batch in scan(table, [OFFSET], where))
    except READ_ERRORS:
        return False


def _get_offsets(rows: pa.Table) -> Int64Array:
    found: Int64Array = rows[OFFSET].to_numpy()
    return found


def _group_consecutive_offsets(offsets: Int64Array) -> Iterator[tuple[int, int]]:
    """Yield ranges [first, end) of consecutive offsets."""
    if not len(offsets):
        return
    breaks = np.flatnonzero(np.diff(offsets) > 1)
    for first, last in zip([0, *(breaks + 1)], [*breaks, len(offsets) - 1], strict=True):
        yield int(offsets[first]), int(offsets[last]) + 1

"""Rows read from the log for a range of offsets: from the most trusted replica, or another where it is damaged."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa

from chronik.pipeline.audit.findings import Finding, ReplicaId
from chronik.pipeline.audit.logs.batch_decoder import decode_valid_batches
from chronik.pipeline.audit.logs.batch_scanner import BatchScanner, CheckedBatch, ScanEvent
from chronik.pipeline.audit.partition_plan import AuditedReplica
from chronik.pipeline.audit.rows.field_check import DecodedFieldCheck
from chronik.pipeline.records.columns import HEADERS_TYPE, RecordColumns
from chronik.pipeline.source.segment_transport import AbortedTransactionRange, find_aborted_transactions
from chronik.pipeline.tables.layout import HEADERS, KEY, OFFSET, VALUE_CRC32C, value_checksums

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
    """Ranges of offsets that no replica could provide."""
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
    """Read a range of offsets as rows from the log. `fields` checks each record, since values are not kept."""
    log = _read_replica(_LogRange(topic, partition, start, end, is_compacted), replicas[0], fields)
    for replica in replicas[1:]:
        if log.unreadable:
            log = _fill_gaps(log, _LogRange(topic, partition, start, end, is_compacted), replica, fields)
    return log


def _fill_gaps(log: LogRows, offsets: _LogRange, replica: AuditedReplica, fields: DecodedFieldCheck | None) -> LogRows:
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
        _filter_visible(scanner, offsets, replica, batches), replica_id, offsets.start, offsets.end
    ):
        if isinstance(each, Finding):
            if each.offset is not None:
                unreadable.append((each.offset, each.end_offset or each.offset + 1))
        else:
            rows.append(_to_rows(each))
            if fields is not None:
                fields.check_records(each)
    return LogRows(
        scanner.start,
        min(scanner.next_offset, offsets.end),
        pa.Table.from_batches(rows, ROWS_SCHEMA),
        unreadable,
        batches,
    )


def _to_rows(records: RecordColumns) -> pa.RecordBatch:
    arrays = [records.offset, records.timestamp_ms, records.key, records.headers, value_checksums(records.value)]
    return pa.RecordBatch.from_arrays(arrays, schema=ROWS_SCHEMA)


def _filter_visible(
    scanner: Iterable[ScanEvent], offsets: _LogRange, replica: AuditedReplica, batches: list[BatchLocation]
) -> Iterator[ScanEvent]:
    """Yield the events of the scan without control batches and batches of aborted transactions, which do not land."""
    aborted: tuple[AbortedTransactionRange, ...] | None = None
    for event in scanner:
        if not isinstance(event, CheckedBatch):
            yield event
            continue
        header = event.header
        if header.is_transactional and aborted is None:
            aborted = find_aborted_transactions(Path(replica.directory), offsets.start, offsets.end)
        if header.is_control or _is_aborted(event, aborted or ()):
            continue
        batches.append(BatchLocation(header.base_offset, header.next_offset, event.file, event.position))
        yield event


def _is_aborted(batch: CheckedBatch, aborted: Iterable[AbortedTransactionRange]) -> bool:
    header = batch.header
    return header.is_transactional and any(
        each.producer_id == header.producer_id and each.first_offset <= header.base_offset < each.marker_offset
        for each in aborted
    )

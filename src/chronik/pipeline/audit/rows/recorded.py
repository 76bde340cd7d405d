"""What the log holds of a stretch of a partition, as rows: from the replica that is trusted most, and from others where
it is damaged. (That replicas are the same is looked at elsewhere.)"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa

from chronik.pipeline.audit.findings import Finding, Place
from chronik.pipeline.audit.logs.records import readable_records
from chronik.pipeline.audit.logs.walk import Batch, Event, Walk
from chronik.pipeline.audit.rows.fields import FieldsCheck
from chronik.pipeline.audit.standing import Replica
from chronik.pipeline.reading.segments import AbortedSpan, aborted_transactions
from chronik.pipeline.records.columns import HEADERS_TYPE, Columns
from chronik.pipeline.tables.layout import HEADERS, KEY, OFFSET, VALUE_CRC32C, value_crcs

TIME: Final = "timestamp"
ROWS: Final = pa.schema(
    [
        pa.field(OFFSET, pa.int64()),
        pa.field(TIME, pa.int64()),
        pa.field(KEY, pa.binary()),
        pa.field(HEADERS, HEADERS_TYPE),
        pa.field(VALUE_CRC32C, pa.int64()),
    ]
)


class Stored(NamedTuple):
    first: int
    end: int
    file: str
    position: int


class Log(NamedTuple):
    start: int
    """Where the log begins by now."""
    reached: int
    rows: pa.Table
    unreadable: list[tuple[int, int]]
    """Offsets that the log ought to have and no replica gives."""
    batches: list[Stored]


class _Stretch(NamedTuple):
    topic: str
    partition: int
    start: int
    end: int
    is_compacted: bool


def read_log(
    topic: str,
    partition: int,
    start: int,
    end: int,
    copies: Sequence[Replica],
    is_compacted: bool,
    fields: FieldsCheck | None = None,
) -> Log:
    """Reads it. `fields` is shown every record, since their values are not kept."""
    log = _read(_Stretch(topic, partition, start, end, is_compacted), copies[0], fields)
    for copy in copies[1:]:
        if log.unreadable:
            log = _with_gaps_filled(log, _Stretch(topic, partition, start, end, is_compacted), copy, fields)
    return log


def _with_gaps_filled(log: Log, stretch: _Stretch, copy: Replica, fields: FieldsCheck | None) -> Log:
    rows, unreadable, batches = [log.rows], [], list(log.batches)
    for first, end in log.unreadable:
        found = _read(stretch._replace(start=max(first, stretch.start), end=min(end, stretch.end)), copy, fields)
        rows.append(found.rows)
        unreadable += found.unreadable
        batches += found.batches
    return log._replace(rows=pa.concat_tables(rows).sort_by(OFFSET), unreadable=unreadable, batches=batches)


def _read(stretch: _Stretch, copy: Replica, fields: FieldsCheck | None) -> Log:
    place = Place(stretch.topic, stretch.partition, copy.node)
    walk = Walk(
        copy.folder, place, stretch.start, stretch.end, stretch.is_compacted, is_final=False, must_reach_end=False
    )
    batches: list[Stored] = []
    rows: list[pa.RecordBatch] = []
    unreadable: list[tuple[int, int]] = []
    for each in readable_records(_visible(walk, stretch, copy, batches), place, stretch.start, stretch.end):
        if isinstance(each, Finding):
            if each.offset is not None:
                unreadable.append((each.offset, each.end_offset or each.offset + 1))
        else:
            rows.append(_as_rows(each))
            if fields is not None:
                fields.look(each)
    return Log(walk.start, min(walk.due, stretch.end), pa.Table.from_batches(rows, ROWS), unreadable, batches)


def _as_rows(records: Columns) -> pa.RecordBatch:
    arrays = [records.offset, records.timestamp_ms, records.key, records.headers, value_crcs(records.value)]
    return pa.RecordBatch.from_arrays(arrays, schema=ROWS)


def _visible(walk: Iterable[Event], stretch: _Stretch, copy: Replica, batches: list[Stored]) -> Iterator[Event]:
    """Leaves out control batches, and what aborted transactions wrote: neither lands."""
    aborted: tuple[AbortedSpan, ...] | None = None
    for event in walk:
        if not isinstance(event, Batch):
            yield event
            continue
        header = event.header
        if header.is_transactional and aborted is None:
            aborted = aborted_transactions(Path(copy.folder), stretch.start, stretch.end)
        if header.is_control or _is_aborted(event, aborted or ()):
            continue
        batches.append(Stored(header.base_offset, header.next_offset, event.file, event.position))
        yield event


def _is_aborted(batch: Batch, aborted: Iterable[AbortedSpan]) -> bool:
    header = batch.header
    return header.is_transactional and any(
        each.producer_id == header.producer_id and each.first_offset <= header.base_offset < each.marker_offset
        for each in aborted
    )

"""Batches of a walk as columns of records, many at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from chronik.limits import MIB
from chronik.pipeline.audit.findings import Finding, Kind, Place
from chronik.pipeline.audit.logs.walk import Batch, Event
from chronik.pipeline.records.batches import StoredBatch
from chronik.pipeline.records.columns import Columns
from chronik.pipeline.records.decode import decode
from chronik.protocol.errors import CorruptRecords, KafkaError

GROUP_BYTES: Final = 4 * MIB
"""Batches that are decoded together: enough for the decoder to be fast, little enough to hold several times over."""


def readable_records(events: Iterable[Event], place: Place, start: int, end: int) -> Iterator[Columns | Finding]:
    """Yields the records from `start` to before `end`, in order, and the findings that come along.

    A batch whose checksum is wrong gives no records: what is wrong with it has been told. One whose checksum is right,
    and which cannot be read all the same, is told here."""
    group: list[Batch] = []
    group_bytes = 0
    for event in events:
        if isinstance(event, Finding):
            yield event
        elif event.is_good:
            group.append(event)
            group_bytes += len(event.data)
            if group_bytes >= GROUP_BYTES:
                yield from _decoded(group, place, start, end)
                group, group_bytes = [], 0
    yield from _decoded(group, place, start, end)


def _decoded(group: list[Batch], place: Place, start: int, end: int) -> Iterator[Columns | Finding]:
    try:
        yield from list(_columns(group, start, end))
        return
    except (CorruptRecords, KafkaError) as error:
        if len(group) == 1:
            yield _unreadable(group[0], place, error)
            return
    for batch in group:
        yield from _decoded([batch], place, start, end)


def _columns(group: list[Batch], start: int, end: int) -> Iterator[Columns]:
    """Lays them one after the other: a batch of a walk is a piece of the file's portion, which is gone by now."""
    position = 0
    stored: list[StoredBatch] = []
    for batch in group:
        size = len(batch.data)
        stored.append(StoredBatch(position, size, batch.header.last_offset, batch.header))
        position += size
    return decode(b"".join(batch.data for batch in group), stored, start, end)


def _unreadable(batch: Batch, place: Place, error: Exception) -> Finding:
    header = batch.header
    return place.finding(
        Kind.HEADER,
        f"the records of the batch with offsets {header.base_offset} to {header.last_offset} cannot be read: {error}",
        offset=header.base_offset,
        end_offset=header.next_offset,
        file=batch.file,
        position=batch.position,
    )

"""Decoding of scanned batches to record columns, many batches at a time."""

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
"""Bytes of batches that are decoded together: enough for fast decoding, with little memory."""


def readable_records(events: Iterable[Event], replica_id: Place, start: int, end: int) -> Iterator[Columns | Finding]:
    """Yield the records of [start, end) in order, and the findings among the events.

    Batches with a wrong checksum are skipped, since they are already reported. A batch that cannot be decoded although
    its checksum is correct is reported here.
    """
    group: list[Batch] = []
    group_bytes = 0
    for event in events:
        if isinstance(event, Finding):
            yield event
        elif event.is_good:
            group.append(event)
            group_bytes += len(event.data)
            if group_bytes >= GROUP_BYTES:
                yield from _decode_group(group, replica_id, start, end)
                group, group_bytes = [], 0
    yield from _decode_group(group, replica_id, start, end)


def _decode_group(group: list[Batch], replica_id: Place, start: int, end: int) -> Iterator[Columns | Finding]:
    try:
        yield from list(_decode_columns(group, start, end))
        return
    except (CorruptRecords, KafkaError) as error:
        if len(group) == 1:
            yield _undecodable_finding(group[0], replica_id, error)
            return
    for batch in group:
        yield from _decode_group([batch], replica_id, start, end)


def _decode_columns(group: list[Batch], start: int, end: int) -> Iterator[Columns]:
    """Decode batches together. Their bytes are copied, since the reader's buffer may have been reused."""
    position = 0
    stored: list[StoredBatch] = []
    for batch in group:
        size = len(batch.data)
        stored.append(StoredBatch(position, size, batch.header.last_offset, batch.header))
        position += size
    return decode(b"".join(batch.data for batch in group), stored, start, end)


def _undecodable_finding(batch: Batch, replica_id: Place, error: Exception) -> Finding:
    header = batch.header
    return replica_id.finding(
        Kind.HEADER,
        f"the records of the batch with offsets {header.base_offset} to {header.last_offset} cannot be read: {error}",
        offset=header.base_offset,
        end_offset=header.next_offset,
        file=batch.file,
        position=batch.position,
    )

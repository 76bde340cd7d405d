"""Decoding of scanned batches to record columns, many batches at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from chronik.limits import MIB
from chronik.pipeline.audit.findings import Finding, FindingKind, ReplicaId
from chronik.pipeline.audit.logs.batch_scanner import CheckedBatch, ScanEvent
from chronik.pipeline.records.batches import StoredBatch
from chronik.pipeline.records.columns import RecordColumns
from chronik.pipeline.records.decoder import decode_batches
from chronik.protocol.errors import CorruptRecords, KafkaError

GROUP_BYTES: Final = 4 * MIB
"""Bytes of batches that are decoded together: enough for fast decoding, with little memory."""


def decode_valid_batches(
    events: Iterable[ScanEvent], replica_id: ReplicaId, start: int, end: int
) -> Iterator[RecordColumns | Finding]:
    """Yield the records of [start, end) in order, and the findings among the events.

    Batches with a wrong checksum are skipped, since they are already reported. A batch that cannot be decoded although
    its checksum is correct is reported here.
    """
    group: list[CheckedBatch] = []
    group_bytes = 0
    for event in events:
        if isinstance(event, Finding):
            yield event
        elif event.is_valid:
            group.append(event)
            group_bytes += len(event.data)
            if group_bytes >= GROUP_BYTES:
                yield from _decode_group(group, replica_id, start, end)
                group, group_bytes = [], 0
    yield from _decode_group(group, replica_id, start, end)


def _decode_group(
    group: list[CheckedBatch], replica_id: ReplicaId, start: int, end: int
) -> Iterator[RecordColumns | Finding]:
    try:
        yield from list(_decode_columns(group, start, end))
        return
    except (CorruptRecords, KafkaError) as error:
        if len(group) == 1:
            yield _undecodable_finding(group[0], replica_id, error)
            return
    for batch in group:
        yield from _decode_group([batch], replica_id, start, end)


def _decode_columns(group: list[CheckedBatch], start: int, end: int) -> Iterator[RecordColumns]:
    """Decode batches together. Their bytes are copied, since the reader's buffer may have been reused."""
    position = 0
    stored: list[StoredBatch] = []
    for batch in group:
        size = len(batch.data)
        stored.append(StoredBatch(position, size, batch.header.last_offset, batch.header))
        position += size
    return decode_batches(b"".join(batch.data for batch in group), stored, start, end)


def _undecodable_finding(batch: CheckedBatch, replica_id: ReplicaId, error: Exception) -> Finding:
    header = batch.header
    return replica_id.make_finding(
        FindingKind.HEADER,
        f"the records of the batch with offsets {header.base_offset} to {header.last_offset} cannot be read: {error}",
        offset=header.base_offset,
        end_offset=header.next_offset,
        file=batch.file,
        position=batch.position,
    )

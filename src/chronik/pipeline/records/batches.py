"""What a stretch of the log holds: batches of magic 2, messages of magic 0 and 1, and which of them a reader may see.

Pure: works on bytes as they came from a fetch or a segment file. A batch cut off at the end is left out.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from heapq import heapify, heappop
from typing import NamedTuple

from chronik.protocol.batch import LENGTH_END, MAGIC, MAGIC_POSITION, BatchHeader, Bytes, parse_header
from chronik.protocol.control_records import parse_marker
from chronik.protocol.errors import CorruptRecords
from chronik.protocol.records import decode_batch

_OFFSET_AND_LENGTH = struct.Struct(">qi")
_PREFIX_BYTES = MAGIC_POSITION + 1


class StoredBatch(NamedTuple):
    position: int
    size: int
    last_offset: int
    header: BatchHeader | None
    """None for a message of magic 0 or 1, which may be a wrapper of others."""


class Aborted(NamedTuple):
    """A transaction that was aborted: what this producer wrote from this offset on, up to its next abort marker."""

    first_offset: int
    producer_id: int


def stored_batches(buffer: Bytes) -> Iterator[StoredBatch]:
    """Yields all whole batches, by structure alone. Raises CorruptRecords when there is something else."""
    position, end = 0, len(buffer)
    while end - position >= _PREFIX_BYTES:
        offset, length = _OFFSET_AND_LENGTH.unpack_from(buffer, position)
        size = length + LENGTH_END
        if size < _PREFIX_BYTES:
            raise CorruptRecords(f"a batch of {size} bytes at offset {offset}")
        if size > end - position:
            return
        if buffer[position + MAGIC_POSITION] < MAGIC:
            yield StoredBatch(position, size, offset, None)
        else:
            header = parse_header(buffer, position)
            yield StoredBatch(position, size, header.last_offset, header)
        position += size


def visible_batches(
    buffer: Bytes, batches: Iterable[StoredBatch], aborted: Iterable[Aborted] = ()
) -> Iterator[StoredBatch]:
    """Yields them without control batches, and without what the aborted transactions wrote.

    `aborted` are all that begin before the last of the batches and end after the first, as a broker lists them.
    Raises CorruptRecords for a control batch that cannot be read.
    """
    waiting = [*aborted]
    heapify(waiting)
    doomed: set[int] = set()
    for batch in batches:
        header = batch.header
        if header is None:
            yield batch
            continue
        while waiting and waiting[0].first_offset <= batch.last_offset:
            doomed.add(heappop(waiting).producer_id)
        if header.is_control:
            if header.producer_id in doomed and is_abort(buffer, batch):
                doomed.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in doomed):
            yield batch


def is_abort(buffer: Bytes, batch: StoredBatch) -> bool:
    """Says whether a control batch ends an aborted transaction. Compaction may have left no record in it."""
    for record in decode_batch(buffer, batch.position):
        marker = parse_marker(record)
        if marker is not None:
            return not marker.committed
    return False

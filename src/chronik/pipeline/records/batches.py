"""Iteration over the batches in a buffer (magic 0, 1 and 2), and the filter for what a consumer may read.

The buffer comes from a Fetch response or a segment file. An incomplete batch at its end is ignored. No I/O.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from heapq import heapify, heappop
from typing import NamedTuple

from chronik.protocol.batch import LENGTH_END, MAGIC, MAGIC_POSITION, BatchHeader, Bytes, parse_header
from chronik.protocol.control_records import parse_transaction_marker
from chronik.protocol.errors import CorruptRecords
from chronik.protocol.records import decode_batch

_OFFSET_AND_LENGTH = struct.Struct(">qi")
_PREFIX_BYTES = MAGIC_POSITION + 1


class StoredBatch(NamedTuple):
    """A record batch in a buffer: its position and its header."""

    position: int
    size: int
    last_offset: int
    header: BatchHeader | None
    """The batch header; None for a message of magic 0 or 1, which may wrap other messages."""


class AbortedProducerRange(NamedTuple):
    """An aborted transaction: a producer's records from `first_offset` to its next abort marker."""

    first_offset: int
    producer_id: int


def iter_batches(buffer: Bytes) -> Iterator[StoredBatch]:
    """Yield all complete batches of a buffer without verifying checksums.

    Raises:
        CorruptRecords: The buffer holds bytes that are not a batch.
    """
    position, end = 0, len(buffer)
    while end - position >= _PREFIX_BYTES:
        offset, length = _OFFSET_AND_LENGTH.unpack_from(buffer, position)
        size = length + LENGTH_END
        if size < _PREFIX_BYTES:
            raise CorruptRecords(f"invalid batch size {size} at offset {offset}")
        if size > end - position:
            return
        if buffer[position + MAGIC_POSITION] < MAGIC:
            yield StoredBatch(position, size, offset, None)
        else:
            header = parse_header(buffer, position)
            yield StoredBatch(position, size, header.last_offset, header)
        position += size


def filter_visible_batches(
    buffer: Bytes, batches: Iterable[StoredBatch], aborted: Iterable[AbortedProducerRange] = ()
) -> Iterator[StoredBatch]:
    """Yield the batches that a consumer may read: no control batches, and no records of aborted transactions.

    `aborted` must list all transactions that start before the last batch and end after the first one, as a Fetch
    response does.

    Raises:
        CorruptRecords: A control batch cannot be decoded.
    """
    pending_aborted = [*aborted]
    heapify(pending_aborted)
    aborted_producers: set[int] = set()
    for batch in batches:
        header = batch.header
        if header is None:
            yield batch
            continue
        while pending_aborted and pending_aborted[0].first_offset <= batch.last_offset:
            aborted_producers.add(heappop(pending_aborted).producer_id)
        if header.is_control:
            if header.producer_id in aborted_producers and is_abort_marker(buffer, batch):
                aborted_producers.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in aborted_producers):
            yield batch


def is_abort_marker(buffer: Bytes, batch: StoredBatch) -> bool:
    """Return whether a control batch is an abort marker. Compaction may have removed the control record."""
    for record in decode_batch(buffer, batch.position):
        marker = parse_transaction_marker(record)
        if marker is not None:
            return not marker.is_commit
    return False

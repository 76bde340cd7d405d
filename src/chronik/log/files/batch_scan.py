"""Validation of batches, and the search for valid batches after damage. Works on bytes, without I/O.

The checksum of a batch covers its bytes from the attributes on. The 21 bytes before are validated by their values: the
base offset must continue the previous batch, the length must lead to a matching checksum, the leader epoch must match
the epoch history at that offset, and the magic must be 2.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

from chronik.crc import crc32c
from chronik.log.files.index import CorruptIndexError, SegmentIndex
from chronik.log.leader_epochs import LeaderEpochHistory
from chronik.protocol.batch import CRC_START, HEADER_BYTES, LENGTH_END, MAGIC, MAGIC_POSITION

_PREFIX = struct.Struct(">qiibIhi")  # a batch header up to its last offset delta
_unpack_prefix = _PREFIX.unpack_from
_BASE_OFFSET_AND_LENGTH = struct.Struct(">qi")

EpochLookup = Callable[[int], int]
"""A function that returns the leader epoch of the batch at an offset."""

# The search for the next valid batch is limited to this distance when the index does not help.
SEARCH_BYTES_MAX = 64 << 20


def validate_batch(buffer: memoryview, position: int, base_offset: int, epoch: int) -> tuple[int, int] | None:
    """Return the size and next offset of the batch at `position`, or None if it is invalid.

    A valid batch has the given base offset and epoch, and a correct checksum.
    """
    available = len(buffer) - position
    if available < HEADER_BYTES:
        return None
    found_offset, length, found_epoch, magic, crc, _, last_delta = _unpack_prefix(buffer, position)
    size = length + LENGTH_END
    if (
        found_offset != base_offset
        or found_epoch != epoch
        or magic != MAGIC
        or not HEADER_BYTES <= size <= available
        or last_delta < 0
        or crc32c(buffer[position + CRC_START : position + size]) != crc
    ):
        return None
    return size, base_offset + last_delta + 1


def read_declared_batch_size(buffer: memoryview, position: int) -> int:
    """Return the size that a batch's length field declares, without validation, or 0 if the field is incomplete."""
    if len(buffer) - position < LENGTH_END:
        return 0
    length: int = _BASE_OFFSET_AND_LENGTH.unpack_from(buffer, position)[1]
    return max(0, length + LENGTH_END)


class BatchBoundary(NamedTuple):
    """A known end of a batch (file position and offset), with which batches found before it are verified."""

    position: int
    offset: int


def find_next_valid_batch(
    buffer: memoryview, start: int, after_offset: int, anchor: BatchBoundary, epoch_at: EpochLookup
) -> tuple[int, int] | None:
    """Return the position and base offset of the first valid batch after damaged data, or None if there is none.

    `after_offset` is the offset that was expected at `start`.
    A batch is valid only if consecutive valid batches lead from it to the boundary, because the value of a damaged
    record may itself contain bytes that look like a batch.
    """
    magic = bytes((MAGIC,))
    data = buffer.obj if isinstance(buffer.obj, bytes) and len(buffer) == len(buffer.obj) else bytes(buffer)
    found = data.find(magic, start + 1 + MAGIC_POSITION, anchor.position)
    while found >= 0:
        position = found - MAGIC_POSITION
        base_offset, length = _BASE_OFFSET_AND_LENGTH.unpack_from(buffer, position)
        if (
            after_offset < base_offset < anchor.offset
            and HEADER_BYTES <= length + LENGTH_END <= len(buffer) - position
            and _has_valid_batches_up_to_boundary(buffer, position, base_offset, anchor, epoch_at)
        ):
            return position, base_offset
        found = data.find(magic, found + 1, anchor.position)
    return None


def _has_valid_batches_up_to_boundary(
    buffer: memoryview, position: int, offset: int, anchor: BatchBoundary, epoch_at: EpochLookup
) -> bool:
    while position < anchor.position and offset < anchor.offset:
        batch = validate_batch(buffer, position, offset, epoch_at(offset))
        if batch is None:
            return False
        size, offset = batch
        position += size
    return offset == anchor.offset


class DamagedSegment(Protocol):
    """The interface of a damaged log segment in which the next valid batch is searched."""

    size: int
    index: SegmentIndex

    def read_bytes(self, position: int, size: int) -> memoryview: ...

    def read_batch_bytes(self, position: int) -> memoryview: ...


def find_valid_batch_after(
    segment: DamagedSegment, position: int, offset: int, epochs: LeaderEpochHistory, end_offset: int
) -> tuple[int, int]:
    """Return (position, offset) of the first valid batch after damaged data, or the end of the segment."""

    def epoch_at(at: int) -> int:
        return epochs.find_epoch_at(at)[0]

    for anchor in _iter_boundaries_after(segment, position, offset, end_offset):
        if anchor.position - position > SEARCH_BYTES_MAX:
            break
        view = segment.read_bytes(position, anchor.position - position)
        found = find_next_valid_batch(
            view, 0, offset, BatchBoundary(anchor.position - position, anchor.offset), epoch_at
        )
        if found is not None:
            return position + found[0], found[1]
        if (
            validate_batch(segment.read_batch_bytes(anchor.position), 0, anchor.offset, epoch_at(anchor.offset))
            is not None
        ):
            return anchor
        position = anchor.position
    return segment.size, max(offset, end_offset)


def _iter_boundaries_after(
    segment: DamagedSegment, position: int, offset: int, end_offset: int
) -> Iterator[BatchBoundary]:
    index = segment.index
    try:
        number = index.find_entry_by_offset(offset) + 1
        while number < len(index):
            entry = index.entry(number)
            if entry.position > position:
                yield BatchBoundary(entry.position, entry.offset)
            number += 1
    except CorruptIndexError:
        pass
    yield BatchBoundary(segment.size, end_offset)

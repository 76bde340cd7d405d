"""Search for the next valid batch after damage in a segment, with the help of the index."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from chronik.log.files.batch_scan import BatchBoundary, find_next_valid_batch, validate_batch
from chronik.log.files.index import CorruptIndexError, SegmentIndex
from chronik.log.leader_epochs import LeaderEpochHistory

# The search for the next valid batch is limited to this distance when the index does not help.
SEARCH_BYTES_MAX = 64 << 20


class DamagedSegment(Protocol):
    """The parts of a segment that the search for valid batches uses."""

    size: int
    index: SegmentIndex

    def read_bytes(self, position: int, size: int) -> memoryview: ...

    def read_batch_bytes(self, position: int) -> memoryview: ...


def find_valid_batch_after(
    segment: DamagedSegment, position: int, offset: int, epochs: LeaderEpochHistory, end_offset: int
) -> tuple[int, int]:
    """Return (position, offset) of the next valid batch after damage, or the end of the segment if there is none."""

    def epoch_at(at: int) -> int:
        return epochs.epoch_at(at)[0]

    for anchor in _anchors_after(segment, position, offset, end_offset):
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


def _anchors_after(segment: DamagedSegment, position: int, offset: int, end_offset: int) -> Iterator[BatchBoundary]:
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

"""Search for the next valid batch after damage in a segment, with the help of the index."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from chronik.log.epochs import EpochHistory
from chronik.log.files.index import IndexDamaged, SegmentIndex
from chronik.log.files.scan import Anchor, batch_at, next_good

# The search for the next valid batch is limited to this distance when the index does not help.
SEARCH_BYTES_MAX = 64 << 20


class Damaged(Protocol):
    """The parts of a segment that the search for valid batches uses."""

    size: int
    index: SegmentIndex

    def view(self, position: int, size: int) -> memoryview: ...

    def view_of_batch(self, position: int) -> memoryview: ...


def next_good_after(
    segment: Damaged, position: int, offset: int, epochs: EpochHistory, end_offset: int
) -> tuple[int, int]:
    """Return (position, offset) of the next valid batch after damage, or the end of the segment if there is none."""

    def epoch_at(at: int) -> int:
        return epochs.range_at(at)[0]

    for anchor in _anchors_after(segment, position, offset, end_offset):
        if anchor.position - position > SEARCH_BYTES_MAX:
            break
        view = segment.view(position, anchor.position - position)
        found = next_good(view, 0, offset, Anchor(anchor.position - position, anchor.offset), epoch_at)
        if found is not None:
            return position + found[0], found[1]
        if batch_at(segment.view_of_batch(anchor.position), 0, anchor.offset, epoch_at(anchor.offset)) is not None:
            return anchor
        position = anchor.position
    return segment.size, max(offset, end_offset)


def _anchors_after(segment: Damaged, position: int, offset: int, end_offset: int) -> Iterator[Anchor]:
    index = segment.index
    try:
        number = index.floor_offset(offset) + 1
        while number < len(index):
            entry = index.entry(number)
            if entry.position > position:
                yield Anchor(entry.position, entry.offset)
            number += 1
    except IndexDamaged:
        pass
    yield Anchor(segment.size, end_offset)

"""Batches that were just appended and are not committed yet, as they lie in memory: what followers are about to fetch.

They were checked when they came in. Read from the file, they would be copied and checked once more for each follower.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from chronik.files import Buffer
from chronik.limits import KIB, UNCOMMITTED_BYTES_MAX

RECENT_BYTES_MAX: Final = UNCOMMITTED_BYTES_MAX
"""For all partitions of a node together. Batches that do not fit are read from their files."""

IN_PLACE_BYTES_MIN: Final = 64 * KIB
"""Smaller batches are copied: a view of a few bytes would keep a whole request in memory."""


class RecentRoom:
    """The room that the partitions of a node share."""

    __slots__ = ("bytes_left",)

    def __init__(self, bytes_max: int = RECENT_BYTES_MAX) -> None:
        self.bytes_left = bytes_max


class RecentBatches:
    """The recent batches of one partition that this node leads. They must not change while they are kept here."""

    __slots__ = ("_by_offset", "_room")

    def __init__(self, room: RecentRoom) -> None:
        self._room = room
        # (end offset, batches) in their order; created by the first batch, since most partitions are idle.
        self._by_offset: OrderedDict[int, tuple[int, Buffer]] | None = None

    def add(self, base_offset: int, end_offset: int, batches: Buffer) -> None:
        """Keeps the batches if there is room."""
        if len(batches) < IN_PLACE_BYTES_MIN:
            batches = bytes(batches)
        size = _held_bytes(batches)
        if size <= self._room.bytes_left:
            self._room.bytes_left -= size
            if self._by_offset is None:
                self._by_offset = OrderedDict()
            self._by_offset[base_offset] = (end_offset, batches)

    def read(self, offset: int, bytes_max: int) -> list[memoryview]:
        """Returns batches from `offset` on, in consecutive pieces; none when that is not kept, or does not fit."""
        pieces: list[memoryview] = []
        kept = self._by_offset
        if kept is None:
            return pieces
        small: list[Buffer] = []
        found = kept.get(offset)
        while found is not None:
            end_offset, batches = found
            bytes_max -= len(batches)
            if bytes_max < 0:
                break
            if len(batches) < IN_PLACE_BYTES_MIN:
                small.append(batches)
            else:
                _join(small, pieces)
                pieces.append(memoryview(batches))
            found = kept.get(end_offset)
        _join(small, pieces)
        return pieces

    def drop_below(self, offset: int) -> None:
        """Drops what ends at or below `offset`: a follower that still needs it is far behind."""
        kept = self._by_offset
        while kept:
            base_offset = next(iter(kept))
            end_offset, batches = kept[base_offset]
            if end_offset > offset:
                return
            del kept[base_offset]
            self._room.bytes_left += _held_bytes(batches)

    def clear(self) -> None:
        if self._by_offset:  # 10,000 partitions that begin have none
            self._room.bytes_left += sum(_held_bytes(batches) for _, batches in self._by_offset.values())
            self._by_offset.clear()


def _join(small: list[Buffer], pieces: list[memoryview]) -> None:
    if small:
        pieces.append(memoryview(b"".join(small)))
        small.clear()


def _held_bytes(batches: Buffer) -> int:
    """Counts all of the buffer that a view is of: the view keeps it in memory."""
    return memoryview(batches.obj).nbytes if isinstance(batches, memoryview) else len(batches)

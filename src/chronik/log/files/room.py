"""Room after the last batch of the active segment, reserved so that most small syncs have no new length to store.

A sync that only writes bytes waits for the disk once; one that also changes the file's length waits for the file
system's journal as well, which takes half as long again. Only the active segment may be longer than its batches, and
after a crash the room is an end of zeros, which recovery cuts off as it does whatever else is no batch.
"""

from __future__ import annotations

from chronik.limits import KIB, MIB

SMALL_SYNC_BYTES = 16 * KIB
"""Room is reserved while syncs cover no more than this. Larger ones take new blocks each time, and noting those in the
journal costs what the known length saves."""

ROOM_BYTES_MIN = 16 * KIB
ROOM_BYTES_MAX = 1 * MIB
"""Room for as much as the segment holds already, within these bounds: thousands of small topics take little disk."""


class Room:
    """How long the disk knows one segment's file to be."""

    __slots__ = ("_end",)

    def __init__(self) -> None:
        self._end = 0  # as long as nothing was synced

    def reaches_beyond(self, size: int) -> bool:
        return self._end > size

    def extended(self, size: int, size_max: int) -> int | None:
        """Returns the length to reserve before a sync of a segment of `size`, or None.

        The first sync reserves nothing: many segments never see a second. A disk that refuses is asked again after as
        much was appended as it should have reserved, not before each sync.
        """
        if size <= self._end:
            return None
        known, self._end = self._end, size
        end = min(size + min(max(size, ROOM_BYTES_MIN), ROOM_BYTES_MAX), size_max)
        if known == 0 or size - known > SMALL_SYNC_BYTES or end <= size:
            return None
        self._end = end
        return end

    def cut(self, size: int) -> None:
        """Notes that the file was cut at `size`."""
        self._end = size

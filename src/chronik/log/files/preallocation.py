"""Preallocation of file space after the last batch of the active segment, which makes small syncs faster.

A sync that only writes bytes waits for the disk once. A sync that also changes the file's length waits for the file
system's journal too, which takes 50 % longer. Only the active segment may be longer than its batches. After a crash,
the preallocated space is a tail of zeros, which recovery truncates like any other invalid tail.
"""

from __future__ import annotations

from chronik.limits import KIB, MIB

SMALL_SYNC_BYTES = 16 * KIB
"""Space is preallocated while syncs cover no more than this. Larger syncs allocate new blocks each time, and journaling
those costs as much as a known length saves."""

PREALLOCATED_BYTES_MIN = 16 * KIB
PREALLOCATED_BYTES_MAX = 1 * MIB
"""As much space is preallocated as the segment holds already, within these bounds, to save disk space with thousands of
small topics."""


class Preallocation:
    """The length of a segment's file including preallocated space."""

    __slots__ = ("_end",)

    def __init__(self) -> None:
        self._end = 0  # until the first sync

    def extends_beyond(self, size: int) -> bool:
        return self._end > size

    def next_length(self, size: int, size_max: int) -> int | None:
        """Return the length to preallocate before a sync of a segment with `size` bytes, or None.

        The first sync preallocates nothing, because many segments are synced only once. When the file system rejects
        the preallocation, the next attempt follows after as many appended bytes, not with each sync.
        """
        if size <= self._end:
            return None
        known, self._end = self._end, size
        end = min(size + min(max(size, PREALLOCATED_BYTES_MIN), PREALLOCATED_BYTES_MAX), size_max)
        if known == 0 or size - known > SMALL_SYNC_BYTES or end <= size:
            return None
        self._end = end
        return end

    def record_truncation(self, size: int) -> None:
        """Record that the file was truncated to `size`."""
        self._end = size

"""The sparse index beside a segment: every few kilobytes an entry that says which batch stands where.

An entry also holds the largest timestamp among all batches before it, so that one file serves lookups by offset and by
time. Nothing depends on it but speed: each entry has a checksum, and an index that is missing, short or damaged is
rebuilt from the segment. When a segment is closed its index gets a last entry, the seal, which names the segment's end;
an index without it is incomplete.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import NamedTuple

from chronik.crc import crc32c
from chronik.files import FileCache

# How many entries gather in memory: a small segment's index needs no file until the log is closed.
BUFFERED_ENTRIES_MAX = 64

_FIELDS = struct.Struct(">IIqI")
_CRC = struct.Struct(">I")
_ENTRY = struct.Struct(">IIqII")
ENTRY_BYTES = _ENTRY.size


class IndexDamaged(Exception):
    """An entry fails its checksum or is missing: the index has to be rebuilt."""


class IndexEntry(NamedTuple):
    offset: int
    """Base offset of the batch at `position`."""
    position: int
    max_timestamp: int
    """The largest of all batches with records before this one; -1 when there are none, or none has a time."""
    max_timestamp_offset: int
    """Base offset of the first batch that has it."""


class SegmentIndex:
    __slots__ = ("_base_offset", "_buffered", "_cache", "_stored", "path")

    def __init__(self, cache: FileCache, path: str, base_offset: int, *, is_new: bool) -> None:
        self.path = path
        self._cache = cache
        self._base_offset = base_offset
        self._stored = 0 if is_new else -1  # -1: nobody has looked yet
        self._buffered: list[IndexEntry] = []

    def __len__(self) -> int:
        return self._stored_count() + len(self._buffered)

    def adopt(self, cache: FileCache) -> None:
        self._cache = cache

    def append(self, entry: IndexEntry) -> None:
        """Adds an entry, which is visible at once and written later."""
        self._buffered.append(entry)
        if len(self._buffered) >= BUFFERED_ENTRIES_MAX:
            self.flush()

    def flush(self) -> None:
        """Writes what is buffered; it is not synced, since nothing is lost with it."""
        if not self._buffered:
            return
        stored = self._stored_count()
        entries = b"".join(self._encode(stored + n, entry) for n, entry in enumerate(self._buffered))
        self._cache.create(self.path, expendable=True).pwrite(entries, stored * ENTRY_BYTES)
        self._stored = stored + len(self._buffered)
        self._buffered = []

    def entry(self, number: int) -> IndexEntry:
        """Raises IndexDamaged."""
        stored = self._stored_count()
        if number >= stored:
            return self._buffered[number - stored]
        try:
            data = self._cache.get(self.path).pread(ENTRY_BYTES, number * ENTRY_BYTES)
        except FileNotFoundError:
            raise IndexDamaged(self.path) from None
        return self._decode(number, data)

    def last(self) -> IndexEntry | None:
        """Raises IndexDamaged."""
        count = len(self)
        return self.entry(count - 1) if count else None

    def floor_offset(self, offset: int) -> int:
        """Returns the number of the last entry not above `offset`; -1 when there is none. Raises IndexDamaged."""
        return self._last_where(lambda entry: entry.offset <= offset)

    def floor_position(self, position: int) -> int:
        """Returns the number of the last entry not after `position`; -1 when there is none. Raises IndexDamaged."""
        return self._last_where(lambda entry: entry.position <= position)

    def floor_time(self, timestamp: int) -> int:
        """Returns the number of the last entry before which all batches are older than `timestamp`; -1 when there is
        none. Raises IndexDamaged."""
        return self._last_where(lambda entry: entry.max_timestamp < timestamp)

    def keep(self, count: int) -> None:
        """Drops all entries but the first `count`, durably: entries that came back after a power cut would point into
        batches that have taken the place of the ones they were made for."""
        stored = self._stored_count()
        if count >= stored:
            del self._buffered[count - stored :]
            return
        self._buffered = []
        self._stored = count
        file = self._cache.create(self.path, expendable=True)
        file.truncate(count * ENTRY_BYTES)
        file.fdatasync()

    def _last_where(self, condition: Callable[[IndexEntry], bool]) -> int:
        low, high = 0, len(self)
        while low < high:
            middle = (low + high) // 2
            if condition(self.entry(middle)):
                low = middle + 1
            else:
                high = middle
        return low - 1

    def _stored_count(self) -> int:
        if self._stored < 0:
            try:
                self._stored = self._cache.files.size(self.path) // ENTRY_BYTES
            except FileNotFoundError:
                self._stored = 0
        return self._stored

    def _encode(self, number: int, entry: IndexEntry) -> bytes:
        base = self._base_offset
        fields = _FIELDS.pack(
            entry.offset - base, entry.position, entry.max_timestamp, max(entry.max_timestamp_offset - base, 0)
        )
        # Starting from its number, the checksum also fails for an entry in the wrong place.
        return fields + _CRC.pack(crc32c(fields, number))

    def _decode(self, number: int, data: bytes) -> IndexEntry:
        if len(data) != ENTRY_BYTES:
            raise IndexDamaged(self.path)
        offset, position, max_timestamp, max_timestamp_offset, crc = _ENTRY.unpack(data)
        if crc32c(data[: _FIELDS.size], number) != crc:
            raise IndexDamaged(self.path)
        base = self._base_offset
        return IndexEntry(base + offset, position, max_timestamp, base + max_timestamp_offset)

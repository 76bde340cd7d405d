"""The sparse index of a segment: an entry every few kilobytes that maps an offset to a file position.

An entry also holds the largest timestamp of all batches before it, so one file serves lookups by offset and by
timestamp. The index is only an optimization: each entry has a checksum, and an index that is missing, incomplete or
damaged is rebuilt from the segment. When a segment is closed, its index gets a last entry, the seal, which holds the
segment's end. An index without a seal is incomplete.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import NamedTuple

from chronik.crc import crc32c
from chronik.files import FileCache

# Entries that are buffered in memory. The index of a small segment needs no file until the log is closed.
BUFFERED_ENTRIES_MAX = 64

_FIELDS = struct.Struct(">IIqI")
_CRC = struct.Struct(">I")
_ENTRY = struct.Struct(">IIqII")
ENTRY_BYTES = _ENTRY.size


class CorruptIndexError(Exception):
    """A segment index entry is missing or fails its checksum, so the index must be rebuilt."""


class IndexEntry(NamedTuple):
    """An index entry: the offset and position of a batch, and the largest timestamp of the batches before it."""

    offset: int
    """Base offset of the batch that starts at `position`."""
    position: int
    max_timestamp: int
    """The largest timestamp of all non-empty batches before this one; -1 if there is none."""
    max_timestamp_offset: int
    """Base offset of the first batch whose largest timestamp is `max_timestamp`."""


class SegmentIndex:
    """The sparse offset and timestamp index of a segment."""

    __slots__ = ("_base_offset", "_buffered", "_cache", "_stored", "path")

    def __init__(self, cache: FileCache, path: str, base_offset: int, *, is_new: bool) -> None:
        self.path = path
        self._cache = cache
        self._base_offset = base_offset
        self._stored = 0 if is_new else -1  # -1: the file's size has not been read yet
        self._buffered: list[IndexEntry] = []

    def __len__(self) -> int:
        return self._count_stored_entries() + len(self._buffered)

    def set_cache(self, cache: FileCache) -> None:
        """Replace the file cache through which the index file is opened."""
        self._cache = cache

    def append(self, entry: IndexEntry) -> None:
        """Append an index entry in memory; `flush` writes it to the index file."""
        self._buffered.append(entry)
        if len(self._buffered) >= BUFFERED_ENTRIES_MAX:
            self.flush()

    def flush(self) -> None:
        """Write the buffered entries to the index file, without a sync, because a lost index can be rebuilt."""
        if not self._buffered:
            return
        stored = self._count_stored_entries()
        entries = b"".join(self._encode_entry(stored + n, entry) for n, entry in enumerate(self._buffered))
        self._cache.create(self.path, is_expendable=True).pwrite(entries, stored * ENTRY_BYTES)
        self._stored = stored + len(self._buffered)
        self._buffered = []

    def entry(self, number: int) -> IndexEntry:
        """Return the index entry with this number, counted from 0.

        Raises:
            CorruptIndexError: The entry is missing or damaged.
        """
        stored = self._count_stored_entries()
        if number >= stored:
            return self._buffered[number - stored]
        try:
            data = self._cache.get(self.path).pread(ENTRY_BYTES, number * ENTRY_BYTES)
        except FileNotFoundError:
            raise CorruptIndexError(self.path) from None
        return self._decode_entry(number, data)

    def last_entry(self) -> IndexEntry | None:
        """Return the last entry, or None if the index is empty.

        Raises:
            CorruptIndexError: The entry is missing or damaged.
        """
        count = len(self)
        return self.entry(count - 1) if count else None

    def find_entry_by_offset(self, offset: int) -> int:
        """Return the number of the last index entry with an offset of at most `offset`, or -1.

        Raises:
            CorruptIndexError: An entry is missing or damaged.
        """
        return self._find_last_entry(lambda entry: entry.offset <= offset)

    def find_entry_by_position(self, position: int) -> int:
        """Return the number of the last index entry with a position of at most `position`, or -1.

        Raises:
            CorruptIndexError: An entry is missing or damaged.
        """
        return self._find_last_entry(lambda entry: entry.position <= position)

    def find_entry_by_timestamp(self, timestamp: int) -> int:
        """Return the number of the last index entry before which every batch is older than `timestamp`, or -1.

        Raises:
            CorruptIndexError: An entry is missing or damaged.
        """
        return self._find_last_entry(lambda entry: entry.max_timestamp < timestamp)

    def truncate_to_entries(self, count: int) -> None:
        """Durably truncate the index to its first `count` entries.

        After a power failure, an entry that came back would point into batches written later.
        """
        stored = self._count_stored_entries()
        if count >= stored:
            del self._buffered[count - stored :]
            return
        self._buffered = []
        self._stored = count
        file = self._cache.create(self.path, is_expendable=True)
        file.truncate(count * ENTRY_BYTES)
        file.fdatasync()

    def _find_last_entry(self, condition: Callable[[IndexEntry], bool]) -> int:
        low, high = 0, len(self)
        while low < high:
            middle = (low + high) // 2
            if condition(self.entry(middle)):
                low = middle + 1
            else:
                high = middle
        return low - 1

    def _count_stored_entries(self) -> int:
        if self._stored < 0:
            try:
                self._stored = self._cache.files.size(self.path) // ENTRY_BYTES
            except FileNotFoundError:
                self._stored = 0
        return self._stored

    def _encode_entry(self, number: int, entry: IndexEntry) -> bytes:
        base = self._base_offset
        fields = _FIELDS.pack(
            entry.offset - base, entry.position, entry.max_timestamp, max(entry.max_timestamp_offset - base, 0)
        )
        # The checksum is seeded with the entry's number, so an entry at the wrong position fails too.
        return fields + _CRC.pack(crc32c(fields, number))

    def _decode_entry(self, number: int, data: bytes) -> IndexEntry:
        if len(data) != ENTRY_BYTES:
            raise CorruptIndexError(self.path)
        offset, position, max_timestamp, max_timestamp_offset, crc = _ENTRY.unpack(data)
        if crc32c(data[: _FIELDS.size], number) != crc:
            raise CorruptIndexError(self.path)
        base = self._base_offset
        return IndexEntry(base + offset, position, max_timestamp, base + max_timestamp_offset)

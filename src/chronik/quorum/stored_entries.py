"""The durable entries as the core reads them: the tail from memory, what is older from the files.

All of it runs on the event loop. The thread that writes says afterwards where it put things; until then this view
shows the log as it was, which is what the core asks for.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from typing import Final, NamedTuple

from chronik.errors import DataDamaged, invariant
from chronik.files import FileSystem
from chronik.quorum.disk_records import decode_record
from chronik.raft.entries import Entry
from chronik.wal.log import segment_path
from chronik.wal.records import record_at

CACHE_BYTES: Final = 8 * 1024 * 1024
"""Entries kept in memory: twice what may be in flight to a peer, so that a peer that keeps up, or is a moment behind,
never costs a read."""

READ_BYTES_MAX: Final = 256 * 1024
"""How much is read from files at a time: reads happen on the event loop, and this much of small entries takes 3 ms."""

_POSITION_BITS: Final = 40


class Placement(NamedTuple):
    """Where a write has put its entries: the segment, named by its first record, and each entry's position and size."""

    segment: int
    positions: Sequence[int]
    sizes: Sequence[int]


class StoredEntries:
    """Keeps twelve bytes per entry, which say where it stands; only the newest entries are kept themselves."""

    def __init__(self, files: FileSystem, folder: str, floor_index: int, cache_bytes: int = CACHE_BYTES) -> None:
        self._files = files
        self._folder = folder
        self._floor = floor_index
        self._places: array[int] = array("Q")
        """The number of the segment and the position in it, packed; they rise with the index."""
        self._sizes: array[int] = array("I")
        self._segments: list[int] = []
        self._cache: list[Entry] = []
        self._cache_bytes = 0
        self._cache_bytes_max = cache_bytes

    @property
    def floor_index(self) -> int:
        return self._floor

    @property
    def last_index(self) -> int:
        return self._floor + len(self._places)

    # ------------------------------------------------------------------------------------------------------- looking

    def entries(self, first: int, end: int, bytes_max: int) -> Sequence[Entry]:
        """See `raft.entries.Storage`. From the files there may be less than asked for, but never nothing."""
        invariant(self._floor < first < end <= self.last_index + 1, f"entries {first} to {end} are not stored")
        cached_from = self.last_index + 1 - len(self._cache)
        if first < cached_from:
            return self._read(first, min(end, cached_from), min(bytes_max, READ_BYTES_MAX))
        size = 0
        begin = first - cached_from
        for position in range(begin, end - cached_from):
            size += self._cache[position].size_bytes
            if size > bytes_max and position > begin:
                return self._cache[begin:position]
        return self._cache[begin : end - cached_from]

    def segment_of(self, index: int) -> int:
        """Returns the first record of the segment that holds the entry."""
        return self._segments[self._places[index - self._floor - 1] >> _POSITION_BITS]

    def index_keeping(self, index: int, bytes_max: int) -> int:
        """Returns how far the log may be dropped so that no more than `bytes_max` of entries up to `index` stay."""
        size = 0
        while index > self._floor:
            size += self._sizes[index - self._floor - 1]
            if size > bytes_max:
                break
            index -= 1
        return index

    # ------------------------------------------------------------------------------------------------------- changing

    def append(self, entries: Sequence[Entry], placement: Placement) -> None:
        """Adds the entries, which replace what stood at their indexes and after them."""
        first = entries[0].index
        invariant(self._floor < first <= self.last_index + 1, f"entry {first} leaves a gap after {self.last_index}")
        self.truncate_after(first - 1)
        self._place(placement)
        self._cache.extend(entries)
        self._cache_bytes += sum(entry.size_bytes for entry in entries)
        self._shrink_cache()

    def recover(self, index: int, placement: Placement) -> None:
        """Notes an entry that was found in the files; it is read again when it is wanted."""
        self.truncate_after(index - 1)
        self._place(placement)

    def truncate_after(self, index: int) -> None:
        removed = self.last_index - index
        if removed <= 0:
            return
        del self._places[-removed:]
        del self._sizes[-removed:]
        self._cache_bytes -= sum(entry.size_bytes for entry in self._cache[-removed:])
        del self._cache[-removed:]

    def compact_through(self, index: int) -> None:
        removed = index - self._floor
        del self._places[:removed]
        del self._sizes[:removed]
        self._floor = index
        if len(self._cache) > len(self._places):
            self._drop_cached(len(self._cache) - len(self._places))

    def begin_anew(self, floor_index: int) -> None:
        """Forgets all entries: a snapshot has taken the place of the log."""
        self.truncate_after(self._floor)
        self._floor = floor_index

    # -------------------------------------------------------------------------------------------------------- inside

    def _place(self, placement: Placement) -> None:
        if not self._segments or self._segments[-1] != placement.segment:
            self._segments.append(placement.segment)
        base = (len(self._segments) - 1) << _POSITION_BITS
        self._places.extend(base | position for position in placement.positions)
        self._sizes.extend(placement.sizes)

    def _shrink_cache(self) -> None:
        """Shrinks it when it is too large by an eighth: to shorten a list at its beginning costs as much as it is long,
        and so does finding out how much of it has to go."""
        limit = self._cache_bytes_max
        if self._cache_bytes <= limit + limit // 8:
            return
        count = 0
        size = self._cache_bytes
        while size > limit and count < len(self._cache) - 1:
            size -= self._cache[count].size_bytes
            count += 1
        self._drop_cached(count)

    def _drop_cached(self, count: int) -> None:
        self._cache_bytes -= sum(entry.size_bytes for entry in self._cache[:count])
        del self._cache[:count]

    def _read(self, first: int, end: int, bytes_max: int) -> list[Entry]:
        """Reads once, from one segment. Between the entries there may be others that they have replaced."""
        begin = first - self._floor - 1
        ordinal = self._places[begin] >> _POSITION_BITS
        start = self._places[begin]
        limit = min(start + bytes_max, (ordinal + 1) << _POSITION_BITS)
        stop = min(end - self._floor - 1, bisect_right(self._places, limit, begin))
        while stop - begin > 1 and self._places[stop - 1] + self._sizes[stop - 1] > limit:
            stop -= 1
        path = segment_path(self._folder, self._segments[ordinal])
        file = self._files.open(path)
        try:
            position = start & ((1 << _POSITION_BITS) - 1)
            data = memoryview(file.pread(self._places[stop - 1] + self._sizes[stop - 1] - start, position))
        finally:
            file.close()
        return [self._entry(path, data, first + i, self._places[begin + i] - start) for i in range(stop - begin)]

    def _entry(self, path: str, data: memoryview, index: int, position: int) -> Entry:
        record = record_at(data, position)
        entry = decode_record(record.payload) if record is not None else None
        if not isinstance(entry, Entry) or entry.index != index:
            raise DataDamaged(f"{path} is damaged at entry {index}")
        return entry

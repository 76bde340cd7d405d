"""The segments of a log in their order, and how they are removed and exchanged."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from chronik.errors import invariant
from chronik.files import FileCache
from chronik.log.compaction import Compaction
from chronik.log.config import LogConfig
from chronik.log.files.index import ENTRY_BYTES
from chronik.log.segment import Segment
from chronik.log.swaps import Swaps
from chronik.log.sync import Unsynced
from chronik.protocol.batch import BatchHeader
from chronik.protocol.varint import INT32_MAX


class Segments:
    """`all` holds them in order; the last one is active: it is the one that is appended to."""

    __slots__ = ("_cache", "_folder", "_unsynced", "all", "swaps")

    def __init__(self, cache: FileCache, folder: str, unsynced: Unsynced, segments: list[Segment]) -> None:
        self.all = segments
        self.swaps = Swaps(cache, folder, unsynced)
        self._cache = cache
        self._folder = folder
        self._unsynced = unsynced

    @property
    def size(self) -> int:
        return sum(segment.size for segment in self.all)

    def number_of(self, offset: int) -> int:
        """Returns the number of the segment that contains `offset`, if any does."""
        return max(0, bisect_right(self.all, offset, key=_base_offset) - 1)

    def start(self, base_offset: int) -> Segment:
        """Returns a new active segment, whose file the first append creates."""
        if not self.all:
            for parent in self._cache.files.make_folder(self._folder):
                self._unsynced.add_folder(parent)
        segment = Segment(self._cache, self._folder, base_offset)
        self.all.append(segment)
        return segment

    def is_full(self, config: LogConfig, size: int, headers: Sequence[BatchHeader], end_offset: int) -> bool:
        """Whether batches of this size, up to this offset, must go into a new segment."""
        active = self.all[-1]
        return active.size > 0 and (
            active.size + size > config.segment_bytes
            or end_offset - active.base_offset > INT32_MAX
            or _is_old(active, config, headers)
            or len(active.index) * ENTRY_BYTES >= config.segment_index_bytes
        )

    def reserve_room(self, segment_bytes: int) -> None:
        """Lets the active segment's file become longer than its batches, before a sync that is not the last one."""
        lengthened = self.all[-1].reserve_room(segment_bytes) if self.all else None
        if lengthened is not None:
            self._unsynced.add_file(lengthened)

    def release_room(self) -> None:
        """Cuts off the room of an active segment that is closed. The length of closed segments is trusted, so it must
        be durable before anything after it is acknowledged."""
        cut = self.all[-1].release_room()
        if cut is not None:
            self._unsynced.add_file(cut)

    def drop_before(self, start_offset: int, delete_delay_ms: int) -> None:
        """Removes those that end before the log starts, but never the active one."""
        number = 0
        while number < len(self.all) - 1 and self.all[number].end_offset <= start_offset:
            number += 1
        if number and self.swaps:
            self.swaps.settle(delete_delay_ms)
        self._doom(self.all[:number], delete_delay_ms)
        del self.all[:number]

    def drop_from(self, number: int, delete_delay_ms: int) -> None:
        """Removes the segment of that number and all after it."""
        self._doom(self.all[number:], delete_delay_ms)
        del self.all[number:]

    def exchange(self, compaction: Compaction) -> bool:
        """Puts compacted segments in the place of the old ones; returns False when some of those are gone by now."""
        for cleaned in compaction.results:
            first = self.number_of(cleaned.segment.base_offset)
            last = first + len(cleaned.sources)
            if self.all[first:last] != cleaned.sources:
                return False
            self.swaps.begin(cleaned.segment, cleaned.sources)
            self.all[first:last] = [cleaned.segment]
        return True

    def close(self) -> None:
        for segment in self.all:
            self._cache.forget(segment.log_path)
            self._cache.forget(segment.index.path)

    def _doom(self, segments: list[Segment], delete_delay_ms: int) -> None:
        invariant(not segments or not self.swaps, "segments are dropped while others are exchanged")
        for segment in segments:
            self._unsynced.doom(self._folder, segment.log_path, delete_delay_ms)
            self._unsynced.doom(self._folder, segment.index.path, delete_delay_ms)


def _is_old(active: Segment, config: LogConfig, headers: Sequence[BatchHeader]) -> bool:
    """Measures age by the records' own time, as Kafka does."""
    if active.first_timestamp < 0:
        return False
    age_ms = max(header.max_timestamp for header in headers) - active.first_timestamp
    return age_ms > config.segment_ms or (config.compacts and age_ms > config.max_compaction_lag_ms)


def _base_offset(segment: Segment) -> int:
    return segment.base_offset

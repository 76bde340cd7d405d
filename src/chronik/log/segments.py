"""The segments of a log, with their creation, deletion and replacement."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

import msgspec

from chronik.errors import check_invariant
from chronik.files import FileCache
from chronik.log.compaction import Compaction
from chronik.log.config import LogConfig
from chronik.log.files import names
from chronik.log.files.index import ENTRY_BYTES
from chronik.log.segment import LogSegment
from chronik.log.sync import PendingSync
from chronik.protocol.batch import BatchHeader
from chronik.protocol.varint import INT32_MAX


class SegmentSwap(msgspec.Struct, eq=False):
    """The replacement of several segments by one compacted segment, in progress."""

    segment: LogSegment
    replaced: list[LogSegment]
    steps_done: int = 1
    is_durable: bool = False
    """Whether the directory sync that is in progress makes the last step of the replacement durable."""


class SegmentSwaps:
    """The pending replacements of a log's segments by compacted segments.

    A swap replaces segments by a compacted segment. A power failure at any point leaves either the old segments or the
    new one. Each step starts when the previous step is durable:

    1. The new segment, already synced, is renamed to `<first>-<end>.swap`: from now on recovery completes the swap.
    2. The old segments are renamed and deleted.
    3. The new segment gets its final name.

    Readers use the new segment from step 1 on. The swap ends when step 3 is durable: until then the name of step 1
    could come back, so no other swap starts.
    """

    __slots__ = ("_cache", "_directory", "_swaps", "_unsynced")

    def __init__(self, cache: FileCache, directory: str, unsynced: PendingSync) -> None:
        self._cache = cache
        self._directory = directory
        self._unsynced = unsynced
        self._swaps: list[SegmentSwap] = []

    def __bool__(self) -> bool:
        return bool(self._swaps)

    def start(self, segment: LogSegment, replaced: list[LogSegment]) -> None:
        """Start to replace segments by a compacted segment, whose file is renamed to `.swap`."""
        segment.set_cache(self._cache)
        self._rename_log_file(
            segment, f"{self._directory}/{names.format_swap_file_name(segment.base_offset, segment.end_offset)}"
        )
        self._swaps.append(SegmentSwap(segment, replaced))

    def record_sync_start(self) -> None:
        """Record that a sync of the log's directory starts, which makes the last step of each segment swap durable."""
        for swap in self._swaps:
            swap.is_durable = True

    def advance(self, delete_delay_ms: int) -> None:
        """Perform the next step of each segment swap whose last step has been made durable by a sync."""
        for swap in self._swaps:
            if not swap.is_durable:
                continue
            swap.is_durable = False
            swap.steps_done += 1
            if swap.steps_done == 2:
                for old in swap.replaced:
                    self._unsynced.schedule_deletion(self._directory, old.log_path, delete_delay_ms)
                    self._unsynced.schedule_deletion(self._directory, old.index.path, delete_delay_ms)
            elif swap.steps_done == 3:
                self._rename_segment_files(swap.segment)
        self._swaps = [swap for swap in self._swaps if swap.steps_done <= 3]

    def complete_all(self, delete_delay_ms: int) -> None:
        """Complete all segment swaps in progress. Blocks on the disk."""
        while self._swaps:
            self.record_sync_start()
            self._cache.files.sync_directory(self._directory)
            self.advance(delete_delay_ms)

    def _rename_segment_files(self, segment: LogSegment) -> None:
        self._rename_log_file(
            segment, f"{self._directory}/{names.format_offset_file_name(segment.base_offset, names.LOG)}"
        )
        index_path = f"{self._directory}/{names.format_offset_file_name(segment.base_offset, names.INDEX)}"
        self._cache.close_file(segment.index.path)
        self._cache.files.rename(segment.index.path, index_path)
        segment.index.path = index_path

    def _rename_log_file(self, segment: LogSegment, path: str) -> None:
        self._unsynced.discard_file(segment.log_path)
        self._cache.files.rename(segment.log_path, path)
        segment.log_path = path
        self._unsynced.add_directory(self._directory)


class LogSegments:
    """The segments of a log in offset order. The last one is active: batches are appended to it."""

    __slots__ = ("_cache", "_directory", "_unsynced", "all", "swaps")

    def __init__(self, cache: FileCache, directory: str, unsynced: PendingSync, segments: list[LogSegment]) -> None:
        self.all = segments
        self.swaps = SegmentSwaps(cache, directory, unsynced)
        self._cache = cache
        self._directory = directory
        self._unsynced = unsynced

    @property
    def size(self) -> int:
        return sum(segment.size for segment in self.all)

    def find_segment_index(self, offset: int) -> int:
        """Return the list index of the segment that contains `offset`, or would contain it."""
        return max(0, bisect_right(self.all, offset, key=_get_base_offset) - 1)

    def create_active(self, base_offset: int) -> LogSegment:
        """Create a new active segment. Its first append creates the file."""
        if not self.all:
            for parent in self._cache.files.make_directory(self._directory):
                self._unsynced.add_directory(parent)
        segment = LogSegment(self._cache, self._directory, base_offset)
        self.all.append(segment)
        return segment

    def should_roll(self, config: LogConfig, size: int, headers: Sequence[BatchHeader], end_offset: int) -> bool:
        """Return whether the active segment must be closed before an append of this size up to `end_offset`."""
        active = self.all[-1]
        return active.size > 0 and (
            active.size + size > config.segment_bytes
            or end_offset - active.base_offset > INT32_MAX
            or _is_expired(active, config, headers)
            or len(active.index) * ENTRY_BYTES >= config.segment_index_bytes
        )

    def preallocate_active(self, segment_bytes: int) -> None:
        """Preallocate space in the active segment's file before a sync."""
        lengthened = self.all[-1].preallocate(segment_bytes) if self.all else None
        if lengthened is not None:
            self._unsynced.add_file(lengthened)

    def trim_active(self) -> None:
        """Trim the preallocated space of an active segment that is being closed.

        Recovery trusts the length of closed segments, so it must be durable before later records are acknowledged.
        """
        cut = self.all[-1].trim()
        if cut is not None:
            self._unsynced.add_file(cut)

    def delete_before(self, start_offset: int, delete_delay_ms: int) -> None:
        """Delete the segments that end at or below the log start offset, but never the active one."""
        number = 0
        while number < len(self.all) - 1 and self.all[number].end_offset <= start_offset:
            number += 1
        if number and self.swaps:
            self.swaps.complete_all(delete_delay_ms)
        self._schedule_deletion(self.all[:number], delete_delay_ms)
        del self.all[:number]

    def delete_from(self, number: int, delete_delay_ms: int) -> None:
        """Delete the segments from number `number` on."""
        self._schedule_deletion(self.all[number:], delete_delay_ms)
        del self.all[number:]

    def replace_compacted(self, compaction: Compaction) -> bool:
        """Replace segments with their compacted versions.

        Return False if some source segments were deleted meanwhile.
        """
        for cleaned in compaction.results:
            first = self.find_segment_index(cleaned.segment.base_offset)
            last = first + len(cleaned.sources)
            if self.all[first:last] != cleaned.sources:
                return False
            self.swaps.start(cleaned.segment, cleaned.sources)
            self.all[first:last] = [cleaned.segment]
        return True

    def close(self) -> None:
        for segment in self.all:
            self._cache.close_file(segment.log_path)
            self._cache.close_file(segment.index.path)

    def _schedule_deletion(self, segments: list[LogSegment], delete_delay_ms: int) -> None:
        check_invariant(not segments or not self.swaps, "segments must not be deleted during a segment swap")
        for segment in segments:
            self._unsynced.schedule_deletion(self._directory, segment.log_path, delete_delay_ms)
            self._unsynced.schedule_deletion(self._directory, segment.index.path, delete_delay_ms)


def _is_expired(active: LogSegment, config: LogConfig, headers: Sequence[BatchHeader]) -> bool:
    """Return whether the active segment is older than `segment.ms`, measured by record timestamps as in Kafka."""
    if active.first_timestamp < 0:
        return False
    age_ms = max(header.max_timestamp for header in headers) - active.first_timestamp
    return age_ms > config.segment_ms or (config.is_compaction_enabled and age_ms > config.max_compaction_lag_ms)


def _get_base_offset(segment: LogSegment) -> int:
    return segment.base_offset

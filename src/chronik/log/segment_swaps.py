"""The crash-safe replacement of segments by a compacted segment.

A power failure at any point leaves either the old segments or the new one. Each step starts when the previous step is
durable:
1. The new segment, already synced, is renamed to `<first>-<end>.swap`: from now on recovery completes the swap.
2. The old segments are renamed and deleted.
3. The new segment gets its final name.
Readers use the new segment from step 1 on. The swap ends when step 3 is durable: until then the name of step 1 could
come back, so no other swap starts.
"""

from __future__ import annotations

import msgspec

from chronik.files import FileCache
from chronik.log.files import names
from chronik.log.segment import LogSegment
from chronik.log.sync import PendingSync


class SegmentSwap(msgspec.Struct, eq=False):
    """A replacement of segments by a compacted segment that is in progress."""

    segment: LogSegment
    replaced: list[LogSegment]
    steps_done: int = 1
    is_durable: bool = False
    """Whether the sync in progress covers the last step."""


class SegmentSwaps:
    """The segment swaps of a log that are in progress."""

    __slots__ = ("_cache", "_directory", "_swaps", "_unsynced")

    def __init__(self, cache: FileCache, directory: str, unsynced: PendingSync) -> None:
        self._cache = cache
        self._directory = directory
        self._unsynced = unsynced
        self._swaps: list[SegmentSwap] = []

    def __bool__(self) -> bool:
        return bool(self._swaps)

    def start(self, segment: LogSegment, replaced: list[LogSegment]) -> None:
        """Start a swap (step 1). `segment` is the new segment that a compaction has written."""
        segment.set_cache(self._cache)
        self._rename_log(segment, f"{self._directory}/{names.swap_file_name(segment.base_offset, segment.end_offset)}")
        self._swaps.append(SegmentSwap(segment, replaced))

    def record_sync_start(self) -> None:
        """Record that a sync of the directory starts. Its completion allows the next steps."""
        for swap in self._swaps:
            swap.is_durable = True

    def advance(self, delete_delay_ms: int) -> None:
        """Perform the next step of each swap that the completed sync covers."""
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
                self._finish(swap.segment)
        self._swaps = [swap for swap in self._swaps if swap.steps_done <= 3]

    def complete_all(self, delete_delay_ms: int) -> None:
        """Complete all swaps. Blocks on the disk."""
        while self._swaps:
            self.record_sync_start()
            self._cache.files.sync_directory(self._directory)
            self.advance(delete_delay_ms)

    def _finish(self, segment: LogSegment) -> None:
        self._rename_log(segment, f"{self._directory}/{names.offset_file_name(segment.base_offset, names.LOG)}")
        index_path = f"{self._directory}/{names.offset_file_name(segment.base_offset, names.INDEX)}"
        self._cache.close_file(segment.index.path)
        self._cache.files.rename(segment.index.path, index_path)
        segment.index.path = index_path

    def _rename_log(self, segment: LogSegment, path: str) -> None:
        self._unsynced.discard_file(segment.log_path)
        self._cache.files.rename(segment.log_path, path)
        segment.log_path = path
        self._unsynced.add_directory(self._directory)

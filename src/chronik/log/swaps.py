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
from chronik.log.segment import Segment
from chronik.log.sync import Unsynced


class Swap(msgspec.Struct, eq=False):
    """A replacement of segments by a compacted segment that is in progress."""

    segment: Segment
    replaced: list[Segment]
    steps_done: int = 1
    is_durable: bool = False
    """Whether the sync in progress covers the last step."""


class Swaps:
    """The segment swaps of a log that are in progress."""

    __slots__ = ("_cache", "_directory", "_swaps", "_unsynced")

    def __init__(self, cache: FileCache, directory: str, unsynced: Unsynced) -> None:
        self._cache = cache
        self._directory = directory
        self._unsynced = unsynced
        self._swaps: list[Swap] = []

    def __bool__(self) -> bool:
        return bool(self._swaps)

    def begin(self, segment: Segment, replaced: list[Segment]) -> None:
        """Start a swap (step 1). `segment` is the new segment that a compaction has written."""
        segment.adopt(self._cache)
        self._rename_log(segment, f"{self._directory}/{names.swap_name(segment.base_offset, segment.end_offset)}")
        self._swaps.append(Swap(segment, replaced))

    def sync_begins(self) -> None:
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
                    self._unsynced.doom(self._directory, old.log_path, delete_delay_ms)
                    self._unsynced.doom(self._directory, old.index.path, delete_delay_ms)
            elif swap.steps_done == 3:
                self._finish(swap.segment)
        self._swaps = [swap for swap in self._swaps if swap.steps_done <= 3]

    def settle(self, delete_delay_ms: int) -> None:
        """Complete all swaps. Blocks on the disk."""
        while self._swaps:
            self.sync_begins()
            self._cache.files.sync_folder(self._directory)
            self.advance(delete_delay_ms)

    def _finish(self, segment: Segment) -> None:
        self._rename_log(segment, f"{self._directory}/{names.offset_name(segment.base_offset, names.LOG)}")
        index_path = f"{self._directory}/{names.offset_name(segment.base_offset, names.INDEX)}"
        self._cache.forget(segment.index.path)
        self._cache.files.rename(segment.index.path, index_path)
        segment.index.path = index_path

    def _rename_log(self, segment: Segment, path: str) -> None:
        self._unsynced.forget(segment.log_path)
        self._cache.files.rename(segment.log_path, path)
        segment.log_path = path
        self._unsynced.add_folder(self._directory)

"""Putting a compacted segment in the place of others, so that a power cut at any point leaves the one or the others.

The steps, each begun when the one before is durable:
1. the new segment, synced before, gets the name `<first>-<end>.swap`: from now on recovery finishes the exchange;
2. the old segments lose their names;
3. the new one gets its final name.
Readers use the new segment from step 1 on. The exchange is over when step 3 is durable too: until then the name of
step 1 could come back, so no other exchange begins.
"""

from __future__ import annotations

import msgspec

from chronik.files import FileCache
from chronik.log.files import names
from chronik.log.segment import Segment
from chronik.log.sync import Unsynced


class Swap(msgspec.Struct, eq=False):
    segment: Segment
    replaced: list[Segment]
    steps_done: int = 1
    is_durable: bool = False
    """Whether the step that was done last is covered by the sync under way."""


class Swaps:
    """All exchanges of one log that are under way."""

    __slots__ = ("_cache", "_folder", "_swaps", "_unsynced")

    def __init__(self, cache: FileCache, folder: str, unsynced: Unsynced) -> None:
        self._cache = cache
        self._folder = folder
        self._unsynced = unsynced
        self._swaps: list[Swap] = []

    def __bool__(self) -> bool:
        return bool(self._swaps)

    def begin(self, segment: Segment, replaced: list[Segment]) -> None:
        """Takes step 1; `segment` is the new one, written by a compaction."""
        segment.adopt(self._cache)
        self._rename_log(segment, f"{self._folder}/{names.swap_name(segment.base_offset, segment.end_offset)}")
        self._swaps.append(Swap(segment, replaced))

    def sync_begins(self) -> None:
        """Notes that the folder is about to be synced: once that is completed, the next steps may be taken."""
        for swap in self._swaps:
            swap.is_durable = True

    def advance(self, delete_delay_ms: int) -> None:
        """Takes the next step of each exchange that the completed sync of the folder covered."""
        for swap in self._swaps:
            if not swap.is_durable:
                continue
            swap.is_durable = False
            swap.steps_done += 1
            if swap.steps_done == 2:
                for old in swap.replaced:
                    self._unsynced.doom(self._folder, old.log_path, delete_delay_ms)
                    self._unsynced.doom(self._folder, old.index.path, delete_delay_ms)
            elif swap.steps_done == 3:
                self._finish(swap.segment)
        self._swaps = [swap for swap in self._swaps if swap.steps_done <= 3]

    def settle(self, delete_delay_ms: int) -> None:
        """Takes all remaining steps at once, waiting for the disk."""
        while self._swaps:
            self.sync_begins()
            self._cache.files.sync_folder(self._folder)
            self.advance(delete_delay_ms)

    def _finish(self, segment: Segment) -> None:
        self._rename_log(segment, f"{self._folder}/{names.offset_name(segment.base_offset, names.LOG)}")
        index_path = f"{self._folder}/{names.offset_name(segment.base_offset, names.INDEX)}"
        self._cache.forget(segment.index.path)
        self._cache.files.rename(segment.index.path, index_path)
        segment.index.path = index_path

    def _rename_log(self, segment: Segment, path: str) -> None:
        self._unsynced.forget(segment.log_path)
        self._cache.files.rename(segment.log_path, path)
        segment.log_path = path
        self._unsynced.add_folder(self._folder)

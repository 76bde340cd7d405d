"""In-memory copies of recently appended, uncommitted batches, which followers are about to fetch.

They are already validated. Reading them from the file would copy and validate them again for each follower.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from chronik.files import Buffer
from chronik.limits import KIB, UNCOMMITTED_BYTES_MAX

RECENT_BYTES_MAX: Final = UNCOMMITTED_BYTES_MAX
"""Maximum size in bytes of the in-memory cache of recent record batches of a node.

Other batches are read from their files.
"""

ZERO_COPY_BYTES_MIN: Final = 64 * KIB
"""Minimum size in bytes of batches that the cache keeps as a view of the request instead of a copy.

Smaller batches are copied, because a view of a few bytes would retain the whole request.
"""


class RecentBatchBudget:
    """The memory budget for recent batches, shared by all partitions of a node."""

    __slots__ = ("bytes_left",)

    def __init__(self, bytes_max: int = RECENT_BYTES_MAX) -> None:
        self.bytes_left = bytes_max


class RecentBatches:
    """A cache of the recently appended record batches of a partition that this node leads.

    Their buffers must not be modified.
    """

    __slots__ = ("_budget", "_by_offset")

    def __init__(self, budget: RecentBatchBudget) -> None:
        self._budget = budget
        # (end offset, batches) by base offset, in order; created with the first batch, since most partitions are idle.
        self._by_offset: OrderedDict[int, tuple[int, Buffer]] | None = None

    def add(self, base_offset: int, end_offset: int, batches: Buffer) -> None:
        """Cache record batches that start at `base_offset`, if the memory budget allows it."""
        if len(batches) < ZERO_COPY_BYTES_MIN:
            batches = bytes(batches)
        size = _count_retained_bytes(batches)
        if size <= self._budget.bytes_left:
            self._budget.bytes_left -= size
            if self._by_offset is None:
                self._by_offset = OrderedDict()
            self._by_offset[base_offset] = (end_offset, batches)

    def read(self, offset: int, bytes_max: int) -> list[memoryview]:
        """Return cached record batches from `offset` on, up to `bytes_max` bytes, or an empty list.

        The batches are consecutive and in chunks.
        """
        chunks: list[memoryview] = []
        kept = self._by_offset
        if kept is None:
            return chunks
        small: list[Buffer] = []
        found = kept.get(offset)
        while found is not None:
            end_offset, batches = found
            bytes_max -= len(batches)
            if bytes_max < 0:
                break
            if len(batches) < ZERO_COPY_BYTES_MIN:
                small.append(batches)
            else:
                _flush_small_batches(small, chunks)
                chunks.append(memoryview(batches))
            found = kept.get(end_offset)
        _flush_small_batches(small, chunks)
        return chunks

    def remove_batches_below(self, offset: int) -> None:
        """Remove the record batches that end at or below `offset` from the cache.

        For lagging followers, batches are read from the files.
        """
        kept = self._by_offset
        while kept:
            base_offset = next(iter(kept))
            end_offset, batches = kept[base_offset]
            if end_offset > offset:
                return
            del kept[base_offset]
            self._budget.bytes_left += _count_retained_bytes(batches)

    def clear(self) -> None:
        if self._by_offset:  # skip the empty replicas of a node that starts with 10,000 partitions
            self._budget.bytes_left += sum(_count_retained_bytes(batches) for _, batches in self._by_offset.values())
            self._by_offset.clear()


def _flush_small_batches(small: list[Buffer], chunks: list[memoryview]) -> None:
    if small:
        chunks.append(memoryview(b"".join(small)))
        small.clear()


def _count_retained_bytes(batches: Buffer) -> int:
    """Return the size of the underlying buffer, because a view retains the whole buffer in memory."""
    return memoryview(batches.obj).nbytes if isinstance(batches, memoryview) else len(batches)

"""Allocation of producer ids in blocks, so that few producers require a metadata command."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

BLOCK_SIZE = 1000
"""Number of producer ids per block that a broker reserves, as in Kafka.

A broker that crashes wastes at most this many of the 2^63 ids.
"""


class ProducerIdAllocator:
    """An allocator of producer ids, which reserves them in blocks for this broker."""

    def __init__(self, allocate_block: Callable[[int], Awaitable[int]]) -> None:
        """Create an allocator of producer ids; `allocate_block(count)` reserves ids and returns the first."""
        self._allocate_block = allocate_block
        self._next = 0
        self._end = 0
        self._lock = asyncio.Lock()

    async def allocate(self) -> int:
        """Return an unused producer id."""
        async with self._lock:
            if self._next == self._end:
                self._next = await self._allocate_block(BLOCK_SIZE)
                self._end = self._next + BLOCK_SIZE
            self._next += 1
            return self._next - 1

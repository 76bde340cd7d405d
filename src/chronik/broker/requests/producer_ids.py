"""Producer ids, taken from the cluster in blocks, so that starting a producer rarely costs a command."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

BLOCK_SIZE = 1000
"""As many as Kafka takes: a broker that dies wastes at most this many of 2^63 ids."""


class ProducerIds:
    def __init__(self, allocate_block: Callable[[int], Awaitable[int]]) -> None:
        """`allocate_block(count)` returns the first id of a block that nobody else will ever get."""
        self._allocate_block = allocate_block
        self._next = 0
        self._end = 0
        self._lock = asyncio.Lock()

    async def next(self) -> int:
        async with self._lock:
            if self._next == self._end:
                self._next = await self._allocate_block(BLOCK_SIZE)
                self._end = self._next + BLOCK_SIZE
            self._next += 1
            return self._next - 1

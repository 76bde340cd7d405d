"""Tells those who wait that something may have changed, and that they should look again."""

from __future__ import annotations

import asyncio


class News:
    """Nothing is missed between looking and waiting, however many turns of the loop lie between them: note `count`
    before you look, and wait for news `since` then. What was told between the two ends the wait at once."""

    __slots__ = ("_waiting", "count")

    def __init__(self) -> None:
        self.count = 0
        self._waiting: dict[asyncio.Future[None], None] | None = None  # most have no waiters

    def tell(self) -> None:
        self.count += 1
        if self._waiting:
            waiting, self._waiting = self._waiting, None
            for waiter in waiting:
                _end(waiter)

    async def since(self, count: int, seconds: float | None = None) -> bool:
        """Returns True when something was told after `count` was noted; False when nothing was within `seconds`."""
        if self.count != count:
            return True
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        if self._waiting is None:
            self._waiting = {}
        self._waiting[waiter] = None
        timer = None if seconds is None else loop.call_later(max(seconds, 0.0), _end, waiter)
        try:
            await waiter
        finally:
            if self._waiting is not None:
                self._waiting.pop(waiter, None)
            if timer is not None:
                timer.cancel()
        return self.count != count


def _end(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)

"""Notification of asyncio tasks that wait for a condition to change, without lost wake-ups."""

from __future__ import annotations

import asyncio


class Notifier:
    """An asyncio condition variable that wakes all waiters when the observed state may have changed.

    No notification is lost between checking the state and waiting for it: read `generation` before you check, and pass
    it to `wait`, which returns immediately if `notify` was called in between.
    """

    __slots__ = ("_waiting", "generation")

    def __init__(self) -> None:
        self.generation = 0
        self._waiting: dict[asyncio.Future[None], None] | None = None  # created on demand: most have no waiters

    def notify(self) -> None:
        """Wake all waiters, and increment the generation."""
        self.generation += 1
        if self._waiting:
            waiting, self._waiting = self._waiting, None
            for waiter in waiting:
                _wake(waiter)

    async def wait(self, generation: int, timeout_seconds: float | None = None) -> bool:
        """Wait for the next notification after the given generation. Return False if the timeout expires first."""
        if self.generation != generation:
            return True
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        if self._waiting is None:
            self._waiting = {}
        self._waiting[waiter] = None
        timer = None if timeout_seconds is None else loop.call_later(max(timeout_seconds, 0.0), _wake, waiter)
        try:
            await waiter
        finally:
            if self._waiting is not None:
                self._waiting.pop(waiter, None)
            if timer is not None:
                timer.cancel()
        return self.generation != generation


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)

"""Requests that wait for a partition to move: a produce for the disk, a fetch for records."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from chronik.broker.replica import Replica


class Commits:
    """Waits until it is known of every partition of a produce request whether its records are safe, or time is up."""

    __slots__ = ("_left", "_timer", "done")

    def __init__(self, loop: asyncio.AbstractEventLoop, timeout_seconds: float) -> None:
        self.done: asyncio.Future[None] = loop.create_future()
        self._left = 1
        self._timer = loop.call_later(timeout_seconds, self._end)
        self.done.add_done_callback(lambda _: self._timer.cancel())

    def expect(self) -> None:
        """One more partition will be `settled`."""
        self._left += 1

    def start(self) -> None:
        """Every partition has been named."""
        self.settled()

    def settled(self) -> None:
        self._left -= 1
        if self._left == 0:
            self._end()

    def _end(self) -> None:
        if not self.done.done():
            self.done.set_result(None)


class RecordsArrived:
    """Wakes a fetch once at least `bytes_missing` new bytes can be read, or when a partition of it goes away."""

    __slots__ = ("_bytes_missing", "_done", "_replicas")

    def __init__(self, replicas: Iterable[Replica], bytes_missing: int) -> None:
        self._bytes_missing = bytes_missing
        self._done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._replicas = list(replicas)

    async def wait(self, timeout_seconds: float) -> None:
        loop = asyncio.get_running_loop()
        timer = loop.call_later(timeout_seconds, self.wake)
        for replica in self._replicas:
            replica.watchers[self] = None
        try:
            await self._done
        finally:
            timer.cancel()
            for replica in self._replicas:
                replica.watchers.pop(self, None)

    def arrived(self, count: int) -> None:
        self._bytes_missing -= count
        if self._bytes_missing <= 0:
            self.wake()

    def wake(self) -> None:
        if not self._done.done():
            self._done.set_result(None)

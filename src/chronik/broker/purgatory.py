"""Requests that wait for a partition to move: a produce for the disk, a fetch for records."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Protocol

from chronik.exchange import Hurry


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


class Watched(Protocol):
    watchers: dict[RecordsArrived, None]


class RecordsArrived:
    """Has a fetch look again: when at least `bytes_missing` new bytes can be read, when a partition of it goes away,
    when others wait behind it and must not, or when its time is up.

    It listens from the moment it is made: made in the turn in which the fetch has looked, it misses nothing."""

    __slots__ = ("_bytes_missing", "_hurry", "_listens", "_look_again", "_loop", "_replicas", "_timer")

    def __init__(
        self,
        replicas: Iterable[Watched],
        bytes_missing: int,
        timeout_seconds: float,
        look_again: Callable[[], None],
        hurry: Hurry,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._bytes_missing = bytes_missing
        self._look_again = look_again
        self._replicas = list(replicas)
        self._hurry = hurry
        self._listens = True
        self._timer = self._loop.call_later(timeout_seconds, self.wake)
        hurry.wake = self.wake
        for replica in self._replicas:
            replica.watchers[self] = None

    def arrived(self, count: int) -> None:
        self._bytes_missing -= count
        if self._bytes_missing <= 0:
            self.wake()

    def brokers_changed(self) -> None:
        self._hurry.look()

    def wake(self) -> None:
        """It is looked in a turn of its own: whoever wakes is in the middle of something."""
        if self._listens:
            self.stop()
            self._loop.call_soon(self._look_again)

    def stop(self) -> None:
        self._listens = False
        self._timer.cancel()
        self._hurry.wake = None
        for replica in self._replicas:
            replica.watchers.pop(self, None)

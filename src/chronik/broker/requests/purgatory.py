"""A fetch that waits for its partitions to move."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Protocol

from chronik.exchange import Hurry


class Watched(Protocol):
    watchers: dict[RecordsArrived, None]


class RecordsArrived:
    """Makes a fetch look again: when at least `bytes_missing` new bytes can be read, when one of its partitions goes
    away, when other requests wait for it and must not, or when its time is up.

    It listens as soon as it is created: created in the same turn in which the fetch has looked, it misses nothing. With
    `committed_only` bytes count when the transactions that they belong to are decided."""

    __slots__ = (
        "_bytes_missing",
        "_hurry",
        "_listens",
        "_look_again",
        "_loop",
        "_replicas",
        "_timer",
        "committed_only",
    )

    def __init__(
        self,
        replicas: Iterable[Watched],
        bytes_missing: int,
        timeout_seconds: float,
        look_again: Callable[[], None],
        hurry: Hurry,
        *,
        committed_only: bool = False,
    ) -> None:
        self.committed_only = committed_only
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
        """Lets the fetch look in a turn of its own: the caller is in the middle of something."""
        if self._listens:
            self.stop()
            self._loop.call_soon(self._look_again)

    def stop(self) -> None:
        self._listens = False
        self._timer.cancel()
        self._hurry.wake = None
        for replica in self._replicas:
            replica.watchers.pop(self, None)

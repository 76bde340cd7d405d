"""Delayed fetches, which wait until enough bytes are available (Kafka's fetch purgatory)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Protocol

from chronik.request_reply import EarlyCompletion


class FetchablePartition(Protocol):
    """A partition that notifies delayed fetches of new records."""

    delayed_fetches: dict[DelayedFetch, None]


class DelayedFetch:
    """A fetch request that waits for new records in its partitions.

    It is woken when `bytes_missing` more bytes can be read, when a partition is removed, when other requests of the
    connection wait for it, or when the timeout expires. With `committed_only`, bytes count once their transactions are
    decided.

    It registers for notifications when it is created. Create it in the same event-loop iteration as the check of the
    partitions; otherwise an append in between is missed.
    """

    __slots__ = (
        "_bytes_missing",
        "_early_completion",
        "_listens",
        "_look_again",
        "_loop",
        "_replicas",
        "_timer",
        "committed_only",
    )

    def __init__(
        self,
        replicas: Iterable[FetchablePartition],
        bytes_missing: int,
        timeout_seconds: float,
        callback: Callable[[], None],
        early_completion: EarlyCompletion,
        *,
        committed_only: bool = False,
    ) -> None:
        self.committed_only = committed_only
        self._loop = asyncio.get_running_loop()
        self._bytes_missing = bytes_missing
        self._look_again = callback
        self._replicas = list(replicas)
        self._early_completion = early_completion
        self._listens = True
        self._timer = self._loop.call_later(timeout_seconds, self.wake)
        early_completion.wake = self.wake
        for replica in self._replicas:
            replica.delayed_fetches[self] = None

    def add_readable_bytes(self, count: int) -> None:
        """Count new readable bytes, and wake the fetch when its minimum number of bytes is reached."""
        self._bytes_missing -= count
        if self._bytes_missing <= 0:
            self.wake()

    def on_brokers_changed(self) -> None:
        """Check whether the fetch may continue to wait, after a broker was fenced or has returned."""
        self._early_completion.check()

    def wake(self) -> None:
        """Stop waiting for records, and schedule the fetch's callback for the next event-loop iteration."""
        if self._listens:
            self.cancel()
            self._loop.call_soon(self._look_again)

    def cancel(self) -> None:
        """Stop waiting for records without calling the fetch's callback."""
        self._listens = False
        self._timer.cancel()
        self._early_completion.wake = None
        for replica in self._replicas:
            replica.delayed_fetches.pop(self, None)

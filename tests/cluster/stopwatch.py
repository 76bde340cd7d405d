"""Measures how long a change through one node takes to apply on all nodes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

POLL_SECONDS = 0.01


class ChangeStopwatch:
    """A stopwatch from before a change request until every node applies it, including the checks."""

    def __init__(self, seconds_max: float) -> None:
        self._seconds_max = seconds_max
        self.seconds: list[float] = []

    @contextmanager
    def change(self, holds_everywhere: Callable[[], bool]) -> Iterator[None]:
        """Measure the change that the block makes."""
        began = time.monotonic()
        yield
        while not (is_applied := holds_everywhere()) and time.monotonic() - began < self._seconds_max:
            time.sleep(POLL_SECONDS)
        self.seconds.append(time.monotonic() - began)
        assert is_applied, f"not applied on all nodes after {self._seconds_max:g} s"
        assert self.seconds[-1] < self._seconds_max, f"applied on all nodes after {self.seconds[-1]:.1f} s only"

    def summary(self, what: str) -> str:
        count, longest = len(self.seconds), max(self.seconds)
        return f"{what}: {count} changes, each applied on all nodes within {longest * 1000:.0f} ms of its request"

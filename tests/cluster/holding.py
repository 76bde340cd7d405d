"""How long a change that was made through one node takes to hold on all of them, for tests that tell it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

POLL_SECONDS = 0.01


class Stopwatch:
    """Counts from before a change is asked for until every node was seen to heed it: asking them is in it, too."""

    def __init__(self, seconds_max: float) -> None:
        self._seconds_max = seconds_max
        self.seconds: list[float] = []

    @contextmanager
    def change(self, holds_everywhere: Callable[[], bool]) -> Iterator[None]:
        """The change is made within it."""
        began = time.monotonic()
        yield
        while not (holds := holds_everywhere()) and time.monotonic() - began < self._seconds_max:
            time.sleep(POLL_SECONDS)
        self.seconds.append(time.monotonic() - began)
        assert holds, f"it does not hold after {self._seconds_max:g} s"
        assert self.seconds[-1] < self._seconds_max, f"it took {self.seconds[-1]:.1f} s until it held"

    def summary(self, what: str) -> str:
        count, longest = len(self.seconds), max(self.seconds)
        return f"{what}: {count} changes, each held on all nodes within {longest * 1000:.0f} ms of being asked for"

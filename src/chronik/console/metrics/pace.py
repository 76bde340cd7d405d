"""Long work on the loop, a little in each turn."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import Final

SLICE_SECONDS: Final = 0.002
"""How long others wait for the loop."""

LOOKS_PER_CLOCK: Final = 16
"""After how many steps the clock is asked: they take microseconds."""


class Pace:
    def __init__(self) -> None:
        self._before = 0.0
        self._began = time.perf_counter()

    def over(self, steps: Iterable[object]) -> Iterator[None]:
        """Goes through all steps, and yields whenever it is time for others."""
        for number, _ in enumerate(steps):
            if number % LOOKS_PER_CLOCK == 0 and time.perf_counter() - self._began > SLICE_SECONDS:
                self._before += time.perf_counter() - self._began
                yield
                self._began = time.perf_counter()

    def spent(self) -> float:
        """Returns how long the loop was held, all turns together."""
        return self._before + time.perf_counter() - self._began

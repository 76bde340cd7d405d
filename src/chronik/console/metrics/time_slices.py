"""Cooperative multitasking for long work on the event loop."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import Final

SLICE_SECONDS: Final = 0.002
"""Maximum time that a slice of work may hold the event loop."""

STEPS_PER_CLOCK_READ: Final = 16
"""Steps between two reads of the clock. A step takes microseconds."""


class TimeSlicer:
    """A stopwatch that splits long work into short slices."""

    def __init__(self) -> None:
        self._previous_seconds = 0.0
        self._slice_started = time.perf_counter()

    def run(self, steps: Iterable[object]) -> Iterator[None]:
        """Run all steps, and yield whenever the current slice has used up its time."""
        for number, _ in enumerate(steps):
            if number % STEPS_PER_CLOCK_READ == 0 and time.perf_counter() - self._slice_started > SLICE_SECONDS:
                self._previous_seconds += time.perf_counter() - self._slice_started
                yield
                self._slice_started = time.perf_counter()

    def total_seconds(self) -> float:
        """Return the total time of all slices in seconds."""
        return self._previous_seconds + time.perf_counter() - self._slice_started

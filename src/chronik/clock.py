"""Injectable clock: components receive it as an argument, so tests and simulations can substitute their own."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """A source of wall-clock and monotonic time."""

    def now_ms(self) -> int:
        """Return the wall-clock time in milliseconds since the Unix epoch, as stored in records and commands."""

    def monotonic(self) -> float:
        """Return the seconds of a clock that never goes backwards, for timeouts and durations."""


class SystemClock:
    """The operating system's clocks."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    monotonic = staticmethod(time.monotonic)  # no Python-level wrapper: every request reads it several times


class ManualClock:
    """A test clock that only moves when `advance` is called."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms
        self._monotonic = 0.0

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic(self) -> float:
        return self._monotonic

    def advance(self, seconds: float) -> None:
        self._now_ms += int(seconds * 1000)
        self._monotonic += seconds

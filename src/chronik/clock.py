"""The clock that is handed to every part that needs one, so that tests and simulations can hand in another."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    def now_ms(self) -> int:
        """Wall-clock time in milliseconds since 1970: goes into records and commands."""

    def monotonic(self) -> float:
        """Seconds that never go back: for timeouts."""


class SystemClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    monotonic = staticmethod(time.monotonic)  # without a call of our own: requests ask several times each


class ManualClock:
    """The twin for tests: time passes when `advance` is called."""

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

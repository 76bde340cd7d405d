"""Whose turn it is: what connections have sent ahead is answered a few milliseconds at a time.

A client may send thousands of small requests at once, and one read brings all of them. The first of each read is
answered there and then, as all are while there is time; when the turn is over, connections that have more wait in a
row, each gets one request at least when it comes to it, and in between the loop does what else there is to do.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, Protocol

TURN_SECONDS_MAX: Final = 0.005
"""Of requests that were sent ahead, in one turn of the loop. Others wait that much longer at most."""


class Waiting(Protocol):
    def go_on(self) -> None: ...


class Turns:
    def __init__(
        self, call_soon: Callable[[Callable[[], None]], object], monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._call_soon = call_soon
        self._monotonic = monotonic
        self._ends_at: float | None = None
        """None while nobody has asked in this turn."""
        self._waiting: dict[Waiting, None] = {}

    def has_time(self) -> bool:
        """Whether one more request may be answered in this turn."""
        now = self._monotonic()
        if self._ends_at is None:
            self._ends_at = now + TURN_SECONDS_MAX
            self._call_soon(self._next)
        return now < self._ends_at

    def wait(self, connection: Waiting) -> None:
        """It goes on in a later turn."""
        self._waiting.setdefault(connection)

    def _next(self) -> None:
        self._ends_at = None
        for connection in list(self._waiting):
            if not self.has_time():
                return
            del self._waiting[connection]
            connection.go_on()

"""Connections take turns: requests that were sent ahead are answered a few milliseconds at a time.

A client may send thousands of small requests at once, and one read brings all of them. The first of each read is
answered at once, and so are the others while there is time. When the turn is over, connections that have more queue up;
each gets at least one request answered when its turn comes, and in between the loop does its other work.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, Protocol

TURN_SECONDS_MAX: Final = 0.005
"""Time for requests that were sent ahead, in one turn of the loop. Others wait that much longer at most."""


class Waiting(Protocol):
    def go_on(self) -> None: ...


class TakingTurns(Protocol):
    """Who may do long work in this turn of the loop."""

    def has_time(self) -> bool: ...

    def wait(self, connection: Waiting) -> None: ...


class Turns:
    def __init__(
        self, call_soon: Callable[[Callable[[], None]], object], monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._call_soon = call_soon
        self._monotonic = monotonic
        self._ends_at: float | None = None
        """None until somebody asks in this turn."""
        self._waiting: dict[Waiting, None] = {}

    def has_time(self) -> bool:
        """Whether one more request may be answered in this turn."""
        now = self._monotonic()
        if self._ends_at is None:
            self._ends_at = now + TURN_SECONDS_MAX
            self._call_soon(self._next)
        return now < self._ends_at

    def wait(self, connection: Waiting) -> None:
        """Queues the connection, which goes on in a later turn."""
        self._waiting.setdefault(connection)

    def _next(self) -> None:
        self._ends_at = None
        for connection in list(self._waiting):
            if not self.has_time():
                return
            del self._waiting[connection]
            connection.go_on()

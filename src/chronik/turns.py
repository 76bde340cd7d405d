"""Connections take turns: requests that were sent ahead are answered a few milliseconds at a time.

A client may send thousands of small requests at once, and one read brings all of them. The first of each read is
answered at once, and so are the others while there is time. When the turn is over, connections that have more queue up;
each gets at least one request answered when its turn comes, and in between the loop does its other work.

Whoever has not said yet who it is where that is asked, a stranger, queues up with the first request already, and behind
the others of its address: addresses take turns. So whoever tries passwords on a thousand connections waits for himself,
and neither those who are let in nor those who come from elsewhere wait for him.
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
        self._waiting: dict[Waiting | str, dict[Waiting, None]] = {}
        """By whose turn it is, the next first: a connection's own, or that of an address, which its strangers share."""

    def has_time(self) -> bool:
        """Whether one more request may be answered in this turn."""
        now = self._monotonic()
        if self._ends_at is None:
            self._ends_at = now + TURN_SECONDS_MAX
            self._call_soon(self._next)
        return now < self._ends_at

    def is_due(self, stranger: Waiting, address: str) -> bool:
        """Whether a stranger may be answered now; if not, it is queued."""
        if address not in self._waiting and self.has_time():
            return True
        self.wait(stranger, address)
        return False

    def wait(self, connection: Waiting, address: str | None = None) -> None:
        """Queues the connection, which goes on in a later turn: a stranger behind those of its address."""
        self._waiting.setdefault(connection if address is None else address, {}).setdefault(connection)

    def _next(self) -> None:
        self._ends_at = None
        while self._waiting and self.has_time():
            whose = next(iter(self._waiting))
            queue = self._waiting.pop(whose)
            connection = next(iter(queue))
            del queue[connection]
            if queue:
                self._waiting[whose] = queue  # last in line again
            connection.go_on()

"""Connections take turns: requests that were sent ahead are answered a few milliseconds at a time.

A client may send thousands of small requests at once, and one read brings all of them. The first of each read is
answered at once, and so are the others while there is time. When the turn is over, connections that have more queue up;
each gets at least one request answered when its turn comes, and in between the loop does its other work.

Whoever has not said yet who it is where that is asked, a stranger, queues up with the first request already, and behind
the others of its address: addresses take turns. So whoever tries passwords on a thousand connections waits for himself,
and neither those who are let in nor those who come from elsewhere wait for him. Strangers have less time in a turn: who
logs in waits for half a dozen turns. They have hardly any while a crowd is at the door: nobody knows who is in it, and
whoever comes behind it, as everybody does who is accepted, would wait for all those turns.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, Protocol

TURN_SECONDS_MAX: Final = 0.005
"""Time for requests that were sent ahead, in one turn of the loop. Others wait that much longer at most."""

STRANGERS_SECONDS_MAX: Final = 0.002
"""Time for strangers, in one turn of the loop: twenty times what it takes to look which sockets have something."""


class Waiting(Protocol):
    def go_on(self) -> None: ...


class TakingTurns(Protocol):
    """Who may do long work in this turn of the loop."""

    def has_time(self) -> bool: ...

    def wait(self, connection: Waiting) -> None: ...


class Turns:
    def __init__(
        self,
        call_soon: Callable[[Callable[[], None]], object],
        monotonic: Callable[[], float] = time.monotonic,
        crowd: int | None = None,
    ) -> None:
        """So many who come in one turn are a crowd, behind which there may be more."""
        self._call_soon = call_soon
        self._monotonic = monotonic
        self._crowd = crowd
        self._came = 0  # in this turn
        self._is_crowded = False
        self._is_begun = False
        self._ends_at: float | None = None
        """None until somebody asks in this turn."""
        self._strangers_end_at: float | None = None
        self._waiting: dict[Waiting, None] = {}
        """The next first."""
        self._strangers: dict[str, dict[Waiting, None]] = {}
        """By their addresses; the next first."""

    def has_time(self) -> bool:
        """Whether one more request may be answered in this turn."""
        now = self._monotonic()
        if self._ends_at is None:
            self._begin()
            self._ends_at = now + TURN_SECONDS_MAX
        return now < self._ends_at

    def may_go_on(self, connection: Waiting) -> bool:
        """Whether one more of its requests may be answered in this turn; if not, it is queued."""
        if self.has_time():
            return True
        self.wait(connection)
        return False

    def is_due(self, stranger: Waiting, address: str) -> bool:
        """Whether a stranger may be answered now; if not, it is queued."""
        if address not in self._strangers and self._has_time_for_strangers():
            return True
        self.wait(stranger, address)
        return False

    def came(self) -> None:
        """Notes that one more was accepted."""
        self._came += 1
        self._begin()

    def wait(self, connection: Waiting, address: str | None = None) -> None:
        """Queues the connection, which goes on in a later turn: a stranger behind those of its address."""
        if address is None:
            self._waiting.setdefault(connection)
        else:
            self._strangers.setdefault(address, {}).setdefault(connection)

    def forget(self, connection: Waiting, address: str) -> None:
        """Takes one that has ended out of the queues: others come for its place, and need not wait for its turn too."""
        self._waiting.pop(connection, None)
        if address in self._strangers:
            self._strangers[address].pop(connection, None)
            if not self._strangers[address]:
                del self._strangers[address]

    def _has_time_for_strangers(self) -> bool:
        now = self._monotonic()
        if self._strangers_end_at is None:
            self._begin()
            self._strangers_end_at = now + (0.0 if self._is_crowded else STRANGERS_SECONDS_MAX)
        return now < self._strangers_end_at

    def _begin(self) -> None:
        if not self._is_begun:
            self._is_begun = True
            self._call_soon(self._next)

    def _next(self) -> None:
        """One of each kind goes on in every turn, however little time there is."""
        self._is_begun = False
        self._ends_at = self._strangers_end_at = None
        self._is_crowded, self._came = self._crowd is not None and self._came >= self._crowd, 0
        while self._waiting and self.has_time():
            self._go_on(self._waiting)
        is_first = True
        while self._strangers and (self._has_time_for_strangers() or is_first):
            is_first = False
            address = next(iter(self._strangers))
            queue = self._strangers.pop(address)
            if len(queue) > 1:
                self._strangers[address] = queue  # last in line again
            self._go_on(queue)

    def _go_on(self, queue: dict[Waiting, None]) -> None:
        connection = next(iter(queue))
        del queue[connection]
        connection.go_on()

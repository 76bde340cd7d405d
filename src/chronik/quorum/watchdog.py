"""Notices when something holds the event loop: a loop that stands still answers nobody, and leaders lose their terms.

It measures two things, cheaply: how late a timer comes (whoever held the loop, even another process that had our
core), and the time that Raft's own work took (by name). It needs no thread and no hook into the loop.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from chronik.meters import Histogram

logger = logging.getLogger("chronik.raft")

HELD_SECONDS_MAX: Final = 0.010
"""Longer than this is noticed. An election timeout is a hundred times as long."""

WARNED_SECONDS_MIN: Final = 0.1
"""From here on it is worth a warning; below it a line for those who look closely. A laptop that does much else is late
by ten or twenty milliseconds all the time, and is none the worse for it."""

LOOK_SECONDS: Final = 0.025
"""40 looks a second cost about 0.1 % of a core. What holds the loop for less than that may be missed, now and then."""

SOMETHING: Final = "something, or a busy machine,"

REPORT_SECONDS: Final = 1.0
"""One line per second at most, for the longest stall: a busy machine must not be made busier by saying so."""


class LoopWatchdog:
    def __init__(self) -> None:
        self.longest_seconds = 0.0
        """The longest stall since the start."""
        self.lateness: Final = Histogram()
        """How late the timer came, each time."""
        self._timer: asyncio.TimerHandle | None = None
        self._reported_at = float("-inf")
        self._count = 0
        self._worst = (0.0, "")

    def start(self) -> None:
        self._look_again(asyncio.get_running_loop())

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def ran(self, name: str, seconds: float) -> None:
        """Notes how long a piece of work on the loop took."""
        if seconds > HELD_SECONDS_MAX:
            self._note(seconds, name)

    def _look_again(self, loop: asyncio.AbstractEventLoop) -> None:
        due = loop.time() + LOOK_SECONDS
        self._timer = loop.call_at(due, self._look, loop, due)

    def _look(self, loop: asyncio.AbstractEventLoop, due: float) -> None:
        late = loop.time() - due
        self.lateness.add(late)
        if late > HELD_SECONDS_MAX:
            self._note(late, SOMETHING)
        if self._count and loop.time() - self._reported_at >= REPORT_SECONDS:
            self._report(loop.time())
        self._look_again(loop)

    def _note(self, seconds: float, name: str) -> None:
        self.longest_seconds = max(self.longest_seconds, seconds)
        self._count += 1
        # The timer sees the same stall again, and knows less about it.
        if seconds > self._worst[0] * (2.0 if name == SOMETHING else 1.0):
            self._worst = (seconds, name)

    def _report(self, now: float) -> None:
        seconds, name = self._worst
        level = logging.WARNING if seconds >= WARNED_SECONDS_MIN else logging.DEBUG
        logger.log(level, "%s held the event loop for %.0f ms (%d noticed)", name, seconds * 1000, self._count)
        self._reported_at = now
        self._count = 0
        self._worst = (0.0, "")

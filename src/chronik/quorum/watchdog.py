"""Detection of event-loop stalls. A stalled loop delays all responses and can cost a leader its term.

The watchdog measures how late a timer fires, whatever the cause (including other processes on the same core), and how
long Raft's own work takes, by name. It needs no thread and no event-loop hook.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from chronik.histogram import Histogram

logger = logging.getLogger("chronik.raft")

STALL_SECONDS_MIN: Final = 0.010
"""The minimum duration in seconds of an event-loop stall that is recorded."""

WARNING_SECONDS_MIN: Final = 0.1
"""The minimum duration in seconds of an event-loop stall that is logged as a warning instead of at debug level.

Delays of 10 to 20 ms are normal on a busy laptop.
"""

CHECK_INTERVAL_SECONDS: Final = 0.025
"""The interval in seconds at which the watchdog checks the event loop. Shorter stalls may be missed."""

UNKNOWN_CAUSE: Final = "unknown (busy event loop or machine)"

REPORT_INTERVAL_SECONDS: Final = 1.0
"""The minimum interval in seconds between log lines about event-loop stalls."""


class EventLoopWatchdog:
    """A monitor that records and logs stalls of the event loop."""

    def __init__(self) -> None:
        self.longest_stall_seconds = 0.0
        """The duration of the longest event-loop stall since the node started."""
        self.timer_delays: Final = Histogram()
        """The histogram of the delays with which the watchdog's timer fires."""
        self._timer: asyncio.TimerHandle | None = None
        self._reported_at = float("-inf")
        self._count = 0
        self._worst = (0.0, "")

    def start(self) -> None:
        self._schedule_check(asyncio.get_running_loop())

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def record(self, name: str, seconds: float) -> None:
        """Record the duration of an operation that has blocked the event loop."""
        if seconds > STALL_SECONDS_MIN:
            self._record_stall(seconds, name)

    def _schedule_check(self, loop: asyncio.AbstractEventLoop) -> None:
        due = loop.time() + CHECK_INTERVAL_SECONDS
        self._timer = loop.call_at(due, self._check_timer_delay, loop, due)

    def _check_timer_delay(self, loop: asyncio.AbstractEventLoop, due: float) -> None:
        delay = loop.time() - due
        self.timer_delays.record(delay)
        if delay > STALL_SECONDS_MIN:
            self._record_stall(delay, UNKNOWN_CAUSE)
        if self._count and loop.time() - self._reported_at >= REPORT_INTERVAL_SECONDS:
            self._report_stalls(loop.time())
        self._schedule_check(loop)

    def _record_stall(self, seconds: float, name: str) -> None:
        self.longest_stall_seconds = max(self.longest_stall_seconds, seconds)
        self._count += 1
        # The timer detects the same stall without knowing its cause.
        if seconds > self._worst[0] * (2.0 if name == UNKNOWN_CAUSE else 1.0):
            self._worst = (seconds, name)

    def _report_stalls(self, now: float) -> None:
        seconds, name = self._worst
        level = logging.WARNING if seconds >= WARNING_SECONDS_MIN else logging.DEBUG
        logger.log(level, "event loop stalled: cause=%s duration_ms=%.0f stalls=%d", name, seconds * 1000, self._count)
        self._reported_at = now
        self._count = 0
        self._worst = (0.0, "")

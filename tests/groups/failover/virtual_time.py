"""An event loop with virtual time: time advances only when no callback is ready."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from itertools import count
from typing import Any
from unittest.mock import patch

from chronik import scheduler
from chronik.scheduler import SLICE_SECONDS

STEPS_PER_SLICE = 3
"""Steps after which sliced work is interrupted. The real limit depends on the speed of the machine."""


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock jumps to the next timer when no callback is ready."""

    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0

    def time(self) -> float:
        return self._now

    def _run_once(self) -> None:
        base: Any = self
        if not base._ready:
            if not base._scheduled:
                raise AssertionError("deadlock: no callback is ready and no timer is set")
            self._now = max(self._now, base._scheduled[0].when())
        base_run_once: Any = getattr(super(), "_run_once")  # noqa: B009 - unknown to type checkers
        base_run_once()


class VirtualClock:
    """A clock whose wall-clock time and monotonic time are the virtual time of the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def now_ms(self) -> int:
        return int(self._loop.time() * 1000)

    def monotonic(self) -> float:
        return self._loop.time()


def run_in_virtual_time(coroutine: Coroutine[Any, Any, None]) -> None:
    loop = VirtualLoop()
    steps = count()
    try:
        with patch.object(scheduler, "perf_counter", lambda: next(steps) * SLICE_SECONDS / STEPS_PER_SLICE):
            loop.run_until_complete(coroutine)
    finally:
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.gather(*asyncio.all_tasks(loop), return_exceptions=True))
        loop.close()

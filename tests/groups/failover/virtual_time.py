"""An event loop whose time passes only when nothing else is left to do: a minute takes as long as its work does."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from itertools import count
from typing import Any
from unittest.mock import patch

from chronik import scheduler
from chronik.scheduler import SLICE_SECONDS

STEPS_PER_SLICE = 3
"""Work in slices is interrupted after so many steps, where it would go by how fast the machine is."""


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0

    def time(self) -> float:
        return self._now

    def _run_once(self) -> None:
        base: Any = self
        if not base._ready:
            if not base._scheduled:
                raise AssertionError("everybody waits, and nothing will ever happen")
            self._now = max(self._now, base._scheduled[0].when())
        base_run_once: Any = getattr(super(), "_run_once")  # noqa: B009 - unknown to type checkers
        base_run_once()


class VirtualClock:
    """Time of day and time passed are the same here."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def now_ms(self) -> int:
        return int(self._loop.time() * 1000)

    def monotonic(self) -> float:
        return self._loop.time()


def run_virtually(story: Coroutine[Any, Any, None]) -> None:
    loop = VirtualLoop()
    steps = count()
    try:
        with patch.object(scheduler, "perf_counter", lambda: next(steps) * SLICE_SECONDS / STEPS_PER_SLICE):
            loop.run_until_complete(story)
    finally:
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.gather(*asyncio.all_tasks(loop), return_exceptions=True))
        loop.close()

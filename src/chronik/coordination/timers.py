"""Timers of state machines, which fire at each machine's next deadline."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic

from chronik.coordination.machine import MachineT


class MachineTimers(Generic[MachineT]):
    """The timers of all hosted state machines."""

    def __init__(self, now_ms: Callable[[], int], on_timeout: Callable[[MachineT], None]) -> None:
        self._now_ms = now_ms
        self._on_timeout = on_timeout
        self._timers: dict[MachineT, tuple[int, asyncio.TimerHandle]] = {}

    def schedule(self, machine: MachineT) -> None:
        """Schedule the machine's timer. A timer that fires too early is kept, because deadlines mostly move later."""
        wake_at_ms = machine.wake_at_ms
        scheduled = self._timers.get(machine)
        if scheduled is not None:
            at_ms, timer = scheduled
            if wake_at_ms is not None and at_ms <= wake_at_ms:
                return
            timer.cancel()
            del self._timers[machine]
        if wake_at_ms is not None:
            delay_seconds = max(wake_at_ms - self._now_ms(), 0) / 1000
            timer = asyncio.get_running_loop().call_later(delay_seconds, self._fire, machine)
            self._timers[machine] = (wake_at_ms, timer)

    def _fire(self, machine: MachineT) -> None:
        del self._timers[machine]
        self._on_timeout(machine)

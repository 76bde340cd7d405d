"""Wakes machines when something in them is due."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic

from chronik.coordination.machine import MachineT


class Alarms(Generic[MachineT]):
    def __init__(self, now_ms: Callable[[], int], ring: Callable[[MachineT], None]) -> None:
        self._now_ms = now_ms
        self._on_ring = ring
        self._alarms: dict[MachineT, tuple[int, asyncio.TimerHandle]] = {}

    def set(self, machine: MachineT) -> None:
        """Sets an alarm. Deadlines mostly move later, and an alarm that rings too early costs less than moving it."""
        wake_at_ms = machine.wake_at_ms
        alarm = self._alarms.get(machine)
        if alarm is not None:
            at_ms, timer = alarm
            if wake_at_ms is not None and at_ms <= wake_at_ms:
                return
            timer.cancel()
            del self._alarms[machine]
        if wake_at_ms is not None:
            delay_seconds = max(wake_at_ms - self._now_ms(), 0) / 1000
            timer = asyncio.get_running_loop().call_later(delay_seconds, self._ring, machine)
            self._alarms[machine] = (wake_at_ms, timer)

    def _ring(self, machine: MachineT) -> None:
        del self._alarms[machine]
        self._on_ring(machine)

"""Heartbeats of many brokers, confirmed together: each is answered after a round of messages with the voters that began
when it had come, and such a round costs the leader as much as ten heartbeats do."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

BROKERS_AT_ONCE_MAX: Final = 8
"""Up to so many brokers are answered as soon as can be: they cost the leader about three in a hundred of a core."""

GATHERED_SECONDS: Final = 0.025
"""For how long heartbeats of more brokers are gathered for one round: a tenth of the time between two of one broker."""


class Confirming:
    """Must be used on one event loop."""

    def __init__(self, confirm: Callable[[], Awaitable[object]]) -> None:
        self._confirm = confirm
        self._gathering: asyncio.Task[None] | None = None

    async def confirmed(self, broker_count: int) -> None:
        """Returns when a round is confirmed that began after this call. Raises what the round does."""
        if broker_count <= BROKERS_AT_ONCE_MAX:
            await self._confirm()
            return
        if self._gathering is None:
            self._gathering = asyncio.create_task(self._begin(), name="heartbeats gathered")
            self._gathering.add_done_callback(_seen)
        await asyncio.shield(self._gathering)  # whoever gives up does so for itself

    async def _begin(self) -> None:
        await asyncio.sleep(GATHERED_SECONDS)
        self._gathering = None  # whoever comes from now on may have come after the round began
        await self._confirm()


def _seen(gathered: asyncio.Task[None]) -> None:
    """Whoever waits is told of an error; when all have given up, nobody has to be."""
    if not gathered.cancelled():
        gathered.exception()

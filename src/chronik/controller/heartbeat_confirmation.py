"""Batched confirmation of broker heartbeats.

The leader answers a heartbeat after a read round with the voters that started after the heartbeat arrived. A round
costs as much as ten heartbeats, so many brokers share one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

UNBATCHED_BROKERS_MAX: Final = 8
"""Maximum number of brokers whose heartbeats are confirmed without batching: about 3 % of a core on the leader."""

BATCH_SECONDS: Final = 0.025
"""Time for which heartbeats of larger clusters are batched: a tenth of the heartbeat interval."""


class HeartbeatConfirmation:
    """A batcher for heartbeat confirmations. Must be used on one event loop."""

    def __init__(self, confirm: Callable[[], Awaitable[object]]) -> None:
        self._confirm = confirm
        self._batch: asyncio.Task[None] | None = None

    async def wait_confirmed(self, broker_count: int) -> None:
        """Wait for a read round that started after this call. Raises the exceptions of the round."""
        if broker_count <= UNBATCHED_BROKERS_MAX:
            await self._confirm()
            return
        if self._batch is None:
            self._batch = asyncio.create_task(self._confirm_batch(), name="heartbeat confirmation")
            self._batch.add_done_callback(_retrieve_exception)
        await asyncio.shield(self._batch)  # a cancelled waiter must not cancel the round of the others

    async def _confirm_batch(self) -> None:
        await asyncio.sleep(BATCH_SECONDS)
        self._batch = None  # later heartbeats may arrive after the start of this round
        await self._confirm()


def _retrieve_exception(batch: asyncio.Task[None]) -> None:
    """Retrieve the exception of a round whose waiters were all cancelled, so that asyncio does not log it."""
    if not batch.cancelled():
        batch.exception()

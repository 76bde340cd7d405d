"""The heartbeat call from brokers to the controller, and its batched confirmation by a majority."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from chronik.peers.calls import CallKind, TypedCall

NO_RESPONSE: Final = 0.0

UNBATCHED_BROKERS_MAX: Final = 8
"""Maximum number of brokers for which the leader confirms each heartbeat separately. Larger clusters batch them."""

BATCH_SECONDS: Final = 0.025
"""Seconds for which heartbeats are collected into a batch in large clusters: a tenth of the heartbeat interval."""


class BrokerHeartbeat(msgspec.Struct, frozen=True, array_like=True):
    """A broker's heartbeat with its broker epoch."""

    broker_id: int
    broker_epoch: int
    answered_at: float | None = None
    """Value of `arrived_at` in the last response that the broker received from this leader.

    NO_RESPONSE if the broker has received none; None from a broker of an earlier version. A broker that receives no
    responses fences itself, so the controller must not consider it alive.
    """


class BrokerHeartbeatResponse(msgspec.Struct, frozen=True, array_like=True):
    """The response to a broker's heartbeat. The leader sends it after a majority has confirmed its leadership."""

    is_leader: bool
    is_known: bool = False
    """Whether the epoch is the broker's current registration; otherwise the broker must register again."""
    index: int = 0
    """The leader's applied index. The broker must apply it before it serves, because it may have been fenced."""
    arrived_at: float = 0.0
    """Arrival time of the heartbeat by the leader's clock. The broker returns it in its next heartbeat."""


HEARTBEAT: Final = TypedCall(CallKind.HEARTBEAT, BrokerHeartbeat, BrokerHeartbeatResponse)


class HeartbeatConfirmation:
    """A batcher that confirms the Raft leadership once for many heartbeats. Must be used on a single event loop.

    The leader responds to a heartbeat after a read round that started after the heartbeat arrived. A round costs as
    much as ten heartbeats, so the heartbeats of many brokers share a round.
    """

    def __init__(self, confirm: Callable[[], Awaitable[object]]) -> None:
        self._confirm = confirm
        self._batch: asyncio.Task[None] | None = None

    async def wait_confirmed(self, broker_count: int) -> None:
        """Wait until a majority has confirmed the Raft leadership after this call. Raise the error if the confirmation
        fails.
        """
        if broker_count <= UNBATCHED_BROKERS_MAX:
            await self._confirm()
            return
        if self._batch is None:
            self._batch = asyncio.create_task(self._confirm_heartbeat_batch(), name="heartbeat confirmation")
            self._batch.add_done_callback(_retrieve_task_exception)
        await asyncio.shield(self._batch)  # a cancelled waiter must not cancel the round of the others

    async def _confirm_heartbeat_batch(self) -> None:
        await asyncio.sleep(BATCH_SECONDS)
        self._batch = None  # later heartbeats may arrive after the start of this round
        await self._confirm()


def _retrieve_task_exception(batch: asyncio.Task[None]) -> None:
    """Retrieve the exception of a confirmation that no task awaits any more, so that asyncio does not log it."""
    if not batch.cancelled():
        batch.exception()

"""The heartbeat call from brokers to the controller."""

from __future__ import annotations

from typing import Final

import msgspec

from chronik.peers.call_kinds import CallKind
from chronik.peers.calls import TypedCall

NO_RESPONSE: Final = 0.0


class BrokerHeartbeat(msgspec.Struct, frozen=True, array_like=True):
    """A broker's heartbeat in one of its epochs."""

    broker_id: int
    broker_epoch: int
    answered_at: float | None = None
    """The `arrived_at` of the last response that the broker received from this leader.

    NO_RESPONSE if there was none, None from a broker of an earlier version. A broker that receives no responses fences
    itself, so it must not count as healthy."""


class BrokerHeartbeatResponse(msgspec.Struct, frozen=True, array_like=True):
    """The controller's response, sent only after a majority has confirmed the leader."""

    is_leader: bool
    is_known: bool = False
    """Whether the epoch is the broker's current registration; otherwise the broker must register again."""
    index: int = 0
    """The leader's applied index, which the broker must reach before it serves: it may have been fenced by then."""
    arrived_at: float = 0.0
    """Arrival time of the heartbeat on the leader's clock, which the broker sends back."""


HEARTBEAT: Final = TypedCall(CallKind.HEARTBEAT, BrokerHeartbeat, BrokerHeartbeatResponse)

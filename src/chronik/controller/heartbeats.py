"""What brokers say to the controller, over the peers' connections: I am alive, in this epoch."""

from __future__ import annotations

from typing import Final

import msgspec

from chronik.peers.call_kinds import CallKind
from chronik.peers.calls import TypedCall

NOT_ANSWERED: Final = 0.0


class BrokerHeartbeat(msgspec.Struct, frozen=True, array_like=True):
    broker_id: int
    broker_epoch: int
    answered_at: float | None = None
    """The `arrived_at` of the last answer that the broker got from this leader; NOT_ANSWERED while there is none, None
    from a broker of an earlier version. A broker whose answers are lost believes that it is cut off, and serves nobody:
    it must not pass for a healthy one."""


class HeartbeatAnswer(msgspec.Struct, frozen=True, array_like=True):
    """Given only by a leader that a majority has just confirmed: a broker that hears it is part of the cluster."""

    is_leader: bool
    is_known: bool = False
    """Whether that epoch is the broker's current registration; if not, it has to register again."""
    index: int = 0
    """How far the leader had applied: the broker may have been fenced by then, and must know it before it serves."""
    arrived_at: float = 0.0
    """When the heartbeat came, by the leader's own clock: the broker sends it back."""


HEARTBEAT: Final = TypedCall(CallKind.HEARTBEAT, BrokerHeartbeat, HeartbeatAnswer)

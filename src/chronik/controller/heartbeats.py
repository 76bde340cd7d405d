"""What brokers say to the controller, over the peers' connections: I am here, in this life."""

from __future__ import annotations

from typing import Final

import msgspec

from chronik.raft.peer_calls import TypedCall

HEARTBEAT_KIND: Final = 16


class BrokerHeartbeat(msgspec.Struct, frozen=True, array_like=True):
    broker_id: int
    broker_epoch: int


class HeartbeatAnswer(msgspec.Struct, frozen=True, array_like=True):
    """Given only by a leader that a majority has just confirmed: a broker that hears it is part of the cluster."""

    is_leader: bool
    is_known: bool = False
    """Whether that epoch is the broker's current registration; if not, it has to register again."""
    index: int = 0
    """What the leader had applied: the broker may have been fenced by then, and must know it before it serves."""


HEARTBEAT: Final = TypedCall(HEARTBEAT_KIND, BrokerHeartbeat, HeartbeatAnswer)

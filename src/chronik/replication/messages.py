"""What followers and leaders say to each other. Kinds and fields are forever: new fields come at the end."""

from __future__ import annotations

from typing import Final

import msgspec

from chronik.protocol.errors import ErrorCode
from chronik.raft.peer_calls import TypedCall

FETCH_KIND: Final = 19
WAKE_KIND: Final = 20

NO_SESSION: Final = 0
NO_EPOCH: Final = -1
UNKNOWN: Final = -1

Key = tuple[bytes, int]
"""Topic id and partition."""


class Position(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """How far a follower is: everything below `offset` is durable there, and `last_epoch` wrote the last of it."""

    topic_id: bytes
    partition: int
    leader_epoch: int
    """Under which it follows."""
    offset: int
    last_epoch: int
    log_start_offset: int


class FollowerFetch(msgspec.Struct, frozen=True, array_like=True):
    """Without a session `positions` are all that the follower wants; within one, those that changed."""

    broker_epoch: int
    session_id: int
    turn: int
    """Counts the fetches of a session: one that was lost is noticed."""
    positions: tuple[Position, ...]
    forgotten: tuple[Key, ...] = ()
    max_wait_ms: int = 0
    max_bytes: int = 0


class Portion(msgspec.Struct, frozen=True, array_like=True):
    """What a leader says of one partition.

    With `diverging_end` >= 0 the follower's log is not the leader's: the leader's `diverging_epoch` ends there, and the
    follower has to cut its own. OFFSET_OUT_OF_RANGE tells with the two offsets where the leader's log begins and ends.
    """

    topic_id: bytes
    partition: int
    high_watermark: int
    log_start_offset: int
    log_end_offset: int
    records: memoryview
    error: int = ErrorCode.NONE
    diverging_epoch: int = NO_EPOCH
    diverging_end: int = UNKNOWN


class LeaderAnswer(msgspec.Struct, frozen=True, array_like=True):
    """Session 0: the leader does not know the session, the follower has to begin anew."""

    session_id: int
    portions: tuple[Portion, ...] = ()


class Wake(msgspec.Struct, frozen=True, array_like=True):
    """The follower wants something else: its waiting fetch is to be answered with what there is."""

    session_id: int


class Woken(msgspec.Struct, frozen=True, array_like=True):
    pass


FETCH: Final = TypedCall(FETCH_KIND, FollowerFetch, LeaderAnswer)
WAKE: Final = TypedCall(WAKE_KIND, Wake, Woken)

"""What followers and leaders say to each other. Fields never change: new ones are added at the end."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

import msgspec

from chronik.files import Buffer
from chronik.peers.call_kinds import CallKind
from chronik.peers.calls import TypedCall
from chronik.protocol.errors import ErrorCode

NO_SESSION: Final = 0
NO_EPOCH: Final = -1
UNKNOWN: Final = -1
NOTHING: Final = memoryview(b"")

Key = tuple[bytes, int]
"""Topic id and partition."""


class Position(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """How far a follower is: everything below `offset` is durable there, and `last_epoch` wrote the last of it."""

    topic_id: bytes
    partition: int
    leader_epoch: int
    """The epoch under which it follows."""
    offset: int
    last_epoch: int
    log_start_offset: int


class FollowerFetch(msgspec.Struct, frozen=True, array_like=True):
    """Without a session `positions` are all that the follower wants; within one, those that changed."""

    broker_epoch: int
    session_id: int
    turn: int
    """Counts the fetches of a session, so that a lost one is noticed."""
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
    """Session 0 says that the leader does not know the session: the follower has to begin a new one."""

    session_id: int
    portions: tuple[Portion, ...] = ()


class Wake(msgspec.Struct, frozen=True, array_like=True):
    """The follower wants something else: its waiting fetch should be answered with what there is."""

    session_id: int


class Woken(msgspec.Struct, frozen=True, array_like=True):
    pass


class FetchCall(TypedCall[FollowerFetch, LeaderAnswer]):
    """Records travel after the head of the answer, in the same order, as they were read: nothing copies them."""

    def pack(self, answer: LeaderAnswer) -> Sequence[Buffer]:
        head = _encoder.encode(_AnswerHead(answer.session_id, tuple(map(_head_of, answer.portions))))
        records = [portion.records for portion in answer.portions if portion.records]
        return [_SIZE.pack(len(head)), head, *records]

    def unpack(self, payload: memoryview) -> LeaderAnswer:
        """Raises msgspec.DecodeError."""
        position = _SIZE.size + int.from_bytes(payload[: _SIZE.size], "big")
        head = _decoder.decode(payload[_SIZE.size : position])
        portions = []
        for portion, size in head.portions:
            if size:
                portion = msgspec.structs.replace(portion, records=payload[position : position + size])
                position += size
            portions.append(portion)
        if position != len(payload):
            raise msgspec.DecodeError(f"{len(payload)} bytes where {position} were announced")
        return LeaderAnswer(head.session_id, tuple(portions))


class _AnswerHead(msgspec.Struct, frozen=True, array_like=True):
    session_id: int
    portions: tuple[tuple[Portion, int], ...]
    """Each portion without its records, and the size of its records in bytes."""


def _head_of(portion: Portion) -> tuple[Portion, int]:
    size = len(portion.records)
    return (msgspec.structs.replace(portion, records=NOTHING) if size else portion), size


_SIZE: Final = struct.Struct(">I")
_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(_AnswerHead)

FETCH: Final = FetchCall(CallKind.FETCH, FollowerFetch, LeaderAnswer)
WAKE: Final = TypedCall(CallKind.WAKE, Wake, Woken)

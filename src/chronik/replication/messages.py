"""The fetch protocol between followers and leaders. Fields never change; new ones are added at the end."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

import msgspec

from chronik.files import Buffer
from chronik.peers.calls import CallKind, TypedCall
from chronik.protocol.errors import ErrorCode

NO_SESSION: Final = 0
NO_EPOCH: Final = -1
UNKNOWN: Final = -1
NO_RECORDS: Final = memoryview(b"")

PartitionId = tuple[bytes, int]
"""Key of a partition: its topic id and its index in the topic."""


class FollowerPosition(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A follower's position: all records before `offset` are durable, and `last_epoch` is the epoch of the last one."""

    topic_id: bytes
    partition: int
    leader_epoch: int
    """Leader epoch known to the follower."""
    offset: int
    last_epoch: int
    log_start_offset: int


class FollowerFetchRequest(msgspec.Struct, frozen=True, array_like=True):
    """A follower's fetch request. The first of a session lists all partitions; later ones only changed positions."""

    broker_epoch: int
    session_id: int
    session_epoch: int
    """Sequence number of the fetch within its session, used to detect lost requests."""
    positions: tuple[FollowerPosition, ...]
    forgotten: tuple[PartitionId, ...] = ()
    max_wait_ms: int = 0
    max_bytes: int = 0


class PartitionChunk(msgspec.Struct, frozen=True, array_like=True):
    """A part of the leader's fetch response: the records of one partition, or an error.

    If `diverging_end` >= 0, the logs diverge: the leader's `diverging_epoch` ends there, and the follower must truncate
    its log. With OFFSET_OUT_OF_RANGE, the two offsets are those of the leader's log.
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


class FollowerFetchResponse(msgspec.Struct, frozen=True, array_like=True):
    """The leader's response to a fetch request. Session id 0 means that the follower must start a new session."""

    session_id: int
    chunks: tuple[PartitionChunk, ...] = ()


class WakeRequest(msgspec.Struct, frozen=True, array_like=True):
    """A follower's request that the leader answers its pending fetch immediately."""

    session_id: int


class WakeResponse(msgspec.Struct, frozen=True, array_like=True):
    """The empty response to a WakeRequest."""


class FetchCall(TypedCall[FollowerFetchRequest, FollowerFetchResponse]):
    """The peer call that fetches records from a leader. The records follow the encoded response without copying."""

    def encode_response(self, answer: FollowerFetchResponse) -> Sequence[Buffer]:
        header = _encoder.encode(_ResponseHeader(answer.session_id, tuple(map(_detach_records, answer.chunks))))
        records = [portion.records for portion in answer.chunks if portion.records]
        return [_SIZE.pack(len(header)), header, *records]

    def decode_response(self, payload: memoryview) -> FollowerFetchResponse:
        """Decode a response. Raise msgspec.DecodeError if it is malformed."""
        position = _SIZE.size + int.from_bytes(payload[: _SIZE.size], "big")
        header = _decoder.decode(payload[_SIZE.size : position])
        portions = []
        for portion, size in header.portions:
            if size:
                portion = msgspec.structs.replace(portion, records=payload[position : position + size])
                position += size
            portions.append(portion)
        if position != len(payload):
            raise msgspec.DecodeError(f"fetch response has {len(payload)} bytes, expected {position}")
        return FollowerFetchResponse(header.session_id, tuple(portions))


class _ResponseHeader(msgspec.Struct, frozen=True, array_like=True):
    session_id: int
    portions: tuple[tuple[PartitionChunk, int], ...]
    """The chunks of the fetch response without their records, each with the size of its records in bytes."""


def _detach_records(portion: PartitionChunk) -> tuple[PartitionChunk, int]:
    size = len(portion.records)
    return (msgspec.structs.replace(portion, records=NO_RECORDS) if size else portion), size


_SIZE: Final = struct.Struct(">I")
_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(_ResponseHeader)

FETCH: Final = FetchCall(CallKind.FETCH, FollowerFetchRequest, FollowerFetchResponse)
WAKE: Final = TypedCall(CallKind.WAKE, WakeRequest, WakeResponse)

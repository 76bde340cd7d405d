"""What nodes say to each other, and its form on the wire: a version byte, then MessagePack `[kind, field, ...]`.

Every message carries its sender's *current* term, a request to vote beforehand too: there is one meaning of `term`,
and a node that sees a higher one than its own joins it. Kinds never change; a field may be added only at the end, with
a default.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import Meta

from chronik.errors import BadMessage
from chronik.limits import PEER_MESSAGE_BYTES_MAX
from chronik.raft.entries import Entry, SnapshotMetadata
from chronik.raft.rules import Promise

VERSION: Final = 1

Index = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Directory = Annotated[bytes, Meta(min_length=16, max_length=16)]


class Message(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, kw_only=True):
    """Who says it, and to whom; see `membership` for why a directory is part of both."""

    source: int
    source_directory: Directory
    target: int
    target_directory: Directory
    term: Index


class VoteRequest(Message, tag=1, frozen=True, kw_only=True):
    last_index: Index
    last_term: Index
    membership_index: Index
    is_pre_vote: bool
    is_hand_over: bool
    """The leader itself asked the sender to stand: leases do not protect a leader that wants to go."""


class VoteAck(Message, tag=2, frozen=True, kw_only=True):
    is_pre_vote: bool
    is_granted: bool


class Append(Message, tag=3, frozen=True, kw_only=True):
    previous_index: Index
    previous_term: Index
    entries: tuple[Entry, ...]
    commit: Index


class AppendAck(Message, tag=4, frozen=True, kw_only=True):
    """`match_index` is how far the sender's durable log equals the leader's."""

    match_index: Index
    is_rejected: bool = False
    rejected_index: Index = 0
    """The `previous_index` that was not there, so that the leader can tell an old rejection from a new one."""
    hint_index: Index = 0
    hint_term: Index = 0
    """The last entry of the sender that may be common to both: whole terms are skipped instead of single entries."""


class Heartbeat(Message, tag=5, frozen=True, kw_only=True):
    commit: Index
    round: Index
    """The round of reads: an answer to it shows that the sender still followed when it was begun."""


class HeartbeatAck(Message, tag=6, frozen=True, kw_only=True):
    round: Index


class SnapshotChunk(Message, tag=7, frozen=True, kw_only=True):
    snapshot: SnapshotMetadata
    offset: Index
    data: bytes


class SnapshotAck(Message, tag=8, frozen=True, kw_only=True):
    """`next_offset` bytes are on the sender's disk; when it has the whole it sends an AppendAck instead."""

    index: Index
    next_offset: Index


class TimeoutNow(Message, tag=9, frozen=True, kw_only=True):
    """Stand for election at once: the leader hands over."""


class ReadRequest(Message, tag=10, frozen=True, kw_only=True):
    request: Index


class ReadAck(Message, tag=11, frozen=True, kw_only=True):
    request: Index
    index: Index
    is_refused: bool = False


AnyMessage = (
    VoteRequest
    | VoteAck
    | Append
    | AppendAck
    | Heartbeat
    | HeartbeatAck
    | SnapshotChunk
    | SnapshotAck
    | TimeoutNow
    | ReadRequest
    | ReadAck
)

LEADERS_MESSAGES: Final = (Append, Heartbeat, SnapshotChunk)
"""Only the leader of their term sends these: to receive one is to know who leads."""

PROMISES: Final[dict[type[Message], Promise]] = {
    VoteRequest: Promise.TERM,  # a candidate has voted for itself
    VoteAck: Promise.TERM,
    HeartbeatAck: Promise.TERM,  # must not wait for entries: a slow disk is not a lost peer
    AppendAck: Promise.LOG,
    SnapshotAck: Promise.LOG,
    Append: Promise.NOTHING,
    Heartbeat: Promise.NOTHING,
    SnapshotChunk: Promise.NOTHING,
    TimeoutNow: Promise.NOTHING,
    ReadRequest: Promise.NOTHING,
    ReadAck: Promise.NOTHING,
}

_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(AnyMessage)


def encode_message(message: Message) -> bytes:
    data = bytes((VERSION,)) + _encoder.encode(message)
    if len(data) > PEER_MESSAGE_BYTES_MAX:
        raise BadMessage(f"a message of {len(data)} bytes is larger than {PEER_MESSAGE_BYTES_MAX}")
    return data


def decode_message(data: bytes | bytearray | memoryview) -> AnyMessage:
    """Raises BadMessage."""
    if not 0 < len(data) <= PEER_MESSAGE_BYTES_MAX:
        raise BadMessage(f"a message has 1 to {PEER_MESSAGE_BYTES_MAX} bytes, not {len(data)}")
    if data[0] != VERSION:
        raise BadMessage(f"version {data[0]} of the peer protocol is unknown, ours is {VERSION}")
    try:
        message: AnyMessage = _decoder.decode(memoryview(data)[1:])
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadMessage(f"not a message: {error}") from error
    check(message)
    return message


def check(message: AnyMessage) -> None:
    """Raises BadMessage when the parts of a message contradict each other."""
    if isinstance(message, Append):
        term = message.previous_term
        for index, entry in enumerate(message.entries, message.previous_index + 1):
            if entry.index != index or not term <= entry.term <= message.term:
                raise BadMessage(f"entry {entry.index} of term {entry.term} stands where {index} should be")
            term = entry.term
    elif isinstance(message, SnapshotChunk) and message.offset + len(message.data) > message.snapshot.size_bytes:
        raise BadMessage(f"a piece at {message.offset} goes beyond the {message.snapshot.size_bytes} of the snapshot")

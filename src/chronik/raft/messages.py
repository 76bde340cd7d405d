"""Messages between Raft nodes and their wire format: a version byte, then a MessagePack array `[tag, field, ...]`.

Every message carries the sender's current term, including pre-vote requests, and a node that receives a higher term
enters it. Tags never change; new fields are only added at the end, with a default.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import Meta

from chronik.errors import InvalidPeerMessage
from chronik.limits import PEER_MESSAGE_BYTES_MAX
from chronik.raft.entries import RaftEntry, SnapshotMetadata
from chronik.raft.rules import Durability

VERSION: Final = 1

Index = Annotated[int, Meta(ge=0, le=2**63 - 1)]
DirectoryId = Annotated[bytes, Meta(min_length=16, max_length=16)]


class RaftMessage(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, kw_only=True):
    """The base class of messages between Raft nodes, which identify nodes by node id and data directory id."""

    source: int
    source_directory: DirectoryId
    target: int
    target_directory: DirectoryId
    term: Index


class VoteRequest(RaftMessage, tag=1, frozen=True, kw_only=True):
    """A candidate's request for a vote or for a pre-vote (RequestVote in the Raft paper)."""

    last_index: Index
    last_term: Index
    membership_index: Index
    is_pre_vote: bool
    is_leadership_transfer: bool
    """Whether the leader has requested this election to transfer its leadership, which overrides leader leases."""


class VoteAck(RaftMessage, tag=2, frozen=True, kw_only=True):
    """The response to a VoteRequest, which grants or denies the vote."""

    is_pre_vote: bool
    is_granted: bool


class Append(RaftMessage, tag=3, frozen=True, kw_only=True):
    """The leader's request to append entries after `previous_index` (AppendEntries in the Raft paper)."""

    previous_index: Index
    previous_term: Index
    entries: tuple[RaftEntry, ...]
    commit: Index


class AppendAck(RaftMessage, tag=4, frozen=True, kw_only=True):
    """The response to an Append. Up to `match_index`, the follower's durable log matches the leader's log."""

    match_index: Index
    is_rejected: bool = False
    rejected_index: Index = 0
    """The `previous_index` at which the logs do not match, by which the leader ignores outdated rejections."""
    hint_index: Index = 0
    hint_term: Index = 0
    """The index and term of the last entry that may match the leader's log, so that the leader can skip whole terms."""


class Heartbeat(RaftMessage, tag=5, frozen=True, kw_only=True):
    """The leader's heartbeat, with its commit index and the number of the current read round."""

    commit: Index
    round: Index
    """The number of the read round that the response confirms."""


class HeartbeatAck(RaftMessage, tag=6, frozen=True, kw_only=True):
    """The response to a Heartbeat."""

    round: Index


class SnapshotChunk(RaftMessage, tag=7, frozen=True, kw_only=True):
    """A chunk of the leader's snapshot (InstallSnapshot in the Raft paper)."""

    snapshot: SnapshotMetadata
    offset: Index
    data: bytes


class SnapshotAck(RaftMessage, tag=8, frozen=True, kw_only=True):
    """The response to a SnapshotChunk: the first `next_offset` bytes of the snapshot are durable."""

    index: Index
    next_offset: Index


class TimeoutNow(RaftMessage, tag=9, frozen=True, kw_only=True):
    """The leader's request to start an election immediately, which transfers its leadership."""


class ReadRequest(RaftMessage, tag=10, frozen=True, kw_only=True):
    """A follower's request to the leader for a confirmed read index (ReadIndex)."""

    request: Index


class ReadAck(RaftMessage, tag=11, frozen=True, kw_only=True):
    """The response to a ReadRequest, with the confirmed read index or a rejection."""

    request: Index
    index: Index
    is_rejected: bool = False


AnyRaftMessage = (
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

LEADER_MESSAGES: Final = (Append, Heartbeat, SnapshotChunk)
"""The types of messages that only the leader of a term sends and by which followers recognize it."""

REQUIRED_DURABILITY: Final[dict[type[RaftMessage], Durability]] = {
    VoteRequest: Durability.TERM,  # a candidate has voted for itself
    VoteAck: Durability.TERM,
    HeartbeatAck: Durability.TERM,  # must not wait for entries: a slow disk is not a lost peer
    AppendAck: Durability.LOG,
    SnapshotAck: Durability.LOG,
    Append: Durability.NOTHING,
    Heartbeat: Durability.NOTHING,
    SnapshotChunk: Durability.NOTHING,
    TimeoutNow: Durability.NOTHING,
    ReadRequest: Durability.NOTHING,
    ReadAck: Durability.NOTHING,
}

_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(AnyRaftMessage)


def encode_message(message: RaftMessage) -> bytes:
    """Encode a Raft message. Raise InvalidPeerMessage if it exceeds the maximum size."""
    data = bytes((VERSION,)) + _encoder.encode(message)
    if len(data) > PEER_MESSAGE_BYTES_MAX:
        raise InvalidPeerMessage(f"Raft message of {len(data)} bytes exceeds the maximum of {PEER_MESSAGE_BYTES_MAX}")
    return data


def decode_message(data: bytes | bytearray | memoryview) -> AnyRaftMessage:
    """Decode a Raft message. Raise InvalidPeerMessage if it is invalid."""
    if not 0 < len(data) <= PEER_MESSAGE_BYTES_MAX:
        raise InvalidPeerMessage(f"Raft message of {len(data)} bytes: must have 1 to {PEER_MESSAGE_BYTES_MAX} bytes")
    if data[0] != VERSION:
        raise InvalidPeerMessage(f"Raft message version {data[0]} is not supported (supported: {VERSION})")
    try:
        message: AnyRaftMessage = _decoder.decode(memoryview(data)[1:])
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidPeerMessage(f"malformed Raft message: {error}") from error
    check_message(message)
    return message


def check_message(message: AnyRaftMessage) -> None:
    """Raise InvalidPeerMessage if the fields of a Raft message contradict each other."""
    if isinstance(message, Append):
        term = message.previous_term
        for index, entry in enumerate(message.entries, message.previous_index + 1):
            if entry.index != index or not term <= entry.term <= message.term:
                raise InvalidPeerMessage(
                    f"Raft Append: entry {entry.index} of term {entry.term} found at index {index}"
                )
            term = entry.term
    elif isinstance(message, SnapshotChunk) and message.offset + len(message.data) > message.snapshot.size_bytes:
        raise InvalidPeerMessage(f"snapshot chunk at {message.offset} exceeds the size {message.snapshot.size_bytes}")

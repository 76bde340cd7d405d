from __future__ import annotations

import random
from typing import Any, get_args

import pytest

from chronik.errors import InvalidPeerMessage
from chronik.limits import PEER_MESSAGE_BYTES_MAX
from chronik.raft.entries import EntryKind, RaftEntry, SnapshotMetadata
from chronik.raft.membership import Membership, RaftMember
from chronik.raft.messages import (
    REQUIRED_DURABILITY,
    VERSION,
    AnyRaftMessage,
    Append,
    AppendAck,
    Heartbeat,
    HeartbeatAck,
    RaftMessage,
    ReadAck,
    ReadRequest,
    SnapshotAck,
    SnapshotChunk,
    TimeoutNow,
    VoteAck,
    VoteRequest,
    decode_message,
    encode_message,
)

HEAD: dict[str, Any] = {
    "source": 1,
    "source_directory": bytes(15) + b"a",
    "target": 2,
    "target_directory": bytes(15) + b"b",
    "term": 7,
}
ENTRIES = (RaftEntry(4, 6, EntryKind.NOOP, b""), RaftEntry(5, 7, EntryKind.COMMAND, b"data"))
SNAPSHOT = SnapshotMetadata(
    9, 6, Membership((RaftMember(1, bytes(16), True), RaftMember(2, bytes(16), False))), 10, 123
)

MESSAGES: list[AnyRaftMessage] = [
    VoteRequest(**HEAD, last_index=3, last_term=2, membership_index=1, is_pre_vote=True, is_leadership_transfer=False),
    VoteAck(**HEAD, is_pre_vote=False, is_granted=True),
    Append(**HEAD, previous_index=3, previous_term=6, entries=ENTRIES, commit=2),
    AppendAck(**HEAD, match_index=4, is_rejected=True, rejected_index=9, hint_index=3, hint_term=2),
    Heartbeat(**HEAD, commit=4, round=8),
    HeartbeatAck(**HEAD, round=8),
    SnapshotChunk(**HEAD, snapshot=SNAPSHOT, offset=2, data=b"12345678"),
    SnapshotAck(**HEAD, index=9, next_offset=10),
    TimeoutNow(**HEAD),
    ReadRequest(**HEAD, request=77),
    ReadAck(**HEAD, request=77, index=5),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_message_round_trips_through_encoding(message: AnyRaftMessage) -> None:
    assert decode_message(encode_message(message)) == message


def test_every_message_type_has_required_durability() -> None:
    kinds: set[type[RaftMessage]] = set(get_args(AnyRaftMessage))
    assert {type(message) for message in MESSAGES} == kinds == set(REQUIRED_DURABILITY)


def test_wire_format_is_stable() -> None:
    data = encode_message(HeartbeatAck(**HEAD, round=8))
    directories = (b"\xc4\x10" + bytes(15) + b"a", b"\xc4\x10" + bytes(15) + b"b")
    assert data == b"\x01\x97\x06\x01" + directories[0] + b"\x02" + directories[1] + b"\x07\x08"


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_damaged_message_raises_no_unexpected_exception(message: AnyRaftMessage) -> None:
    data = encode_message(message)
    for length in range(len(data)):
        with pytest.raises(InvalidPeerMessage):
            decode_message(data[:length])
    randomness = random.Random(1)
    for _ in range(300):
        damaged = bytearray(data)
        damaged[randomness.randrange(len(damaged))] ^= 1 << randomness.randrange(8)
        try:
            decode_message(bytes(damaged))
        except InvalidPeerMessage:
            continue


def test_unsupported_version_is_rejected() -> None:
    data = bytearray(encode_message(MESSAGES[0]))
    data[0] = VERSION + 1
    with pytest.raises(InvalidPeerMessage, match="version 2"):
        decode_message(bytes(data))


def test_message_larger_than_maximum_is_rejected() -> None:
    empty = SnapshotMetadata(1, 1, Membership(), 2**40, 0)
    overhead = len(encode_message(SnapshotChunk(**HEAD, snapshot=empty, offset=0, data=bytes(2**16)))) - 2**16
    largest = SnapshotChunk(**HEAD, snapshot=empty, offset=0, data=bytes(PEER_MESSAGE_BYTES_MAX - overhead))
    data = encode_message(largest)
    assert len(data) == PEER_MESSAGE_BYTES_MAX
    assert decode_message(data) == largest
    larger = bytes(PEER_MESSAGE_BYTES_MAX - overhead + 1)
    with pytest.raises(InvalidPeerMessage, match="exceeds the maximum"):
        encode_message(SnapshotChunk(**HEAD, snapshot=empty, offset=0, data=larger))
    with pytest.raises(InvalidPeerMessage, match="1 to"):
        decode_message(data + b"x")


@pytest.mark.parametrize(
    "entries",
    [
        (RaftEntry(5, 6, EntryKind.NOOP, b""),),
        (RaftEntry(4, 5, EntryKind.NOOP, b""),),
        (RaftEntry(4, 8, EntryKind.NOOP, b""),),
        (RaftEntry(4, 7, EntryKind.NOOP, b""), RaftEntry(5, 6, EntryKind.NOOP, b"")),
    ],
    ids=["index gap", "decreasing term", "future term", "unordered terms"],
)
def test_append_with_inconsistent_entries_is_rejected(entries: tuple[RaftEntry, ...]) -> None:
    message = Append(**HEAD, previous_index=3, previous_term=6, entries=entries, commit=2)
    with pytest.raises(InvalidPeerMessage, match="found at index"):
        decode_message(encode_message(message))


def test_snapshot_chunk_beyond_end_is_rejected() -> None:
    with pytest.raises(InvalidPeerMessage, match="exceeds the size"):
        decode_message(encode_message(SnapshotChunk(**HEAD, snapshot=SNAPSHOT, offset=3, data=b"12345678")))

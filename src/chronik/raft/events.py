"""Events that a driver passes to a Raft node, and the `Ready` instructions that the node returns.

A `context` is a number chosen by the driver. The core returns it unchanged with the outcome of the request.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Final

import msgspec

from chronik.raft.entries import HardState, RaftEntry, SnapshotMetadata
from chronik.raft.membership import MembershipChange
from chronik.raft.messages import AnyRaftMessage
from chronik.raft.roles import Role, RoleTransition

# ------------------------------------------------------------------------------------------------------------- events


class Tick(msgspec.Struct, frozen=True):
    """The event that one tick of the Raft clock has passed."""


class MessageReceived(msgspec.Struct, frozen=True):
    """The event that a message from a peer has arrived."""

    message: AnyRaftMessage


class Campaign(msgspec.Struct, frozen=True):
    """The request to start an election immediately (in single-node clusters and tests)."""


class Propose(msgspec.Struct, frozen=True):
    """The request to append commands to the log, either all of them consecutively or none."""

    commands: tuple[bytes, ...]
    context: int


class ChangeMembership(msgspec.Struct, frozen=True):
    """The request to change the cluster membership by one node."""

    change: MembershipChange
    context: int


class TransferLeadership(msgspec.Struct, frozen=True):
    """The request to transfer the leadership to the node `target`."""

    target: int
    context: int


class ReadIndex(msgspec.Struct, frozen=True):
    """The request for the log index that must be applied before a local read is linearizable."""

    context: int


class Persisted(msgspec.Struct, frozen=True):
    """The event that the current write, a `Persist` instruction, is durable."""

    sequence: int


class EntriesApplied(msgspec.Struct, frozen=True):
    """The event that the state machine has applied all entries up to `index`."""

    index: int


class SnapshotTaken(msgspec.Struct, frozen=True):
    """The event that a local snapshot was taken, so that the log may be compacted up to `compact_through`.

    Entries kept before the snapshot's index let a slightly lagging peer catch up without a snapshot.
    """

    snapshot: SnapshotMetadata
    compact_through: int


class SnapshotChunkRead(msgspec.Struct, frozen=True):
    """The event that a snapshot chunk was read for a peer; `data` is None if the snapshot no longer exists."""

    peer: int
    index: int
    offset: int
    data: bytes | None


class PeerUnreachable(msgspec.Struct, frozen=True):
    """The event that messages to a peer were lost, so that its replication returns to the PROBE state."""

    peer: int


class PeerConnected(msgspec.Struct, frozen=True):
    """The event that a connection to a peer was established. It is a hint and may be outdated or repeated."""

    peer: int


class PeerDown(msgspec.Struct, frozen=True):
    """The event that a peer's process has stopped, as its port refuses connections.

    This is a hint and may be wrong or duplicated.
    """

    peer: int


RaftEvent = (
    Tick
    | MessageReceived
    | Campaign
    | Propose
    | ChangeMembership
    | TransferLeadership
    | ReadIndex
    | Persisted
    | EntriesApplied
    | SnapshotTaken
    | SnapshotChunkRead
    | PeerUnreachable
    | PeerConnected
    | PeerDown
)

# ------------------------------------------------------------------------------------------------------- instructions


class RejectionReason(StrEnum):
    """The reason why a Raft node rejects a request. The values are part of the peer protocol and must never change."""

    NOT_LEADER = "not leader"
    TRANSFER_IN_PROGRESS = "leadership is being handed over"
    OVERLOADED = "too much waits already"
    TOO_LARGE = "an entry is too large"
    CHANGE_PENDING = "another membership change is not committed yet"
    NOT_CAUGHT_UP = "the learner has not caught up"
    INVALID_CHANGE = "that makes no sense in the current membership"

    @property
    def message(self) -> str:
        """The description of the reason for users."""
        return _REJECTION_MESSAGES[self]


_REJECTION_MESSAGES: Final[Mapping[RejectionReason, str]] = {
    RejectionReason.NOT_LEADER: "the node is not the leader",
    RejectionReason.TRANSFER_IN_PROGRESS: "a leadership transfer is in progress",
    RejectionReason.OVERLOADED: "too many requests are pending",
    RejectionReason.TOO_LARGE: "the entry is too large",
    RejectionReason.CHANGE_PENDING: "another membership change is not committed yet",
    RejectionReason.NOT_CAUGHT_UP: "the learner has not caught up",
    RejectionReason.INVALID_CHANGE: "the change is invalid for the current membership",
}


class RequestAccepted(msgspec.Struct, frozen=True):
    """The outcome of a proposal that was appended at `first_index`, or of a leadership transfer that was started.

    The proposal is not committed yet. If the term changes before it is applied, its outcome is unknown.
    """

    context: int
    term: int
    first_index: int


class RequestRejected(msgspec.Struct, frozen=True):
    """The outcome of a rejected request. `leader` is the leader to which it can be sent instead, or NO_NODE."""

    context: int
    reason: RejectionReason
    leader: int


class ReadIndexConfirmed(msgspec.Struct, frozen=True):
    """The outcome of a read that is linearizable once the local state machine has applied `index`."""

    context: int
    index: int


class StoreChunk(msgspec.Struct, frozen=True):
    """The instruction to store a chunk of an incoming snapshot. A chunk at offset 0 discards all earlier chunks."""

    snapshot: SnapshotMetadata
    offset: int
    data: bytes


class Persist(msgspec.Struct, frozen=True):
    """The instruction to make Raft state durable, in the order of the fields, and to report `Persisted(sequence)`.

    A crash may leave any prefix of it, including a prefix of its `entries`.
    """

    sequence: int
    chunks: tuple[StoreChunk, ...] = ()
    install: SnapshotMetadata | None = None
    """The complete incoming snapshot that replaces the whole log."""
    entries: tuple[RaftEntry, ...] = ()
    """The entries to append, after truncating the log at the first one's index."""
    hard_state: HardState | None = None
    compact_through: int = 0
    """The index up to which the log may be compacted."""


class SnapshotChunkRequest(msgspec.Struct, frozen=True):
    """The instruction to read a snapshot chunk for a peer and to report it as `SnapshotChunkRead`."""

    peer: int
    index: int
    offset: int
    bytes_max: int


class RaftStatus(msgspec.Struct, frozen=True):
    """The role and term of a Raft node, and the leader that it knows."""

    role: Role
    term: int
    leader: int


class Ready(msgspec.Struct):
    """The instructions of the Raft core to its driver: state to persist, messages to send and entries to apply."""

    persist: Persist | None = None
    messages: list[AnyRaftMessage] = msgspec.field(default_factory=list)
    restore: SnapshotMetadata | None = None
    """The snapshot that the state machine must load before it applies further entries."""
    committed: Sequence[RaftEntry] = ()
    outcomes: list[RequestAccepted | RequestRejected | ReadIndexConfirmed] = msgspec.field(default_factory=list)
    """The outcomes of proposals, membership changes, leadership transfers and reads, each reported once."""
    chunk_requests: list[SnapshotChunkRequest] = msgspec.field(default_factory=list)
    status: RaftStatus | None = None
    """The new role, term and leader if any of them has changed, else None."""
    role_transitions: list[RoleTransition] = msgspec.field(default_factory=list)
    """The role transitions of the node, for logs and metrics."""

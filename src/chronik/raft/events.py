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
    """An event: one tick of the driver's clock has passed."""


class MessageReceived(msgspec.Struct, frozen=True):
    """An event: a message from a peer has arrived."""

    message: AnyRaftMessage


class Campaign(msgspec.Struct, frozen=True):
    """A request to start an election without waiting for the timeout (single-node clusters and tests)."""


class Propose(msgspec.Struct, frozen=True):
    """A request to append all of `commands` consecutively, or none of them."""

    commands: tuple[bytes, ...]
    context: int


class ChangeMembership(msgspec.Struct, frozen=True):
    """A request to change the cluster membership by appending the changed membership to the log."""

    change: MembershipChange
    context: int


class TransferLeadership(msgspec.Struct, frozen=True):
    """A request to transfer leadership to the node `target`."""

    target: int
    context: int


class ReadIndex(msgspec.Struct, frozen=True):
    """A request for the index that must be applied before a local read is linearizable. Any node accepts it."""

    context: int


class Persisted(msgspec.Struct, frozen=True):
    """An event: the outstanding `Persist` is durable."""

    sequence: int


class EntriesApplied(msgspec.Struct, frozen=True):
    """An event: the state machine has applied all entries up to `index`."""

    index: int


class SnapshotTaken(msgspec.Struct, frozen=True):
    """An event: the driver has taken a snapshot, and the log may be compacted up to `compact_through`.

    Entries kept before the snapshot's index let a slightly lagging peer catch up without a snapshot.
    """

    snapshot: SnapshotMetadata
    compact_through: int


class SnapshotChunkRead(msgspec.Struct, frozen=True):
    """The response to a `SnapshotChunkRequest`; `data` is None if the snapshot no longer exists."""

    peer: int
    index: int
    offset: int
    data: bytes | None


class PeerUnreachable(msgspec.Struct, frozen=True):
    """An event: the transport has dropped messages to this peer. Replication returns to the PROBE state."""

    peer: int


class PeerConnected(msgspec.Struct, frozen=True):
    """An event: a connection to the peer was established. This is only a hint; it may be outdated or repeated."""

    peer: int


class PeerDown(msgspec.Struct, frozen=True):
    """An event: the peer's process appears to have stopped, because its port refuses connections.

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
    """The reason why a Raft node rejected a request. The values are sent between nodes and must never change."""

    NOT_LEADER = "not leader"
    TRANSFER_IN_PROGRESS = "leadership is being handed over"
    OVERLOADED = "too much waits already"
    TOO_LARGE = "an entry is too large"
    CHANGE_PENDING = "another membership change is not committed yet"
    NOT_CAUGHT_UP = "the learner has not caught up"
    INVALID_CHANGE = "that makes no sense in the current membership"

    @property
    def message(self) -> str:
        """Text for users."""
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
    """An outcome: the leader has appended the proposal at `first_index`, or has started the leadership transfer.

    The proposal is not committed yet. If the term changes before it is applied, its outcome is unknown.
    """

    context: int
    term: int
    first_index: int


class RequestRejected(msgspec.Struct, frozen=True):
    """An outcome: the node rejected the request. `leader` is the node to send it to instead, or NO_NODE."""

    context: int
    reason: RejectionReason
    leader: int


class ReadConfirmed(msgspec.Struct, frozen=True):
    """An outcome: the read is linearizable once the local state machine has applied `index`."""

    context: int
    index: int


class StoreChunk(msgspec.Struct, frozen=True):
    """An incoming snapshot chunk to store. A chunk at offset 0 discards all previously stored chunks."""

    snapshot: SnapshotMetadata
    offset: int
    data: bytes


class Persist(msgspec.Struct, frozen=True):
    """An instruction to make state durable in the order of the fields, then report `Persisted(sequence)`.

    A crash may leave any prefix of it, including a prefix of its `entries`.
    """

    sequence: int
    chunks: tuple[StoreChunk, ...] = ()
    install: SnapshotMetadata | None = None
    """Complete incoming snapshot that becomes this node's snapshot and replaces the whole log."""
    entries: tuple[RaftEntry, ...] = ()
    """Entries to append, after truncating the log at the index of the first one."""
    hard_state: HardState | None = None
    compact_through: int = 0
    """Index up to which the log may be compacted, immediately or later."""


class SnapshotChunkRequest(msgspec.Struct, frozen=True):
    """An instruction to read a snapshot chunk for a peer and report it with `SnapshotChunkRead`."""

    peer: int
    index: int
    offset: int
    bytes_max: int


class RaftStatus(msgspec.Struct, frozen=True):
    """A node's role and term, and the leader known to the node."""

    role: Role
    term: int
    leader: int


class Ready(msgspec.Struct):
    """The instructions that `RaftNode.handle` returns: state to persist, messages to send, entries to apply."""

    persist: Persist | None = None
    messages: list[AnyRaftMessage] = msgspec.field(default_factory=list)
    restore: SnapshotMetadata | None = None
    """Snapshot that the state machine must load before it applies further entries."""
    committed: Sequence[RaftEntry] = ()
    outcomes: list[RequestAccepted | RequestRejected | ReadConfirmed] = msgspec.field(default_factory=list)
    """Outcomes of Propose, ChangeMembership, TransferLeadership and ReadIndex requests, each reported exactly once."""
    chunk_requests: list[SnapshotChunkRequest] = msgspec.field(default_factory=list)
    status: RaftStatus | None = None
    """Current role, term and leader; set only if they have changed."""
    role_transitions: list[RoleTransition] = msgspec.field(default_factory=list)
    """Role transitions, for logs and metrics."""

"""What happens to a node (events in), and what it wants done (a `Ready` out).

A `context` is a number that the driver chose; the core hands it back with the outcome and never looks at it.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

import msgspec

from chronik.raft.entries import Entry, HardState, SnapshotMetadata
from chronik.raft.membership import Change
from chronik.raft.messages import AnyMessage
from chronik.raft.roles import Role, Step

# ------------------------------------------------------------------------------------------------------------- events


class Tick(msgspec.Struct, frozen=True):
    """One tick of the driver's clock has passed."""


class Received(msgspec.Struct, frozen=True):
    message: AnyMessage


class Campaign(msgspec.Struct, frozen=True):
    """Stand for election without waiting for the timeout: a cluster of one need not wait, and tests like to choose."""


class Propose(msgspec.Struct, frozen=True):
    """All of `commands` are taken, in this order and side by side, or none."""

    commands: tuple[bytes, ...]
    context: int


class ChangeMembership(msgspec.Struct, frozen=True):
    change: Change
    context: int


class TransferLeadership(msgspec.Struct, frozen=True):
    target: int
    context: int


class ReadIndex(msgspec.Struct, frozen=True):
    """Asks from which index on a read of the local state is linearizable. Any node may be asked."""

    context: int


class Persisted(msgspec.Struct, frozen=True):
    """The outstanding `Persist` is durable."""

    sequence: int


class Applied(msgspec.Struct, frozen=True):
    """The state machine has taken everything up to `index`."""

    index: int


class SnapshotTaken(msgspec.Struct, frozen=True):
    """The driver holds a snapshot of its own, and the log through `compact_through` may go.

    Some entries before the snapshot are worth keeping: a peer that lags behind by them is spared a snapshot.
    """

    snapshot: SnapshotMetadata
    compact_through: int


class SnapshotChunkRead(msgspec.Struct, frozen=True):
    """The answer to a `SnapshotChunkWanted`; `data` is None when that snapshot no longer exists."""

    peer: int
    index: int
    offset: int
    data: bytes | None


class PeerUnreachable(msgspec.Struct, frozen=True):
    """The transport has dropped messages for this peer: do not send many more before it answers one."""

    peer: int


class PeerReached(msgspec.Struct, frozen=True):
    """There is a connection with the peer again, or for the first time. A hint, which may be wrong or come twice."""

    peer: int


class PeerGone(msgspec.Struct, frozen=True):
    """The peer's process has ended, as far as the transport can see: nobody listens at its port. A hint, which may be
    wrong or come twice."""

    peer: int


Event = (
    Tick
    | Received
    | Campaign
    | Propose
    | ChangeMembership
    | TransferLeadership
    | ReadIndex
    | Persisted
    | Applied
    | SnapshotTaken
    | SnapshotChunkRead
    | PeerUnreachable
    | PeerReached
    | PeerGone
)

# ------------------------------------------------------------------------------------------------------- instructions


class Refusal(StrEnum):
    NOT_LEADER = "not leader"
    HANDING_OVER = "leadership is being handed over"
    OVERLOADED = "too much waits already"
    TOO_LARGE = "an entry is too large"
    CHANGE_PENDING = "another membership change is not committed yet"
    NOT_CAUGHT_UP = "the learner has not caught up"
    BAD_CHANGE = "that makes no sense in the current membership"


class Accepted(msgspec.Struct, frozen=True):
    """The proposal stands in the leader's log from `first_index` on. That is no commit: if the term moves before it is
    applied, its outcome is unknown. A transfer of leadership that is accepted is under way."""

    context: int
    term: int
    first_index: int


class Refused(msgspec.Struct, frozen=True):
    """The request was not carried out, and will not be. `leader` is the node to ask instead, or NOBODY."""

    context: int
    refusal: Refusal
    leader: int


class ReadConfirmed(msgspec.Struct, frozen=True):
    """The local state is fresh enough for this read once `index` is applied."""

    context: int
    index: int


class StoreChunk(msgspec.Struct, frozen=True):
    """A piece of an incoming snapshot. A piece at offset 0 begins anew: what was stored before it is dropped."""

    snapshot: SnapshotMetadata
    offset: int
    data: bytes


class Persist(msgspec.Struct, frozen=True):
    """What must be made durable, in the order of the fields, and then reported with `Persisted(sequence)`.

    A crash may leave any prefix of it, with only the first of its `entries` written.
    """

    sequence: int
    chunks: tuple[StoreChunk, ...] = ()
    install: SnapshotMetadata | None = None
    """The snapshot just received is complete: it becomes this node's snapshot, and the whole log is dropped."""
    entries: tuple[Entry, ...] = ()
    """They replace whatever the log holds from the index of the first entry on."""
    hard_state: HardState | None = None
    compact_through: int = 0
    """The log up to this index may be removed, when convenient."""


class SnapshotChunkWanted(msgspec.Struct, frozen=True):
    peer: int
    index: int
    offset: int
    bytes_max: int


class Status(msgspec.Struct, frozen=True):
    role: Role
    term: int
    leader: int


class Ready(msgspec.Struct):
    persist: Persist | None = None
    messages: list[AnyMessage] = msgspec.field(default_factory=list)
    restore: SnapshotMetadata | None = None
    """The state machine must load it before it applies anything else."""
    committed: Sequence[Entry] = ()
    outcomes: list[Accepted | Refused | ReadConfirmed] = msgspec.field(default_factory=list)
    """One for each Propose, ChangeMembership, TransferLeadership and ReadIndex, in this or a later Ready."""
    chunks_wanted: list[SnapshotChunkWanted] = msgspec.field(default_factory=list)
    status: Status | None = None
    """Set when it has changed."""
    steps: list[Step] = msgspec.field(default_factory=list)
    """Shown in logs and metrics."""

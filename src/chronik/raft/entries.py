"""The persistent state of a Raft node: log entries, hard state and snapshot metadata."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Final, Protocol

import msgspec

from chronik.raft.membership import NO_NODE, Membership

ENTRY_OVERHEAD_BYTES: Final = 32
"""The number of bytes counted per log entry in addition to its data, so that empty entries also count."""


class EntryKind(IntEnum):
    """The kind of a log entry. The numbers are stored on disk and must never be reused."""

    NOOP = 0
    """An empty entry with which a leader starts its term, whose commit also commits all earlier entries (§5.4.2)."""
    COMMAND = 1
    MEMBERSHIP = 2


class RaftEntry(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """An entry of the Raft log."""

    index: int
    term: int
    kind: EntryKind
    data: bytes

    @property
    def size_bytes(self) -> int:
        return len(self.data) + ENTRY_OVERHEAD_BYTES


class HardState(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """The durable term, vote and commit index of a Raft node.

    Term and vote are durable before a message that depends on them is sent. `commit` is an optimization for restarts.
    It never exceeds the last entry on the same disk, so a shorter log has lost synced entries.
    """

    term: int = 0
    vote: int = NO_NODE
    commit: int = 0


class SnapshotMetadata(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The metadata of a snapshot, which contains the state of the state machine after the entry at `index`.

    `checksum` is the CRC-32C of the snapshot's bytes.
    """

    index: int = 0
    term: int = 0
    membership: Membership = Membership()
    size_bytes: int = 0
    checksum: int = 0


class EntryStorage(Protocol):
    """The interface through which the Raft core reads durable log entries."""

    def entries(self, first: int, end: int, bytes_max: int) -> Sequence[RaftEntry]:
        """Return the entries from index `first` to `end` - 1, up to `bytes_max` in total but at least one.

        `handle` calls this method, so it must not block: the driver caches the tail of the log, which serves nearly
        all reads.
        """


class RecoveredRaftState(msgspec.Struct, frozen=True):
    """The state of a Raft node that is recovered from disk at startup.

    Storage completes an interrupted snapshot installation: a log without the snapshot's (index, term) is older than
    the snapshot or conflicts with it, and is discarded.
    """

    hard_state: HardState = HardState()
    snapshot: SnapshotMetadata = SnapshotMetadata()
    compacted_index: int = 0
    """The index of the last entry that compaction has removed from the log, or 0."""
    compacted_term: int = 0
    last_index: int = 0

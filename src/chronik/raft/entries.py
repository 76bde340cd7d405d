"""What a node must remember: the entries of the log, its hard state, and what a snapshot stands for."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Final, Protocol

import msgspec

from chronik.raft.membership import NOBODY, Membership

ENTRY_OVERHEAD_BYTES: Final = 32
"""What index, term, kind and framing take, on the wire and on disk: they count, so that empty entries are not free."""


class EntryKind(IntEnum):
    """Kinds are written to disk: never reuse a number."""

    NOOP = 0
    """The first entry of a leader: once it is committed, so is everything before it (§5.4.2 allows no other way)."""
    COMMAND = 1
    MEMBERSHIP = 2


class Entry(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    index: int
    term: int
    kind: EntryKind
    data: bytes

    @property
    def size_bytes(self) -> int:
        return len(self.data) + ENTRY_OVERHEAD_BYTES


class HardState(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """Term and vote are promises, durable before anybody hears of them. `commit` only saves work after a restart; it
    is never ahead of the entries on the same disk, so a log that ends before it has lost what was synced."""

    term: int = 0
    vote: int = NOBODY
    commit: int = 0


class SnapshotMetadata(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A snapshot holds the state after the entry at `index`; `checksum` is the CRC-32C of all its bytes."""

    index: int = 0
    term: int = 0
    membership: Membership = Membership()
    size_bytes: int = 0
    checksum: int = 0


class Storage(Protocol):
    """The durable entries, as far as the core has been told by `Persisted` that they are durable."""

    def entries(self, first: int, end: int, bytes_max: int) -> Sequence[Entry]:
        """Returns entries `first` to `end - 1`, fewer if they exceed `bytes_max`, but at least one.

        It is called from `handle`, so it must not wait: the driver keeps the tail of the log, which is nearly always
        what is read, in a bounded cache.
        """


class Recovered(msgspec.Struct, frozen=True):
    """What was found on disk. The log holds the entries after `floor_index`, up to `last_index`: perhaps none.

    Storage resolves what a crash in the middle of an install left behind: a log that does not hold the snapshot's own
    (index, term) is older than the snapshot or in conflict with it, and is discarded as a whole.
    """

    hard_state: HardState = HardState()
    snapshot: SnapshotMetadata = SnapshotMetadata()
    floor_index: int = 0
    """The index before the first entry: 0, or as far as the log was compacted (at most the snapshot's index)."""
    floor_term: int = 0
    last_index: int = 0

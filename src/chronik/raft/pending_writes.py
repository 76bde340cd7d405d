"""The outstanding write, the contents of the next one, and the messages that wait for them.

At most one write is outstanding, so writes cannot overtake each other, and the durable state is always well defined.
While it is in progress, the next write is collected; a slow disk leads to larger writes instead of more writes. Writes
are numbered, and a message that depends on durable state waits for the number of the write that contains it.
"""

from __future__ import annotations

from typing import Final

from chronik.crc import crc32c
from chronik.errors import check_invariant
from chronik.raft import rules
from chronik.raft.entries import HardState, SnapshotMetadata
from chronik.raft.events import Persist, StoreChunk
from chronik.raft.log import RaftLog
from chronik.raft.messages import AnyRaftMessage
from chronik.raft.rules import Durability

HELD_MESSAGES_MAX: Final = 1024
"""The maximum number of messages held back until a write is durable. Above this limit, the oldest are dropped."""


class IncomingSnapshot:
    """The state of a snapshot that the leader is sending: the size and checksum of the chunks received so far.

    The checksum is computed incrementally, so that the complete snapshot need not be read again.
    """

    def __init__(self, snapshot: SnapshotMetadata) -> None:
        self.snapshot = snapshot
        self.next_offset = 0
        self.checksum = 0

    def add_chunk(self, data: bytes) -> None:
        self.next_offset += len(data)
        self.checksum = crc32c(data, self.checksum)

    @property
    def is_finished(self) -> bool:
        return self.next_offset >= self.snapshot.size_bytes


class PendingWrites:
    """The writes of a Raft node to its disk, and the messages that must not be sent before a write is durable."""

    def __init__(self, log: RaftLog, hard_state: HardState) -> None:
        self._log = log
        self._outstanding: Persist | None = None
        self._held: list[tuple[int, AnyRaftMessage]] = []
        """The held messages, each with the number of the write that must be durable before the message is sent."""
        self.durable_sequence = 0
        self.durable_hard_state = hard_state
        self.chunks: list[StoreChunk] = []
        self.install: SnapshotMetadata | None = None
        self.compact_through = 0

    # -------------------------------------------------------------------------------------------------------- queries

    @property
    def next_sequence(self) -> int:
        """The sequence number of the next write."""
        return self._outstanding_sequence + 1

    @property
    def _outstanding_sequence(self) -> int:
        return self._outstanding.sequence if self._outstanding is not None else self.durable_sequence

    def is_term_durable(self, term: int, vote: int) -> bool:
        return (self.durable_hard_state.term, self.durable_hard_state.vote) == (term, vote)

    def _is_term_pending(self, term: int, vote: int) -> bool:
        """Return whether the term or the vote has changed since the current write was started."""
        hard_state_written = self.durable_hard_state
        if self._outstanding is not None and self._outstanding.hard_state is not None:
            hard_state_written = self._outstanding.hard_state
        return (hard_state_written.term, hard_state_written.vote) != (term, vote)

    def _is_write_needed(self, term: int, vote: int) -> bool:
        """Return whether any state needs to be written. A changed commit index alone does not."""
        return (
            self._is_term_pending(term, vote)
            or self._log.has_unpersisted
            or bool(self.chunks)
            or self.install is not None
            or self.compact_through > 0
        )

    def is_all_durable(self, term: int, vote: int) -> bool:
        return self._outstanding is None and not self._is_write_needed(term, vote)

    # ------------------------------------------------------------------------------------------------------ messages

    def hold_until_durable(self, message: AnyRaftMessage, promise: Durability, term: int, vote: int) -> None:
        """Hold a message back until the Raft state that it depends on is durable."""
        is_term_only = promise is Durability.TERM
        is_in_next = self._is_term_pending(term, vote) if is_term_only else self._is_write_needed(term, vote)
        self._held.append((self.next_sequence if is_in_next else self._outstanding_sequence, message))
        del self._held[:-HELD_MESSAGES_MAX]

    def drop_outdated_messages(self, term: int) -> None:
        self._held = [
            (required_sequence, message)
            for required_sequence, message in self._held
            if rules.is_message_valid_in_term(message.term, term)
        ]

    def release_durable_messages(self) -> list[AnyRaftMessage]:
        """Remove and return the held messages that may be sent because their writes are durable."""
        if not self._held:
            return []
        released = [message for required_sequence, message in self._held if required_sequence <= self.durable_sequence]
        self._held = [
            (required_sequence, message)
            for required_sequence, message in self._held
            if required_sequence > self.durable_sequence
        ]
        return released

    # --------------------------------------------------------------------------------------------------------- writes

    def start_next_write(self, term: int, vote: int, commit: int) -> Persist | None:
        """Return the next write, or None if a write is in progress or nothing has to be written."""
        if self._outstanding is not None or not self._is_write_needed(term, vote):
            return None
        # Write the commit index too, but only up to the index that was durable before this write: see HardState.
        hard_state = HardState(term, vote, min(commit, self._log.durable_index))
        self._outstanding = Persist(
            sequence=self.next_sequence,
            chunks=tuple(self.chunks),
            install=self.install,
            entries=self._log.take_unpersisted_entries(),
            hard_state=hard_state if hard_state != self.durable_hard_state else None,
            compact_through=self.compact_through,
        )
        self.chunks = []
        self.install = None
        self.compact_through = 0
        return self._outstanding

    def complete_write(self, sequence: int) -> None:
        written = self._outstanding
        check_invariant(
            written is not None and written.sequence == sequence, f"Raft: write {sequence} is not outstanding"
        )
        assert written is not None
        self._outstanding = None
        self.durable_sequence = sequence
        if written.hard_state is not None:
            self.durable_hard_state = written.hard_state
        self._log.mark_persisted()

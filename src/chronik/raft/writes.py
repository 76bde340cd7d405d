"""What is being written, what the next write will hold, and which messages wait for it.

There is at most one outstanding write. That is the whole protocol with the disk: "what is durable" has one answer at
any time, writes cannot overtake each other, and while one is under way the next gathers, so that a slow disk makes
larger writes and not more of them. Every write has a sequence number; a message that promises something waits for the
number of the write that makes it true.
"""

from __future__ import annotations

from typing import Final

from chronik.crc import crc32c
from chronik.errors import invariant
from chronik.raft import rules
from chronik.raft.entries import HardState, SnapshotMetadata
from chronik.raft.events import Persist, StoreChunk
from chronik.raft.log_view import LogView
from chronik.raft.messages import AnyMessage
from chronik.raft.rules import Promise

HELD_MESSAGES_MAX: Final = 1024
"""Answers that may wait for a slow disk. Beyond it the oldest are dropped: messages may be lost anyway."""


class IncomingSnapshot:
    """A snapshot on its way in: which one, and how much of it has been handed to storage. The checksum runs along, so
    that the whole is verified without reading it back."""

    def __init__(self, snapshot: SnapshotMetadata) -> None:
        self.snapshot = snapshot
        self.next_offset = 0
        self.checksum = 0

    def take(self, data: bytes) -> None:
        self.next_offset += len(data)
        self.checksum = crc32c(data, self.checksum)

    @property
    def is_finished(self) -> bool:
        return self.next_offset >= self.snapshot.size_bytes


class Writes:
    """The writes of one node. Term and vote are handed in: they change in one place only, `RaftCore`."""

    def __init__(self, log: LogView, hard_state: HardState) -> None:
        self._log = log
        self._outstanding: Persist | None = None
        self._held: list[tuple[int, AnyMessage]] = []
        """Pairs of a message and, before it, the sequence of the write that makes its promise true."""
        self.durable_sequence = 0
        self.durable_hard_state = hard_state
        self.chunks: list[StoreChunk] = []
        self.install: SnapshotMetadata | None = None
        self.compact_through = 0

    # ------------------------------------------------------------------------------------------------------- looking

    @property
    def next_sequence(self) -> int:
        """The sequence of the next write to be handed out."""
        return self._outstanding_sequence + 1

    @property
    def _outstanding_sequence(self) -> int:
        return self._outstanding.sequence if self._outstanding is not None else self.durable_sequence

    def is_term_durable(self, term: int, vote: int) -> bool:
        return (self.durable_hard_state.term, self.durable_hard_state.vote) == (term, vote)

    def _is_term_pending(self, term: int, vote: int) -> bool:
        """Whether term and vote are neither durable nor in the outstanding write."""
        known = self.durable_hard_state
        if self._outstanding is not None and self._outstanding.hard_state is not None:
            known = self._outstanding.hard_state
        return (known.term, known.vote) != (term, vote)

    def _is_anything_pending(self, term: int, vote: int) -> bool:
        """Whether something must be written that is not handed out yet. A commit index alone is not worth a sync."""
        return (
            self._is_term_pending(term, vote)
            or self._log.has_unpersisted
            or bool(self.chunks)
            or self.install is not None
            or self.compact_through > 0
        )

    def is_everything_durable(self, term: int, vote: int) -> bool:
        return self._outstanding is None and not self._is_anything_pending(term, vote)

    # ------------------------------------------------------------------------------------------------------ messages

    def hold(self, message: AnyMessage, promise: Promise, term: int, vote: int) -> None:
        """Keeps it until its promise is durable: with the next write, or with the outstanding one if it has it all."""
        is_term_only = promise is Promise.TERM
        is_in_next = self._is_term_pending(term, vote) if is_term_only else self._is_anything_pending(term, vote)
        self._held.append((self.next_sequence if is_in_next else self._outstanding_sequence, message))
        del self._held[:-HELD_MESSAGES_MAX]

    def enter_term(self, term: int) -> None:
        self._held = [(needed, message) for needed, message in self._held if rules.survives_term(message.term, term)]

    def release(self) -> list[AnyMessage]:
        """Returns the messages whose promises have become true."""
        if not self._held:
            return []
        released = [message for needed, message in self._held if needed <= self.durable_sequence]
        self._held = [(needed, message) for needed, message in self._held if needed > self.durable_sequence]
        return released

    # -------------------------------------------------------------------------------------------------------- writing

    def hand_out(self, term: int, vote: int, commit: int) -> Persist | None:
        """Returns the next write, unless one is outstanding or there is nothing to write."""
        if self._outstanding is not None or not self._is_anything_pending(term, vote):
            return None
        # The commit index is written along, but only as far as the log was durable before this write: see HardState.
        hard_state = HardState(term, vote, min(commit, self._log.durable_index))
        self._outstanding = Persist(
            sequence=self.next_sequence,
            chunks=tuple(self.chunks),
            install=self.install,
            entries=self._log.hand_out(),
            hard_state=hard_state if hard_state != self.durable_hard_state else None,
            compact_through=self.compact_through,
        )
        self.chunks = []
        self.install = None
        self.compact_through = 0
        return self._outstanding

    def finish(self, sequence: int) -> None:
        written = self._outstanding
        invariant(written is not None and written.sequence == sequence, f"write {sequence} is not awaited")
        assert written is not None
        self._outstanding = None
        self.durable_sequence = sequence
        if written.hard_state is not None:
            self.durable_hard_state = written.hard_state
        self._log.persisted()

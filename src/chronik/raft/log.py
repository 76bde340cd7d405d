"""The Raft log as the core sees it: a durable part in storage, followed by an unstable part in memory.

    compacted | ---- durable, in storage ---- | -- unstable, in memory -- |
              first_index        durable_index                    last_index

The terms of all entries are known without disk reads, stored as one run per term. Memory is bounded by the size of the
unstable part: on a leader by `uncommitted_bytes_max`, on a follower by the leader's window of unacknowledged messages,
because acknowledgements wait for the disk.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence

from chronik.errors import check_invariant
from chronik.raft.entries import EntryStorage, RaftEntry, RecoveredRaftState, SnapshotMetadata

RECOVERY_BYTES = 4 * 1024 * 1024
"""The number of bytes read at a time when the log is scanned at startup."""


class RaftLog:
    """The Raft log: the terms of all entries, and the entries that are not durable yet."""

    def __init__(self, storage: EntryStorage, recovered: RecoveredRaftState) -> None:
        self._storage = storage
        self._compacted_index = recovered.compacted_index
        self._term_runs: list[tuple[int, int]] = [(recovered.compacted_index, recovered.compacted_term)]
        """The first index and the term of each run of entries with the same term, in ascending order.

        The first run starts at the last compacted index, because the term of that entry is needed to send the next one.
        """
        self._unstable: list[RaftEntry] = []
        self._unstable_from = recovered.last_index + 1
        self._persisting_index = recovered.last_index
        """The last index handed to the storage for writing, which decreases when entries are truncated."""
        self.unstable_bytes = 0

    def recover(self) -> Iterator[RaftEntry]:
        """Read all durable entries at startup, record their terms, and yield the entries."""
        index = self._compacted_index + 1
        while index <= self.durable_index:
            batch = self._storage.entries(index, self.durable_index + 1, RECOVERY_BYTES)
            check_invariant(bool(batch) and batch[0].index == index, f"Raft log: entry {index} is missing")
            for entry in batch:
                self._record_entry_term(entry)
                yield entry
            index = batch[-1].index + 1

    # ---------------------------------------------------------------------------------------------------- queries

    @property
    def compacted_index(self) -> int:
        """The index of the last entry that compaction has removed."""
        return self._compacted_index

    @property
    def first_index(self) -> int:
        return self._compacted_index + 1

    @property
    def last_index(self) -> int:
        return self._unstable_from + len(self._unstable) - 1

    @property
    def last_term(self) -> int:
        return self._term_runs[-1][1]

    @property
    def durable_index(self) -> int:
        return self._unstable_from - 1

    @property
    def has_unpersisted(self) -> bool:
        """Whether the log has entries that were not handed to the storage for writing yet."""
        return self.last_index > self._persisting_index

    def term_at(self, index: int) -> int | None:
        """Return the term of the entry at `index`, or None if the log no longer or not yet contains the entry."""
        if not self._compacted_index <= index <= self.last_index:
            return None
        return self._term_runs[bisect_right(self._term_runs, index, key=_get_first_index) - 1][1]

    def last_index_with_term_up_to(self, index: int, term: int) -> int:
        """Return the last index up to `index` whose entry has a term of at most `term`, or the last compacted index.

        Entries in between cannot be common to both logs, so log matching skips them.
        """
        end = min(index, self.last_index)
        for first, run_term in reversed(self._term_runs):
            if first > end:
                continue
            if run_term <= term:
                return end
            end = first - 1
        return self._compacted_index

    def entries(self, first: int, end: int, bytes_max: int) -> Sequence[RaftEntry]:
        """Return the entries from index `first` to `end` - 1, up to `bytes_max` in total but at least one if any."""
        check_invariant(
            self._compacted_index < first and end <= self.last_index + 1, f"Raft log: no entries from {first} to {end}"
        )
        if first >= end:
            return ()
        if first <= self.durable_index:
            durable_end = min(end, self._unstable_from)
            batch = self._storage.entries(first, durable_end, bytes_max)
            check_invariant(bool(batch) and batch[0].index == first, f"Raft log: entry {first} is missing")
            return batch  # the next message contains the unstable part
        start = first - self._unstable_from
        return _limit_total_bytes(self._unstable[start : end - self._unstable_from], bytes_max)

    # ---------------------------------------------------------------------------------------------------- changes

    def append(self, entries: Sequence[RaftEntry]) -> None:
        """Append entries, after truncating the log at the first one's index."""
        first = entries[0].index
        check_invariant(
            self._compacted_index < first <= self.last_index + 1, f"Raft log: gap between {self.last_index} and {first}"
        )
        if first <= self.last_index:
            self._truncate_from(first)
        for entry in entries:
            self._record_entry_term(entry)
            self.unstable_bytes += entry.size_bytes
        self._unstable.extend(entries)

    def take_unpersisted_entries(self) -> tuple[RaftEntry, ...]:
        """Return the entries to write next, which the storage appends after truncating its log."""
        start = self._persisting_index + 1 - self._unstable_from
        self._persisting_index = self.last_index
        return tuple(self._unstable[start:])

    def mark_persisted(self) -> None:
        """Mark the entries of the completed write as durable, except those that were replaced since then."""
        count = self._persisting_index + 1 - self._unstable_from
        check_invariant(0 <= count <= len(self._unstable), "Raft log: more entries persisted than were handed out")
        self.unstable_bytes -= sum(entry.size_bytes for entry in self._unstable[:count])
        del self._unstable[:count]
        self._unstable_from += count

    def compact_through(self, index: int) -> None:
        if index <= self._compacted_index:
            return
        term = self.term_at(index)
        check_invariant(term is not None and index <= self.durable_index, f"Raft log: cannot compact through {index}")
        assert term is not None
        self._term_runs = [(index, term), *(run for run in self._term_runs if run[0] > index)]
        self._compacted_index = index

    def install_snapshot(self, snapshot: SnapshotMetadata) -> None:
        """Replace the whole log with a snapshot."""
        self._compacted_index = snapshot.index
        self._term_runs = [(snapshot.index, snapshot.term)]
        self._unstable.clear()
        self.unstable_bytes = 0
        self._unstable_from = snapshot.index + 1
        self._persisting_index = snapshot.index

    def _truncate_from(self, index: int) -> None:
        if index >= self._unstable_from:
            removed = self._unstable[index - self._unstable_from :]
            del self._unstable[index - self._unstable_from :]
            self.unstable_bytes -= sum(entry.size_bytes for entry in removed)
        else:
            # The truncated entries stay on disk until the next persist is complete. If a crash brings them back, the
            # state is the same as before the conflicting entries arrived.
            self._unstable.clear()
            self.unstable_bytes = 0
            self._unstable_from = index
        self._persisting_index = min(self._persisting_index, index - 1)
        while len(self._term_runs) > 1 and self._term_runs[-1][0] >= index:
            self._term_runs.pop()

    def _record_entry_term(self, entry: RaftEntry) -> None:
        last_term = self._term_runs[-1][1]
        check_invariant(
            entry.term >= last_term, f"Raft log: term {entry.term} at {entry.index} is lower than {last_term}"
        )
        if entry.term > last_term:
            self._term_runs.append((entry.index, entry.term))


def _get_first_index(run: tuple[int, int]) -> int:
    return run[0]


def _limit_total_bytes(entries: list[RaftEntry], bytes_max: int) -> Sequence[RaftEntry]:
    size = 0
    for position, entry in enumerate(entries):
        size += entry.size_bytes
        if size > bytes_max and position:
            return entries[:position]
    return entries

"""The log as the core sees it: a durable part that storage holds, followed by a part that is not durable yet.

    floor | ---- durable, in storage ---- | -- unstable, in memory -- |
          first_index        durable_index                    last_index

The terms of all entries are known without a read: they are kept as runs, one item per term and not per entry.
Memory is bounded by what may be unstable: on a leader by `uncommitted_bytes_max`, on a follower by what the leader
sends before it hears an answer, and answers wait for the disk.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence

from chronik.errors import invariant
from chronik.raft.entries import Entry, Recovered, SnapshotMetadata, Storage

RECOVERY_BYTES = 4 * 1024 * 1024
"""How much is read at a time while the whole log is read once, at the start."""


class LogView:
    def __init__(self, storage: Storage, recovered: Recovered) -> None:
        self._storage = storage
        self._floor = recovered.floor_index
        self._runs: list[tuple[int, int]] = [(recovered.floor_index, recovered.floor_term)]
        """(first index, term): strictly increasing in both. The first run begins with the floor itself, whose term
        must stay known after its entry is gone: the first entry we send has it as the previous one."""
        self._unstable: list[Entry] = []
        self._unstable_from = recovered.last_index + 1
        self._handed_out_through = recovered.last_index
        """How much of the unstable part is in the outstanding `Persist`; lowered when a conflict overtakes it."""
        self.unstable_bytes = 0

    def recover(self) -> Iterator[Entry]:
        """Yields all durable entries, and learns their terms; the caller looks for memberships among them."""
        index = self._floor + 1
        while index <= self.durable_index:
            batch = self._storage.entries(index, self.durable_index + 1, RECOVERY_BYTES)
            invariant(bool(batch) and batch[0].index == index, f"the log has no entry {index}")
            for entry in batch:
                self._extend_runs(entry)
                yield entry
            index = batch[-1].index + 1

    # ---------------------------------------------------------------------------------------------------- looking

    @property
    def floor_index(self) -> int:
        """The last index that is compacted away."""
        return self._floor

    @property
    def first_index(self) -> int:
        return self._floor + 1

    @property
    def last_index(self) -> int:
        return self._unstable_from + len(self._unstable) - 1

    @property
    def last_term(self) -> int:
        return self._runs[-1][1]

    @property
    def durable_index(self) -> int:
        return self._unstable_from - 1

    @property
    def has_unpersisted(self) -> bool:
        """Whether there are entries beyond what has been handed out to be persisted."""
        return self.last_index > self._handed_out_through

    def term(self, index: int) -> int | None:
        """Returns None before the floor and after the end, where nothing is known."""
        if not self._floor <= index <= self.last_index:
            return None
        return self._runs[bisect_right(self._runs, index, key=_first) - 1][1]

    def last_index_not_above(self, index: int, term: int) -> int:
        """Returns the last index up to `index` whose term is at most `term`, but at least the floor: what lies between
        cannot be common to two logs, and is skipped."""
        end = min(index, self.last_index)
        for first, run_term in reversed(self._runs):
            if first > end:
                continue
            if run_term <= term:
                return end
            end = first - 1
        return self._floor

    def entries(self, first: int, end: int, bytes_max: int) -> Sequence[Entry]:
        """Returns entries `first` to `end - 1`, fewer if they exceed `bytes_max`, but at least one if there is any."""
        invariant(self._floor < first and end <= self.last_index + 1, f"no entries from {first} to {end}")
        if first >= end:
            return ()
        if first <= self.durable_index:
            durable_end = min(end, self._unstable_from)
            batch = self._storage.entries(first, durable_end, bytes_max)
            invariant(bool(batch) and batch[0].index == first, f"the log has no entry {first}")
            return batch  # the unstable part, if it was wanted too, follows in the next message
        begin = first - self._unstable_from
        return _cut(self._unstable[begin : end - self._unstable_from], bytes_max)

    # ---------------------------------------------------------------------------------------------------- changing

    def append(self, entries: Sequence[Entry]) -> None:
        """Adds the entries at the end, or over a conflict: then all that stood from the first of them on is removed."""
        first = entries[0].index
        invariant(self._floor < first <= self.last_index + 1, f"entry {first} leaves a gap after {self.last_index}")
        if first <= self.last_index:
            self._truncate_from(first)
        for entry in entries:
            self._extend_runs(entry)
            self.unstable_bytes += entry.size_bytes
        self._unstable.extend(entries)

    def hand_out(self) -> tuple[Entry, ...]:
        """Returns what the next `Persist` has to hold; its first entry tells storage where to truncate."""
        begin = self._handed_out_through + 1 - self._unstable_from
        self._handed_out_through = self.last_index
        return tuple(self._unstable[begin:])

    def persisted(self) -> None:
        """Notes that what was handed out is durable, except for what a conflict has replaced since."""
        count = self._handed_out_through + 1 - self._unstable_from
        invariant(0 <= count <= len(self._unstable), "more is persisted than was handed out")
        self.unstable_bytes -= sum(entry.size_bytes for entry in self._unstable[:count])
        del self._unstable[:count]
        self._unstable_from += count

    def compact_through(self, index: int) -> None:
        if index <= self._floor:
            return
        term = self.term(index)
        invariant(term is not None and index <= self.durable_index, f"cannot compact through {index}")
        assert term is not None
        self._runs = [(index, term), *(run for run in self._runs if run[0] > index)]
        self._floor = index

    def install(self, snapshot: SnapshotMetadata) -> None:
        """Replaces the whole log by the snapshot."""
        self._floor = snapshot.index
        self._runs = [(snapshot.index, snapshot.term)]
        self._unstable.clear()
        self.unstable_bytes = 0
        self._unstable_from = snapshot.index + 1
        self._handed_out_through = snapshot.index

    def _truncate_from(self, index: int) -> None:
        if index >= self._unstable_from:
            removed = self._unstable[index - self._unstable_from :]
            del self._unstable[index - self._unstable_from :]
            self.unstable_bytes -= sum(entry.size_bytes for entry in removed)
        else:
            # What was durable is not any more, though it is still on disk until the next persist is done: after a
            # crash it would be found again, which is as good as if the conflict had not arrived yet.
            self._unstable.clear()
            self.unstable_bytes = 0
            self._unstable_from = index
        self._handed_out_through = min(self._handed_out_through, index - 1)
        while len(self._runs) > 1 and self._runs[-1][0] >= index:
            self._runs.pop()

    def _extend_runs(self, entry: Entry) -> None:
        last_term = self._runs[-1][1]
        invariant(entry.term >= last_term, f"entry {entry.index} of term {entry.term} follows one of term {last_term}")
        if entry.term > last_term:
            self._runs.append((entry.index, entry.term))


def _first(run: tuple[int, int]) -> int:
    return run[0]


def _cut(entries: list[Entry], bytes_max: int) -> Sequence[Entry]:
    size = 0
    for position, entry in enumerate(entries):
        size += entry.size_bytes
        if size > bytes_max and position:
            return entries[:position]
    return entries

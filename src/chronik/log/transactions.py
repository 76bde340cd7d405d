"""Transactions as one partition's log shows them: which are open, which were aborted, and up to where all are decided.

Pure. It is told of the log's batches in their order, so every replica that holds the same log gives the same answers.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from chronik.protocol.batch import BatchHeader
from chronik.protocol.control_records import TransactionMarker


class AbortedTransaction(NamedTuple):
    """Whoever reads only what was committed leaves out this producer's records from `first_offset` on, up to its next
    marker."""

    producer_id: int
    first_offset: int


class Ended(msgspec.Struct, array_like=True, frozen=True):
    """A transaction whose marker is in the log."""

    first_offset: int
    marker_offset: int


class StoredTransactions(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """How they are kept in a snapshot. What was aborted are the columns of `Aborted`, as bytes of this machine."""

    open: dict[int, int]
    ended: list[Ended]
    aborted: list[bytes]


class Aborted:
    """Transactions that were aborted, in the order of their markers, in columns: there may be a million."""

    __slots__ = ("_firsts", "_markers", "_producers", "_stable_ends")

    def __init__(self) -> None:
        self._producers = array("q")
        self._firsts = array("q")
        self._markers = array("q")
        self._stable_ends = array("q")
        """Where the first transaction began that was still open after that marker, or what followed the marker: all
        that are aborted later began there or behind it."""

    def __len__(self) -> int:
        return len(self._markers)

    def add(self, producer_id: int, ended: Ended, stable_end: int) -> None:
        self._producers.append(producer_id)
        self._firsts.append(ended.first_offset)
        self._markers.append(ended.marker_offset)
        self._stable_ends.append(stable_end)

    def between(self, start_offset: int, end_offset: int) -> Iterator[AbortedTransaction]:
        """Yields those that have, or may have, records from `start_offset` on and before `end_offset`."""
        for number in range(bisect_left(self._markers, start_offset), len(self._markers)):
            if self._firsts[number] < end_offset:
                yield AbortedTransaction(self._producers[number], self._firsts[number])
            if self._stable_ends[number] >= end_offset:
                return

    def forget_before(self, offset: int) -> None:
        """The log begins at `offset` now."""
        gone = bisect_left(self._markers, offset)
        for column in self._columns():
            del column[:gone]

    def encode(self) -> list[bytes]:
        return [column.tobytes() for column in self._columns()]

    @classmethod
    def decode(cls, columns: list[bytes]) -> Aborted:
        aborted = cls()
        for column, data in zip(aborted._columns(), columns, strict=True):
            column.frombytes(data)
        return aborted

    def _columns(self) -> tuple[array[int], ...]:
        return self._producers, self._firsts, self._markers, self._stable_ends


class Transactions:
    __slots__ = ("_ended", "aborted", "open")

    def __init__(self) -> None:
        self.open: dict[int, int] = {}
        """The first offset of each producer's transaction, oldest first."""
        self._ended: list[Ended] = []
        """Those whose markers may not be committed yet. If a marker is lost with its leader, what the next leader tells
        must not go back; so nothing is told of a decision before its marker is safe."""
        self.aborted = Aborted()

    def appended(self, header: BatchHeader, base_offset: int, marker: TransactionMarker | None) -> None:
        """Notes a batch of a transaction, or the marker that ends one."""
        if marker is None:
            self.open.setdefault(header.producer_id, base_offset)
            return
        first_offset = self.open.pop(header.producer_id, None)
        if first_offset is None:
            return  # nothing of it was written here, or it was told twice
        ended = Ended(first_offset, base_offset)
        self._ended.append(ended)
        if not marker.committed:
            self.aborted.add(header.producer_id, ended, next(iter(self.open.values()), base_offset + 1))

    def first_unstable(self, high_watermark: int) -> int | None:
        """Returns where the first transaction began that is not decided for all; None when there is none."""
        if not self.open and not self._ended:
            return None
        self._ended = [ended for ended in self._ended if ended.marker_offset >= high_watermark]
        began = [ended.first_offset for ended in self._ended]
        began.extend(first for first in (next(iter(self.open.values()), None),) if first is not None)
        return min(began, default=None)

    def stored(self) -> StoredTransactions:
        return StoredTransactions(self.open, self._ended, self.aborted.encode())

    @classmethod
    def restored(cls, stored: StoredTransactions) -> Transactions:
        transactions = cls()
        transactions.open = stored.open
        transactions._ended = stored.ended
        transactions.aborted = Aborted.decode(stored.aborted)
        return transactions

"""The aborted transactions of one partition: what those leave out who read only what was committed."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator
from typing import NamedTuple

BLOCK = 1024
"""So many are looked at together: while one transaction stays open, a million others may begin and be aborted, and
whoever reads from its start on meets hardly any of them."""

ROW_BYTES = 32
"""What one takes, in memory and in a snapshot."""


class AbortedTransaction(NamedTuple):
    """Whoever reads only what was committed leaves out this producer's records from `first_offset` on, up to the marker
    that ended the transaction."""

    producer_id: int
    first_offset: int
    marker_offset: int
    stable_end: int
    """Where the first transaction began that was still open after that marker, or what followed the marker: all that
    were aborted later began there or behind it."""


class Aborted:
    """Transactions that were aborted, in the order of their markers, in columns: there may be a million."""

    __slots__ = ("_firsts", "_markers", "_producers", "_stable_ends")

    def __init__(self) -> None:
        self._producers = array("q")
        self._firsts = array("q")
        self._markers = array("q")
        self._stable_ends = array("q")

    def __len__(self) -> int:
        return len(self._markers)

    def ended_from(self, offset: int) -> Iterator[AbortedTransaction]:
        """Returns those that ended at `offset` or later."""
        first = bisect_left(self._markers, offset)
        return map(AbortedTransaction._make, zip(*(column[first:] for column in self._columns()), strict=True))

    def add(self, transaction: AbortedTransaction) -> None:
        for column, number in zip(self._columns(), transaction, strict=True):
            column.append(number)

    def between(self, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """Returns those that have, or may have, records from `start_offset` on and before `end_offset`; as in Kafka in
        the order in which they began."""
        found, count = [], len(self._markers)
        for begin in range(bisect_left(self._markers, start_offset), count, BLOCK):
            end = min(begin + BLOCK, count)
            firsts = self._firsts[begin:end]
            if min(firsts) < end_offset:
                found += [(first, number) for number, first in enumerate(firsts, begin) if first < end_offset]
            if self._stable_ends[end - 1] >= end_offset:
                break
        found.sort()
        producers, markers, stable_ends = self._producers, self._markers, self._stable_ends
        return [
            AbortedTransaction(producers[number], first, markers[number], stable_ends[number])
            for first, number in found
        ]

    def forget_before(self, offset: int) -> None:
        """Forgets those that ended before `offset`, where the log begins now."""
        self.replace_before(offset, Aborted())

    def replace_before(self, offset: int, others: Aborted) -> None:
        """Puts others in the place of those that ended before `offset`."""
        ended = bisect_left(self._markers, offset)
        if ended:
            for column, other in zip(self._columns(), others._columns(), strict=True):
                column[:ended] = other

    def copy(self) -> Aborted:
        twin = Aborted()
        for column, own in zip(twin._columns(), self._columns(), strict=True):
            column[:] = own
        return twin

    def encode(self) -> list[bytes]:
        """Returns the columns, as bytes of this machine."""
        return [column.tobytes() for column in self._columns()]

    @classmethod
    def decode(cls, columns: list[bytes]) -> Aborted:
        aborted = cls()
        for column, data in zip(aborted._columns(), columns, strict=True):
            column.frombytes(data)
        return aborted

    def _columns(self) -> tuple[array[int], ...]:
        return self._producers, self._firsts, self._markers, self._stable_ends

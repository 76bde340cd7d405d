"""The aborted transactions of a partition, which `read_committed` consumers skip."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator
from typing import NamedTuple

LOOKUP_BLOCK_SIZE = 1024
"""Transactions per block of a lookup. A block whose transactions all start behind the range is skipped as a whole:
while one transaction stays open, a million later ones may be aborted."""

BYTES_PER_TRANSACTION = 32
"""Bytes per aborted transaction, in memory and in a producer state snapshot."""


class AbortedTransaction(NamedTuple):
    """An aborted transaction, whose records `read_committed` consumers skip."""

    producer_id: int
    first_offset: int
    marker_offset: int
    last_stable_offset: int
    """The last stable offset after the abort marker was appended. Transactions aborted later start at or after it."""


class AbortedTransactions:
    """The aborted transactions of a partition in marker order, stored in columns because there may be a million."""

    __slots__ = ("_firsts", "_markers", "_producers", "_stable_ends")

    def __init__(self) -> None:
        self._producers = array("q")
        self._firsts = array("q")
        self._markers = array("q")
        self._stable_ends = array("q")

    def __len__(self) -> int:
        return len(self._markers)

    def iter_from_marker(self, offset: int) -> Iterator[AbortedTransaction]:
        """Return the transactions whose abort marker is at or after `offset`."""
        first = bisect_left(self._markers, offset)
        return map(AbortedTransaction._make, zip(*(column[first:] for column in self._columns()), strict=True))

    def add(self, transaction: AbortedTransaction) -> None:
        for column, number in zip(self._columns(), transaction, strict=True):
            column.append(number)

    def find_in_range(self, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """Return the aborted transactions that may have records from `start_offset` to `end_offset` (exclusive).

        They are in the order of their first offsets, as in Kafka.
        """
        found, count = [], len(self._markers)
        for begin in range(bisect_left(self._markers, start_offset), count, LOOKUP_BLOCK_SIZE):
            end = min(begin + LOOKUP_BLOCK_SIZE, count)
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

    def delete_before(self, offset: int) -> None:
        """Remove the transactions whose abort marker is below `offset`, the new log start offset."""
        self.replace_before(offset, AbortedTransactions())

    def replace_before(self, offset: int, others: AbortedTransactions) -> None:
        """Replace the transactions whose abort marker is below `offset` with those of `others`."""
        ended = bisect_left(self._markers, offset)
        if ended:
            for column, other in zip(self._columns(), others._columns(), strict=True):
                column[:ended] = other

    def copy(self) -> AbortedTransactions:
        duplicate = AbortedTransactions()
        for column, own in zip(duplicate._columns(), self._columns(), strict=True):
            column[:] = own
        return duplicate

    def encode(self) -> list[bytes]:
        """Return the columns as bytes in native byte order."""
        return [column.tobytes() for column in self._columns()]

    @classmethod
    def decode(cls, columns: list[bytes]) -> AbortedTransactions:
        aborted = cls()
        for column, data in zip(aborted._columns(), columns, strict=True):
            column.frombytes(data)
        return aborted

    def _columns(self) -> tuple[array[int], ...]:
        return self._producers, self._firsts, self._markers, self._stable_ends

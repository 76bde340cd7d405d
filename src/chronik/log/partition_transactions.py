"""The transactions of a partition log: open and aborted transactions, and the first unstable offset.

It does no I/O and is updated with the batches in log order, so all replicas with the same log agree.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import deque
from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec

LOOKUP_BLOCK_SIZE = 1024
"""Number of aborted transactions per block. A lookup by offset range skips whole blocks."""

BYTES_PER_TRANSACTION = 32
"""Size of an aborted transaction in bytes, in memory and in a producer state snapshot."""

UNREPLICATED_MAX: Final = 1000
"""Maximum number of completed transactions tracked individually until their markers are replicated."""


class AbortedTransaction(NamedTuple):
    """An aborted transaction, whose records are filtered out for `read_committed` consumers."""

    producer_id: int
    first_offset: int
    marker_offset: int
    last_stable_offset: int
    """The last stable offset after the abort marker was appended.

    All transactions that are aborted later start at or after it.
    """


class AbortedTransactions:
    """The aborted transactions of a partition in marker order, stored in columns to save memory."""

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
        return map(AbortedTransaction._make, zip(*(column[first:] for column in self._list_columns()), strict=True))

    def add(self, transaction: AbortedTransaction) -> None:
        for column, number in zip(self._list_columns(), transaction, strict=True):
            column.append(number)

    def find_in_range(self, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """Return the aborted transactions that may have records between `start_offset` and `end_offset` (exclusive).

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
        """Remove the aborted transactions whose abort marker is below `offset`, the new log start offset."""
        self.replace_before(offset, AbortedTransactions())

    def replace_before(self, offset: int, others: AbortedTransactions) -> None:
        """Replace the aborted transactions whose abort marker is below `offset` by those of `others`."""
        ended = bisect_left(self._markers, offset)
        if ended:
            for column, other in zip(self._list_columns(), others._list_columns(), strict=True):
                column[:ended] = other

    def copy(self) -> AbortedTransactions:
        duplicate = AbortedTransactions()
        for column, own in zip(duplicate._list_columns(), self._list_columns(), strict=True):
            column[:] = own
        return duplicate

    def encode(self) -> list[bytes]:
        """Return the aborted transactions as one byte string per field, in native byte order."""
        return [column.tobytes() for column in self._list_columns()]

    @classmethod
    def decode(cls, columns: list[bytes]) -> AbortedTransactions:
        aborted = cls()
        for column, data in zip(aborted._list_columns(), columns, strict=True):
            column.frombytes(data)
        return aborted

    def _list_columns(self) -> tuple[array[int], ...]:
        return self._producers, self._firsts, self._markers, self._stable_ends


class CompletedTransaction(msgspec.Struct, array_like=True, frozen=True):
    """A transaction whose marker is in the log (Kafka's `CompletedTxn`)."""

    first_offset: int
    marker_offset: int


class TransactionsSnapshot(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """The transactions of a partition in a producer state snapshot.

    `aborted` are the columns of `AbortedTransactions`.
    """

    open: dict[int, int]
    ended: list[CompletedTransaction]
    aborted: list[bytes]


class PartitionTransactions:
    """The open, completed and aborted transactions of a partition log."""

    __slots__ = ("aborted", "open", "unreplicated")

    def __init__(self) -> None:
        self.open: dict[int, int] = {}
        """The first offset of each open transaction by producer id, oldest first."""
        self.unreplicated: deque[CompletedTransaction] = deque()
        """Completed transactions whose markers may still be above the high watermark.

        A marker may be lost with its leader, so the last stable offset must not pass it before it is committed. Start
        and marker offsets ascend: a transaction that starts after another and ends before it is omitted.
        """
        self.aborted = AbortedTransactions()

    @property
    def has_undecided_transactions(self) -> bool:
        """Whether the log has open transactions, or completed ones whose markers may not be fully replicated."""
        return bool(self.open or self.unreplicated)

    def record_batch(self, producer_id: int, base_offset: int) -> None:
        """Record the start of a transaction with the producer's first transactional batch; ignore later batches."""
        self.open.setdefault(producer_id, base_offset)

    def record_marker(self, producer_id: int, marker_offset: int, *, committed: bool) -> None:
        """Record a transaction marker. Ignore it if the producer has no open transaction in this partition."""
        first_offset = self.open.pop(producer_id, None)
        if first_offset is None:
            return
        if not committed:
            stable_end = next(iter(self.open.values()), marker_offset + 1)
            self.aborted.add(AbortedTransaction(producer_id, first_offset, marker_offset, stable_end))
        ended = self.unreplicated
        while ended and ended[-1].first_offset > first_offset:
            ended.pop()
        ended.append(CompletedTransaction(first_offset, marker_offset))
        if len(ended) > UNREPLICATED_MAX:
            oldest = ended.popleft()
            ended[0] = CompletedTransaction(oldest.first_offset, ended[0].marker_offset)

    def first_unstable_offset(self, high_watermark: int) -> int | None:
        """Return the first offset of the oldest transaction without a committed marker, or None if there is none."""
        ended = self.unreplicated
        while ended and ended[0].marker_offset < high_watermark:
            ended.popleft()
        first_open = next(iter(self.open.values()), None)
        if not ended:
            return first_open
        return ended[0].first_offset if first_open is None else min(ended[0].first_offset, first_open)

    def to_snapshot(self) -> TransactionsSnapshot:
        """Return the transactions for a producer state snapshot."""
        return TransactionsSnapshot(self.open, list(self.unreplicated), self.aborted.encode())

    @classmethod
    def from_snapshot(cls, stored: TransactionsSnapshot) -> PartitionTransactions:
        """Create the transactions from a producer state snapshot."""
        transactions = cls()
        transactions.open = stored.open
        transactions.unreplicated = deque(stored.ended)
        transactions.aborted = AbortedTransactions.decode(stored.aborted)
        return transactions

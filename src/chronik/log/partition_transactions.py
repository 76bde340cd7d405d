"""The transactions of a partition log: open and aborted transactions, and the first unstable offset.

It does no I/O and is updated with the batches in log order, so all replicas with the same log agree.
"""

from __future__ import annotations

from collections import deque
from typing import Final

import msgspec

from chronik.log.aborted_transactions import AbortedTransaction, AbortedTransactions

UNREPLICATED_MAX: Final = 1000
"""Completed transactions that are tracked individually until their markers are replicated. Beyond this number the
oldest are merged, which only makes the last stable offset lower."""


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
        """The first offset of each producer's open transaction, oldest first."""
        self.unreplicated: deque[CompletedTransaction] = deque()
        """Completed transactions whose markers may still be above the high watermark. A marker may be lost with its
        leader, so the last stable offset must not pass it before it is committed. Both offsets ascend: a transaction
        that starts after another and ends before it makes no difference and is left out."""
        self.aborted = AbortedTransactions()

    @property
    def has_undecided(self) -> bool:
        """Whether a transaction may be undecided."""
        return bool(self.open or self.unreplicated)

    def record_batch(self, producer_id: int, base_offset: int) -> None:
        """Record a transactional batch."""
        self.open.setdefault(producer_id, base_offset)

    def record_marker(self, producer_id: int, marker_offset: int, *, committed: bool) -> None:
        """Record a transaction marker. The partition may have no batches of the transaction, and markers may repeat."""
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
        """Return the first offset of the oldest undecided transaction, or None."""
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

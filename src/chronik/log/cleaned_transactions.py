"""Detection of aborted records and of removable transaction markers during compaction."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from chronik.log.aborted_transactions import AbortedTransaction, AbortedTransactions
from chronik.log.config import LONG_MAX
from chronik.protocol.batch import BatchHeader


class _FoundTransaction:
    """An aborted transaction, and whether compaction has found any batch of it."""

    __slots__ = ("has_batches", "transaction")

    def __init__(self, transaction: AbortedTransaction) -> None:
        self.transaction = transaction
        self.has_batches = False


class CleanedTransactions:
    """The transactions that a compaction finds (Kafka's `CleanedTransactionMetadata`).

    The compaction passes all transactional batches from `start_offset` on, in order. They are below the last stable
    offset, so a transaction that is not aborted is committed.
    """

    __slots__ = ("_by_producer", "_known_to", "_left", "_near", "_rest", "_written")

    def __init__(self, aborted: AbortedTransactions, start_offset: int) -> None:
        self._rest: Iterator[AbortedTransaction] = aborted.iter_from_marker(start_offset)
        self._known_to = 0
        """All transactions that start below this offset are in `_open` or already passed."""
        self._near: deque[_FoundTransaction] = deque()
        self._by_producer: dict[int, deque[_FoundTransaction]] = {}
        self._left = AbortedTransactions()
        self._written: set[int] = set()
        """Producers with a batch since their last transaction marker."""

    def is_aborted(self, header: BatchHeader) -> bool:
        """Return whether the batch belongs to an aborted transaction."""
        self._written.add(header.producer_id)
        self._advance(header.base_offset)
        near = self._by_producer.get(header.producer_id)
        if near is None or near[0].transaction.first_offset > header.base_offset:
            return False
        near[0].has_batches = True
        return True

    def is_marker_removable(self, marker: BatchHeader) -> bool:
        """Return whether the marker's transaction has no batches left."""
        if marker.producer_id not in self._written:
            return True
        self._written.discard(marker.producer_id)
        return False

    def remaining_aborted(self, end_offset: int) -> AbortedTransactions:
        """Return the aborted transactions that ended before `end_offset` and still have batches."""
        self._advance(end_offset)
        return self._left

    def _advance(self, offset: int) -> None:
        while self._known_to <= offset:
            transaction = next(self._rest, None)
            if transaction is None:
                self._known_to = LONG_MAX
                break
            self._known_to = transaction.last_stable_offset
            found = _FoundTransaction(transaction)
            self._near.append(found)
            self._by_producer.setdefault(transaction.producer_id, deque()).append(found)
        while self._near and self._near[0].transaction.marker_offset < offset:
            self._finish(self._near.popleft())

    def _finish(self, found: _FoundTransaction) -> None:
        """Finish a transaction whose marker was passed."""
        producer_id = found.transaction.producer_id
        transactions = self._by_producer[producer_id]
        transactions.popleft()
        if not transactions:
            del self._by_producer[producer_id]
        if found.has_batches:
            self._left.add(found.transaction)

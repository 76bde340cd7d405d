"""What compaction finds of transactions: records that were aborted, and markers of which nothing is left to tell."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from chronik.log.aborted import Aborted, AbortedTransaction
from chronik.log.config import LONG_MAX
from chronik.protocol.batch import BatchHeader


class _Met:
    """An aborted transaction, and whether any batch of it was met."""

    __slots__ = ("is_met", "transaction")

    def __init__(self, transaction: AbortedTransaction) -> None:
        self.transaction = transaction
        self.is_met = False


class Leftovers:
    """Is asked about all transactional batches of a log from `start_offset` on, in their order. They are below the last
    stable offset: what is not known to be aborted was committed."""

    __slots__ = ("_by_producer", "_known_to", "_left", "_near", "_rest", "_written")

    def __init__(self, aborted: Aborted, start_offset: int) -> None:
        self._rest: Iterator[AbortedTransaction] = aborted.ended_from(start_offset)
        self._known_to = 0
        """All that began below this offset are near, or behind."""
        self._near: deque[_Met] = deque()
        self._by_producer: dict[int, deque[_Met]] = {}
        self._left = Aborted()
        self._written: set[int] = set()
        """The producers of which a batch was met since their last marker."""

    def is_aborted(self, header: BatchHeader) -> bool:
        """Says whether these records belong to an aborted transaction."""
        self._written.add(header.producer_id)
        self._advance(header.base_offset)
        near = self._by_producer.get(header.producer_id)
        if near is None or near[0].transaction.first_offset > header.base_offset:
            return False
        near[0].is_met = True
        return True

    def is_last(self, marker: BatchHeader) -> bool:
        """Says whether a marker is all that is left of its transaction."""
        if marker.producer_id not in self._written:
            return True
        self._written.discard(marker.producer_id)
        return False

    def aborted_before(self, end_offset: int) -> Aborted:
        """Returns the aborted transactions that ended before `end_offset`, up to which all batches were met, without
        those of which none is left."""
        self._advance(end_offset)
        return self._left

    def _advance(self, offset: int) -> None:
        while self._known_to <= offset:
            transaction = next(self._rest, None)
            if transaction is None:
                self._known_to = LONG_MAX
                break
            self._known_to = transaction.stable_end
            met = _Met(transaction)
            self._near.append(met)
            self._by_producer.setdefault(transaction.producer_id, deque()).append(met)
        while self._near and self._near[0].transaction.marker_offset < offset:
            self._pass(self._near.popleft())

    def _pass(self, met: _Met) -> None:
        """Leaves it behind: its marker is."""
        producer_id = met.transaction.producer_id
        of_producer = self._by_producer[producer_id]
        of_producer.popleft()
        if not of_producer:
            del self._by_producer[producer_id]
        if met.is_met:
            self._left.add(met.transaction)

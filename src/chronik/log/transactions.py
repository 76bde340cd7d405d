"""Transactions as one partition's log shows them: which are open, which were aborted, and up to where all are decided.

Pure. It is told of the log's batches in their order, so every replica that holds the same log gives the same answers.
"""

from __future__ import annotations

from collections import deque
from typing import Final

import msgspec

from chronik.log.aborted import Aborted, AbortedTransaction

ENDED_MAX: Final = 1000
"""So many markers may wait, each on its own, to be committed. Only while more of them do, or while nobody asks, are the
oldest taken together, which never tells too much."""


class Ended(msgspec.Struct, array_like=True, frozen=True):
    """A transaction whose marker is in the log."""

    first_offset: int
    marker_offset: int


class StoredTransactions(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """How they are kept in a snapshot. What was aborted are the columns of `Aborted`."""

    open: dict[int, int]
    ended: list[Ended]
    aborted: list[bytes]


class Transactions:
    __slots__ = ("aborted", "open", "waiting")

    def __init__(self) -> None:
        self.open: dict[int, int] = {}
        """The first offset of each producer's transaction, oldest first."""
        self.waiting: deque[Ended] = deque()
        """Those that have ended, and whose markers may not be committed yet. If a marker is lost with its leader, what
        the next leader tells must not go back; so nothing is told of a decision before its marker is safe. Both offsets
        ascend: one that began after another and ended before it makes no difference, and is left out."""
        self.aborted = Aborted()

    @property
    def are_in_doubt(self) -> bool:
        """Whether there may be one that is not decided for all."""
        return bool(self.open or self.waiting)

    def wrote(self, producer_id: int, base_offset: int) -> None:
        """Notes a batch of a transaction."""
        self.open.setdefault(producer_id, base_offset)

    def ended(self, producer_id: int, marker_offset: int, *, committed: bool) -> None:
        """Notes the marker that ends one. Nothing of it need have been written here, and a marker may come twice."""
        first_offset = self.open.pop(producer_id, None)
        if first_offset is None:
            return
        if not committed:
            stable_end = next(iter(self.open.values()), marker_offset + 1)
            self.aborted.add(AbortedTransaction(producer_id, first_offset, marker_offset, stable_end))
        ended = self.waiting
        while ended and ended[-1].first_offset > first_offset:
            ended.pop()
        ended.append(Ended(first_offset, marker_offset))
        if len(ended) > ENDED_MAX:
            oldest = ended.popleft()
            ended[0] = Ended(oldest.first_offset, ended[0].marker_offset)

    def first_unstable(self, high_watermark: int) -> int | None:
        """Returns where the first transaction began that is not decided for all; None when there is none."""
        ended = self.waiting
        while ended and ended[0].marker_offset < high_watermark:
            ended.popleft()
        first_open = next(iter(self.open.values()), None)
        if not ended:
            return first_open
        return ended[0].first_offset if first_open is None else min(ended[0].first_offset, first_open)

    def stored(self) -> StoredTransactions:
        return StoredTransactions(self.open, list(self.waiting), self.aborted.encode())

    @classmethod
    def restored(cls, stored: StoredTransactions) -> Transactions:
        transactions = cls()
        transactions.open = stored.open
        transactions.waiting = deque(stored.ended)
        transactions.aborted = Aborted.decode(stored.aborted)
        return transactions

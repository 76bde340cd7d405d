"""A transaction history, indexed for the checkers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

from tests.chaos.history import Event, Place, RecordId

from .history import (
    Begun,
    Ended,
    OffsetSeen,
    OffsetStaged,
    Outcome,
    Read,
    RecordsDeleted,
    SentInTransaction,
    StableSeen,
    Straggled,
    TopicGone,
    TransactionId,
)

E = TypeVar("E", bound=Event)


@dataclass
class ClientTransaction:
    """A transaction, as its client recorded it."""

    id: TransactionId
    is_v2: bool
    outcome: Outcome = Outcome.UNKNOWN
    ended_at: float = float("inf")
    sent: list[SentInTransaction] = field(default_factory=list)
    staged: list[OffsetStaged] = field(default_factory=list)


class TransactionEvidence:
    """An indexed transaction history."""

    def __init__(self, events: Iterable[Event]) -> None:
        events = list(events)
        self.transactions = {
            each.transaction: ClientTransaction(each.transaction, each.is_v2) for each in _of_type(events, Begun)
        }
        self.sent: dict[RecordId, SentInTransaction] = {}
        for sent in _of_type(events, SentInTransaction):
            self.sent[sent.id] = sent
            self.transactions[sent.transaction].sent.append(sent)
        for staged in _of_type(events, OffsetStaged):
            self.transactions[staged.transaction].staged.append(staged)
        for ended in _of_type(events, Ended):
            client_transaction = self.transactions[ended.transaction]
            client_transaction.outcome, client_transaction.ended_at = ended.outcome, ended.at
        self.stragglers = list(_of_type(events, Straggled))
        self.reads = list(_of_type(events, Read))
        self.stable_seen = list(_of_type(events, StableSeen))
        self.offsets_seen = list(_of_type(events, OffsetSeen))
        self._gone = {each.topic for each in _of_type(events, TopicGone)}
        self._deleted: dict[Place, int] = defaultdict(int)
        for deleted in _of_type(events, RecordsDeleted):
            self._deleted[deleted.place] = max(self._deleted[deleted.place], deleted.before)
        self.log = self._final_records(is_committed=False)
        """All records of each partition at the end, by offset."""
        self.visible = self._final_records(is_committed=True)
        """The records that readers of committed records can see at the end, through any node."""
        self.visible_records = {record for records in self.visible.values() for record in records.values()}
        """The visible records of all partitions."""
        self.positions = {(seen.group, seen.place): seen.offset for seen in self.offsets_seen if seen.is_final}
        """The committed offsets of the groups at the end."""
        self._fates = {each.id: self._infer_outcome(each) for each in self.transactions.values()}

    def _final_records(self, *, is_committed: bool) -> dict[Place, dict[int, RecordId]]:
        found: dict[Place, dict[int, RecordId]] = defaultdict(dict)
        for read in self.reads:
            if read.is_final and read.is_committed == is_committed:
                found[read.place].update(read.records)
        return {place: dict(sorted(records.items())) for place, records in found.items()}

    def _infer_outcome(self, client_transaction: ClientTransaction) -> Outcome:
        if client_transaction.outcome is not Outcome.UNKNOWN:
            return client_transaction.outcome
        if any(sent.id in self.visible_records for sent in client_transaction.sent):
            return Outcome.COMMITTED
        if not client_transaction.sent and any(
            self.positions.get((each.group, each.place)) == each.offset for each in client_transaction.staged
        ):
            return Outcome.COMMITTED
        # No record is visible. If some should be, the effect is the same as an abort.
        return (
            Outcome.ABORTED if any(self.must_exist(sent.place) for sent in client_transaction.sent) else Outcome.UNKNOWN
        )

    def outcome_of(self, transaction: TransactionId) -> Outcome:
        """Return the outcome that the client was told, or else the one that is visible at the end."""
        return self._fates[transaction]

    def transaction_of(self, record: RecordId) -> TransactionId | None:
        sent = self.sent.get(record)
        return None if sent is None else sent.transaction

    def must_exist(self, place: Place, offset: int | None = None) -> bool:
        """Return whether records written there must exist at the end. An offset of None means the whole partition."""
        if place.topic in self._gone:
            return False
        return self._deleted[place] <= offset if offset is not None else not self._deleted[place]

    def offsets_by_record(self) -> dict[RecordId, list[tuple[Place, int]]]:
        found: dict[RecordId, list[tuple[Place, int]]] = defaultdict(list)
        for place, records in self.log.items():
            for offset, record in records.items():
                found[record].append((place, offset))
        return found

    def committed_reads(self) -> Iterator[Read]:
        return (read for read in self.reads if read.is_committed)

    def staged(self) -> Iterator[OffsetStaged]:
        return (staged for client_transaction in self.transactions.values() for staged in client_transaction.staged)


def _of_type(events: Iterable[Event], kind: type[E]) -> Iterator[E]:
    return (event for event in events if isinstance(event, kind))

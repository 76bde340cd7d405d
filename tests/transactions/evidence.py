"""A history of transactions, sorted for those who judge it."""

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
class Told:
    """One transaction, as its client tells of it."""

    id: TransactionId
    is_v2: bool
    outcome: Outcome = Outcome.UNKNOWN
    ended_at: float = float("inf")
    sent: list[SentInTransaction] = field(default_factory=list)
    staged: list[OffsetStaged] = field(default_factory=list)


class Evidence:
    def __init__(self, events: Iterable[Event]) -> None:
        events = list(events)
        self.transactions = {each.transaction: Told(each.transaction, each.is_v2) for each in _of(events, Begun)}
        self.sent: dict[RecordId, SentInTransaction] = {}
        for sent in _of(events, SentInTransaction):
            self.sent[sent.id] = sent
            self.transactions[sent.transaction].sent.append(sent)
        for staged in _of(events, OffsetStaged):
            self.transactions[staged.transaction].staged.append(staged)
        for ended in _of(events, Ended):
            told = self.transactions[ended.transaction]
            told.outcome, told.ended_at = ended.outcome, ended.at
        self.stragglers = list(_of(events, Straggled))
        self.reads = list(_of(events, Read))
        self.stable_seen = list(_of(events, StableSeen))
        self.offsets_seen = list(_of(events, OffsetSeen))
        self._gone = {each.topic for each in _of(events, TopicGone)}
        self._deleted: dict[Place, int] = defaultdict(int)
        for deleted in _of(events, RecordsDeleted):
            self._deleted[deleted.place] = max(self._deleted[deleted.place], deleted.before)
        self.log = self._final(is_committed=False)
        """What stands in each partition at the end, decided or not: by offset, in order."""
        self.visible = self._final(is_committed=True)
        """What whoever reads committed records only may see of it, through some node."""
        self.shown = {record for records in self.visible.values() for record in records.values()}
        """In any partition."""
        self.positions = {(seen.group, seen.place): seen.offset for seen in self.offsets_seen if seen.is_final}
        """Where the groups stand at the end."""
        self._fates = {each.id: self._fate(each) for each in self.transactions.values()}

    def _final(self, *, is_committed: bool) -> dict[Place, dict[int, RecordId]]:
        found: dict[Place, dict[int, RecordId]] = defaultdict(dict)
        for read in self.reads:
            if read.is_final and read.is_committed == is_committed:
                found[read.place].update(read.records)
        return {place: dict(sorted(records.items())) for place, records in found.items()}

    def _fate(self, told: Told) -> Outcome:
        if told.outcome is not Outcome.UNKNOWN:
            return told.outcome
        if any(sent.id in self.shown for sent in told.sent):
            return Outcome.COMMITTED
        if not told.sent and any(self.positions.get((each.group, each.place)) == each.offset for each in told.staged):
            return Outcome.COMMITTED
        # Nothing of it can be seen. If it has records that should be, that is the same as if it had been aborted.
        return Outcome.ABORTED if any(self.is_kept(sent.place) for sent in told.sent) else Outcome.UNKNOWN

    def fate(self, transaction: TransactionId) -> Outcome:
        """What became of it: what its client was told, else what is to be seen at the end."""
        return self._fates[transaction]

    def transaction_of(self, record: RecordId) -> TransactionId | None:
        sent = self.sent.get(record)
        return None if sent is None else sent.transaction

    def is_kept(self, place: Place, offset: int | None = None) -> bool:
        """Whether what was written there has to be there at the end. None: somewhere in the partition."""
        if place.topic in self._gone:
            return False
        return self._deleted[place] <= offset if offset is not None else not self._deleted[place]

    def stands_at(self) -> dict[RecordId, list[tuple[Place, int]]]:
        found: dict[RecordId, list[tuple[Place, int]]] = defaultdict(list)
        for place, records in self.log.items():
            for offset, record in records.items():
                found[record].append((place, offset))
        return found

    def committed_reads(self) -> Iterator[Read]:
        return (read for read in self.reads if read.is_committed)

    def staged(self) -> Iterator[OffsetStaged]:
        return (staged for told in self.transactions.values() for staged in told.staged)


def _of(events: Iterable[Event], kind: type[E]) -> Iterator[E]:
    return (event for event in events if isinstance(event, kind))

"""A history, indexed for the checkers."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple, cast

from tests.chaos.history import (
    Acknowledged,
    AnyEvent,
    ClientBroken,
    CommitAcknowledged,
    CommitSeen,
    Committed,
    Consumed,
    DeletionSent,
    E,
    EndSeen,
    Event,
    Failed,
    FaultBegan,
    FaultEnded,
    FinalRead,
    NodeStarted,
    Place,
    Promised,
    RecordId,
    RecordsSeen,
    Sent,
    TopicCreated,
    TopicDeleted,
    TopicSeen,
    Unknown,
    WatermarkSeen,
)

LEASE_SECONDS = 3.5
"""How long an isolated node may serve reads: a broker session of 3 s, plus half a second for a busy machine."""


class Range(NamedTuple):
    start: int
    end: int


class AcknowledgedOffset(NamedTuple):
    """An acknowledgement with an offset."""

    at: float
    id: RecordId
    place: Place
    offset: int


class Evidence:
    """An indexed history."""

    def __init__(self, events: Iterable[AnyEvent]) -> None:
        self._events: dict[type[Event], list[Event]] = defaultdict(list)
        for event in events:
            self._events[type(event)].append(event)
        self.promised = {event.topic: event for event in self._of_kind(Promised)}
        self.sent = {event.id: event for event in self._of_kind(Sent)}
        self.acknowledged = self._of_kind(Acknowledged)
        self.placed = [
            AcknowledgedOffset(event.at, event.id, event.place, event.offset)
            for event in self.acknowledged
            if event.offset is not None
        ]
        self._acknowledged_at: dict[Place, list[float]] = defaultdict(list)
        for ack in sorted(self.acknowledged, key=lambda each: each.at):
            self._acknowledged_at[ack.place].append(ack.at)
        self.failed = {event.id: event for event in self._of_kind(Failed)}
        self.unknown = {event.id: event for event in self._of_kind(Unknown)}
        self.consumed = self._of_kind(Consumed)
        self.ends_seen = self._of_kind(EndSeen)
        self.committed = self._of_kind(Committed)
        self.watermarks_seen = self._of_kind(WatermarkSeen)
        self.commits_seen = self._of_kind(CommitSeen)
        self.commits_acknowledged = self._of_kind(CommitAcknowledged)
        self.topics_seen = self._of_kind(TopicSeen)
        self.records_seen = self._of_kind(RecordsSeen)
        self.topics_created = {event.topic: event.at for event in self._of_kind(TopicCreated)}
        self.deletions_sent = {event.topic: event.at for event in self._of_kind(DeletionSent)}
        self.topics_deleted = {event.topic: event.at for event in self._of_kind(TopicDeleted)}
        self.starts: dict[int, list[float]] = defaultdict(list)
        for start in self._of_kind(NodeStarted):
            self.starts[start.node].append(start.at)
        self.final_reads = self._of_kind(FinalRead)
        self.broken = self._of_kind(ClientBroken)
        self.faults_began = self._of_kind(FaultBegan)
        self.faults_ended = {event.number: event for event in self._of_kind(FaultEnded)}
        self.final_ranges = {
            place: Range(min(each.start for each in reads), max(each.end for each in reads))
            for place, reads in _by_place(self.final_reads).items()
        }
        self.log = self._final_log()
        """The records of each partition at the end, by offset."""

    def _of_kind(self, kind: type[E]) -> list[E]:
        return cast(list[E], self._events[kind])

    def _final_log(self) -> dict[Place, dict[int, RecordId]]:
        final_readers = {each.reader for each in self.final_reads}
        found: dict[Place, dict[int, RecordId]] = defaultdict(dict)
        for event in self.consumed:
            if event.reader in final_readers:
                found[event.place].setdefault(event.offset, event.id)
        return {place: dict(sorted(records.items())) for place, records in found.items()}

    def places(self) -> Iterator[Place]:
        for topic, promised in self.promised.items():
            for partition in range(promised.partitions):
                yield Place(topic, partition)

    def offsets_by_id(self) -> dict[RecordId, list[tuple[Place, int]]]:
        found: dict[RecordId, list[tuple[Place, int]]] = defaultdict(list)
        for place, records in self.log.items():
            for offset, record in records.items():
                found[record].append((place, offset))
        return found

    def is_ordered(self, place: Place) -> bool:
        promised = self.promised.get(place.topic)
        return promised is not None and (promised.is_ordered or promised.is_once)

    def is_exactly_once(self, place: Place) -> bool:
        promised = self.promised.get(place.topic)
        return promised is not None and promised.is_once

    def is_copy(self, place: Place) -> bool:
        promised = self.promised.get(place.topic)
        return promised is not None and promised.copies_of is not None

    def recovery_seconds(self, fault: FaultBegan) -> float | None:
        """Return how long after a fault every partition acknowledged a record again.

        Returns None if the run ended or the next fault began before that.
        """
        ended = self.faults_ended.get(fault.number)
        if ended is None:
            return None
        until = min((each.at for each in self.faults_began if each.at > fault.at), default=float("inf"))
        # A copy also waits for the sessions of its copiers.
        places = [place for place in self.places() if not self.is_copy(place)]
        firsts = [self._first_acknowledged(place, ended.at) for place in places]
        return max(firsts, default=ended.at) - ended.at if all(at < until for at in firsts) else None

    def _first_acknowledged(self, place: Place, after: float) -> float:
        times = self._acknowledged_at[place]
        index = bisect_right(times, after)
        return times[index] if index < len(times) else float("inf")

    def must_know_before(self, node: int, at: float) -> float:
        """Return the time before which everything committed must be known to the node at the time `at`.

        The node must know what existed when it started, and what is older than its lease. Without contact for longer,
        it must know that it may be outdated.
        """
        started_at = max((start for start in self.starts.get(node, ()) if start < at), default=0.0)
        return max(started_at, at - LEASE_SECONDS)

    def duplicates(self) -> list[tuple[RecordId, list[tuple[Place, int]]]]:
        """Return the records at more than one offset, even where duplicates are allowed."""
        return [(record, where) for record, where in self.offsets_by_id().items() if len(where) > 1]


def _by_place(reads: Iterable[FinalRead]) -> dict[Place, list[FinalRead]]:
    found: dict[Place, list[FinalRead]] = defaultdict(list)
    for each in reads:
        found[each.place].append(each)
    return found

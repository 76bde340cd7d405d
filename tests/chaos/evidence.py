"""A history, sorted for those who judge it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from tests.chaos.history import (
    Acknowledged,
    AnyEvent,
    ClientBroken,
    Committed,
    Consumed,
    EndSeen,
    Failed,
    FaultBegan,
    FaultEnded,
    FinalRead,
    Place,
    Promised,
    RecordId,
    Sent,
    Unknown,
    of_kind,
)


class Range(NamedTuple):
    start: int
    end: int


class Placed(NamedTuple):
    """An acknowledgement that said where the record is."""

    at: float
    id: RecordId
    place: Place
    offset: int


class Evidence:
    def __init__(self, events: Iterable[AnyEvent]) -> None:
        events = list(events)
        self.promised = {event.topic: event for event in of_kind(events, Promised)}
        self.sent = {event.id: event for event in of_kind(events, Sent)}
        self.acknowledged = list(of_kind(events, Acknowledged))
        self.placed = [
            Placed(event.at, event.id, event.place, event.offset)
            for event in self.acknowledged
            if event.offset is not None
        ]
        self.failed = {event.id: event for event in of_kind(events, Failed)}
        self.unknown = {event.id: event for event in of_kind(events, Unknown)}
        self.consumed = list(of_kind(events, Consumed))
        self.ends_seen = list(of_kind(events, EndSeen))
        self.committed = list(of_kind(events, Committed))
        self.final_reads = list(of_kind(events, FinalRead))
        self.broken = list(of_kind(events, ClientBroken))
        self.faults_began = list(of_kind(events, FaultBegan))
        self.faults_ended = {event.number: event for event in of_kind(events, FaultEnded)}
        self.final_ranges = {
            place: Range(min(each.start for each in reads), max(each.end for each in reads))
            for place, reads in _by_place(self.final_reads).items()
        }
        self.log = self._final_log()
        """What stood in each partition at the end: by offset, in order."""

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

    def is_once(self, place: Place) -> bool:
        promised = self.promised.get(place.topic)
        return promised is not None and promised.is_once

    def duplicates(self) -> list[tuple[RecordId, list[tuple[Place, int]]]]:
        """Records that stand at more than one offset, whether that was promised or not."""
        return [(record, where) for record, where in self.offsets_by_id().items() if len(where) > 1]


def _by_place(reads: Iterable[FinalRead]) -> dict[Place, list[FinalRead]]:
    found: dict[Place, list[FinalRead]] = defaultdict(list)
    for each in reads:
        found[each.place].append(each)
    return found

"""A history, sorted for those who judge it."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from tests.chaos.history import (
    Acknowledged,
    AnyEvent,
    ClientBroken,
    CommitAcknowledged,
    CommitSeen,
    Committed,
    Consumed,
    DeletionSent,
    EndSeen,
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
    of_kind,
)

LEASE_SECONDS = 3.5
"""A broker's session of 3 s, and half a second for a busy machine: so long a node may believe that it is heard, and
tell what it knows."""


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
        self._acknowledged_at: dict[Place, list[float]] = defaultdict(list)
        for ack in sorted(self.acknowledged, key=lambda each: each.at):
            self._acknowledged_at[ack.place].append(ack.at)
        self.failed = {event.id: event for event in of_kind(events, Failed)}
        self.unknown = {event.id: event for event in of_kind(events, Unknown)}
        self.consumed = list(of_kind(events, Consumed))
        self.ends_seen = list(of_kind(events, EndSeen))
        self.committed = list(of_kind(events, Committed))
        self.watermarks_seen = list(of_kind(events, WatermarkSeen))
        self.commits_seen = list(of_kind(events, CommitSeen))
        self.commits_acknowledged = list(of_kind(events, CommitAcknowledged))
        self.topics_seen = list(of_kind(events, TopicSeen))
        self.records_seen = list(of_kind(events, RecordsSeen))
        self.topics_created = {event.topic: event.at for event in of_kind(events, TopicCreated)}
        self.deletions_sent = {event.topic: event.at for event in of_kind(events, DeletionSent)}
        self.topics_deleted = {event.topic: event.at for event in of_kind(events, TopicDeleted)}
        self.starts: dict[int, list[float]] = defaultdict(list)
        for start in of_kind(events, NodeStarted):
            self.starts[start.node].append(start.at)
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

    def is_copy(self, place: Place) -> bool:
        promised = self.promised.get(place.topic)
        return promised is not None and promised.copies_of is not None

    def recovered_s(self, fault: FaultBegan) -> float | None:
        """How long after it was over every partition had acknowledged something again, whoever had sent it and when.
        None when the run, or the next fault, came first."""
        ended = self.faults_ended.get(fault.number)
        if ended is None:
            return None
        until = min((each.at for each in self.faults_began if each.at > fault.at), default=float("inf"))
        # A copy waits for the sessions of its copiers, too.
        places = [place for place in self.places() if not self.is_copy(place)]
        firsts = [self._first_acknowledged(place, ended.at) for place in places]
        return max(firsts, default=ended.at) - ended.at if all(at < until for at in firsts) else None

    def _first_acknowledged(self, place: Place, after: float) -> float:
        times = self._acknowledged_at[place]
        index = bisect_right(times, after)
        return times[index] if index < len(times) else float("inf")

    def knows_since(self, node: int, at: float) -> float:
        """What was committed before that moment, the node has to know at `at`: what was there when it started, and
        what is older than its lease. (Without word from the others for longer it has to know that it may be behind.)"""
        started_at = max((start for start in self.starts.get(node, ()) if start < at), default=0.0)
        return max(started_at, at - LEASE_SECONDS)

    def duplicates(self) -> list[tuple[RecordId, list[tuple[Place, int]]]]:
        """Records that stand at more than one offset, whether that was promised or not."""
        return [(record, where) for record, where in self.offsets_by_id().items() if len(where) > 1]


def _by_place(reads: Iterable[FinalRead]) -> dict[Place, list[FinalRead]]:
    found: dict[Place, list[FinalRead]] = defaultdict(list)
    for each in reads:
        found[each.place].append(each)
    return found

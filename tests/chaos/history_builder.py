"""A builder of hand-written histories, for tests of the checkers."""

from __future__ import annotations

from tests.chaos.history import (
    Acknowledged,
    AnyEvent,
    Consumed,
    EndSeen,
    Failed,
    FinalRead,
    Place,
    Promised,
    RecordId,
    Sent,
    Unknown,
)

ONCE, ORDERED, LOOSE = "once", "ordered", "loose"
"""Topics with idempotent producers; with producers that send one record per key at a time; with neither."""

SOURCE, COPIES = "source", "copies"
"""A topic, and another one with transactional copies of its records."""

PROMISES = (
    Promised(topic=ONCE, partitions=1, is_ordered=True, is_once=True, groups=("g",)),
    Promised(topic=ORDERED, partitions=2, is_ordered=True),
    Promised(topic=LOOSE, partitions=1),
)
COPYING = (
    Promised(topic=SOURCE, partitions=1, is_ordered=True, is_once=True),
    Promised(topic=COPIES, partitions=2, is_ordered=True, is_once=True, copies_of=SOURCE),
)


class HistoryBuilder:
    """A history builder with one event per second."""

    def __init__(self, topic_guarantees: tuple[Promised, ...] = PROMISES) -> None:
        self._promises = topic_guarantees
        self.events: list[AnyEvent] = [*topic_guarantees]
        self._clock = 0.0
        self._ended: set[Place] = set()

    def tick(self) -> float:
        self._clock += 1.0
        return self._clock

    def send(
        self,
        number: int,
        topic: str = ONCE,
        producer: str = "p",
        key: str | None = None,
        transaction: str | None = None,
    ) -> RecordId:
        record = RecordId(producer, number)
        self.events.append(Sent(at=self.tick(), id=record, topic=topic, key=key, transaction=transaction))
        return record

    def copy(self, number: int, source: RecordId, transaction: str = "t", producer: str = "copier") -> RecordId:
        """Record the send of a copy. The test records its outcome."""
        return self.send(number, COPIES, producer, key=str(source), transaction=transaction)

    def acknowledge(self, record: RecordId, offset: int | None, topic: str = ONCE, partition: int = 0) -> None:
        place = Place(topic, partition)
        self.events.append(Acknowledged(at=self.tick(), id=record, place=place, offset=offset))

    def fail(self, record: RecordId) -> None:
        self.events.append(Failed(at=self.tick(), id=record, error="NOT_ENOUGH_REPLICAS"))

    def leave_unknown(self, record: RecordId) -> None:
        self.events.append(Unknown(at=self.tick(), id=record, error="_MSG_TIMED_OUT"))

    def write(
        self, number: int, offset: int, topic: str = ONCE, partition: int = 0, key: str | None = None
    ) -> RecordId:
        record = self.send(number, topic, key=key)
        self.acknowledge(record, offset, topic, partition)
        return record

    def read(
        self,
        record: RecordId,
        offset: int,
        topic: str = ONCE,
        *,
        reader: str = "c",
        assignment: int = 1,
        epoch: int = 3,
    ) -> None:
        place, group = Place(topic, 0), None if reader == "alone" else "g"
        self.events.append(
            Consumed(
                at=self.tick(),
                reader=reader,
                group=group,
                assignment=assignment,
                place=place,
                offset=offset,
                id=record,
                epoch=epoch,
            )
        )

    def see_end(self, end: int, topic: str = ONCE) -> None:
        asked_at = self.tick()
        place = Place(topic, 0)
        self.events.append(EndSeen(at=self.tick(), reader="watcher", place=place, asked_at=asked_at, end=end))

    def end_with(self, *records: RecordId, topic: str = ONCE, partition: int = 0, start: int = 0) -> None:
        """Record the final read of a partition."""
        place = Place(topic, partition)
        self._ended.add(place)
        end = start + len(records)
        self.events.append(FinalRead(at=self.tick(), reader="final", place=place, start=start, end=end))
        for offset, record in enumerate(records, start):
            read = Consumed(
                at=self.tick(), reader="final", group=None, assignment=0, place=place, offset=offset, id=record
            )
            self.events.append(read)

    def build(self) -> list[AnyEvent]:
        """Return the history. Partitions without a final read are read as empty."""
        for promise in self._promises:
            for partition in range(promise.partitions):
                if Place(promise.topic, partition) not in self._ended:
                    self.end_with(topic=promise.topic, partition=partition)
        return self.events

"""A builder of hand-written transaction histories, for tests of the checkers."""

from __future__ import annotations

from tests.chaos.history import Event, Place, RecordId

from .history import (
    NO_OFFSET,
    Begun,
    Ended,
    OffsetSeen,
    OffsetStaged,
    Outcome,
    Read,
    SentInTransaction,
    Source,
    StableSeen,
    TransactionId,
)

A, B = Place("a", 0), Place("b", 0)
INPUT = Place("input", 0)
GROUP = "g"

Row = RecordId | None
"""The record at an offset, or None for a marker."""


class TransactionHistoryBuilder:
    """A history builder with one event per second. `end_with` sets the final contents of a log, empty by default."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._clock = 0.0
        self._begun = 0
        self._sent = 0
        self._ended_places: set[Place] = set()

    def tick(self) -> float:
        self._clock += 1.0
        return self._clock

    def add_event(self, event: Event) -> None:
        self.events.append(event)

    # -- clients ------------------------------------------------------------------------------------------------------

    def begin(self, producer: str = "p", *, is_v2: bool = False) -> TransactionId:
        transaction = TransactionId(producer, self._begun)
        self._begun += 1
        self.add_event(Begun(at=self.tick(), transaction=transaction, transactional_id="t", is_v2=is_v2))
        return transaction

    def send(self, transaction: TransactionId, place: Place = A, copied: int | None = None) -> RecordId:
        record = RecordId(transaction.producer, self._sent)
        self._sent += 1
        source = None if copied is None else Source(GROUP, INPUT, copied)
        self.add_event(
            SentInTransaction(at=self.tick(), id=record, transaction=transaction, place=place, source=source)
        )
        return record

    def stage(self, transaction: TransactionId, offset: int) -> None:
        self.add_event(OffsetStaged(at=self.tick(), transaction=transaction, group=GROUP, place=INPUT, offset=offset))

    def end(self, transaction: TransactionId, outcome: Outcome = Outcome.COMMITTED) -> None:
        self.add_event(Ended(at=self.tick(), transaction=transaction, outcome=outcome))

    def write_transaction(self, *places: Place, outcome: Outcome = Outcome.COMMITTED) -> list[RecordId]:
        """Write a transaction with one record for each partition."""
        transaction = self.begin()
        records = [self.send(transaction, place) for place in places]
        self.end(transaction, outcome)
        return records

    # -- readers ------------------------------------------------------------------------------------------------------

    def read(
        self,
        *rows: Row,
        place: Place = A,
        start: int = 0,
        stable: int = NO_OFFSET,
        high_watermark: int = NO_OFFSET,
        is_committed: bool = True,
        node: int = 1,
    ) -> None:
        """Record a read of all offsets from `start` on; None stands for a record that the reader did not get."""
        self._read(
            rows, place, start, stable, node, is_committed=is_committed, is_final=False, high_watermark=high_watermark
        )

    def see_stable(self, offset: int, epoch: int = 1, *, is_sure: bool = True, asked_at: float | None = None) -> None:
        asked_at = self.tick() if asked_at is None else asked_at
        self.add_event(
            StableSeen(
                at=self.tick(),
                reader="watcher",
                node=epoch,
                asked_at=asked_at,
                place=A,
                epoch=epoch,
                offset=offset,
                is_sure=is_sure,
            )
        )

    def see_position(self, offset: int, *, is_final: bool = False) -> None:
        asked_at = self.tick()
        self.add_event(
            OffsetSeen(
                at=self.tick(),
                reader="watcher",
                node=1,
                asked_at=asked_at,
                place=INPUT,
                group=GROUP,
                offset=offset,
                is_final=is_final,
            )
        )

    # -- the end ------------------------------------------------------------------------------------------------------

    def end_with(
        self, *rows: Row, hidden: tuple[RecordId, ...] = (), place: Place = A, stable: int | None = None
    ) -> None:
        """Record the final reads of a partition through two nodes: all records, and the committed ones but `hidden`."""
        self._ended_places.add(place)
        end = len(rows) if stable is None else stable
        shown = tuple(None if row in hidden else row for row in rows)[:end]
        for node in (1, 2):
            self._read(rows, place, 0, end, node, is_committed=False, is_final=True, high_watermark=len(rows))
            self._read(shown, place, 0, end, node, is_committed=True, is_final=True, high_watermark=len(rows))

    def build(self) -> list[Event]:
        for place in (A, B):
            if place not in self._ended_places:
                self.end_with(place=place)
        return self.events

    def _read(
        self,
        rows: tuple[Row, ...],
        place: Place,
        start: int,
        stable: int,
        node: int,
        *,
        is_committed: bool,
        is_final: bool,
        high_watermark: int = NO_OFFSET,
    ) -> None:
        asked_at = self.tick()
        self.add_event(
            Read(
                at=self.tick(),
                reader="final" if is_final else "r",
                node=node,
                asked_at=asked_at,
                place=place,
                is_committed=is_committed,
                start=start,
                end=start + len(rows),
                records=tuple((offset, row) for offset, row in enumerate(rows, start) if row is not None),
                stable=stable,
                is_final=is_final,
                high_watermark=high_watermark,
            )
        )

"""A copier: consumes one topic, and produces a copy of each record to every one of some others, in transactions that
commit what it has read with what it wrote. Now and then another of the same id takes its place while it is in the
midst of a transaction, and it tries to commit that all the same."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from threading import Thread
from typing import Any, NamedTuple

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition

from tests.chaos.clients import PADDING_BYTES, POLL_SECONDS, Client, Progress
from tests.chaos.history import (
    Acknowledged,
    Failed,
    Journal,
    Place,
    RecordId,
    Sent,
    Unknown,
    decode_value,
    encode_value,
    now,
)

RECORDS_MAX = 20
"""Of one transaction."""

TRANSACTION_TIMEOUT_MS = 10_000
SESSION_MS = 6_000
"""Both short, for the sake of who waits for what was left behind."""

CALL_SECONDS_MAX = 10.0
HUNG_SECONDS = CALL_SECONDS_MAX + 2.0
"""After that, adding offsets does not come back any more: librdkafka waits forever for a coordinator of the group that
has left the cluster's metadata, whatever timeout it was given (confluentinc/librdkafka#5456 and #5511)."""

SUCCESSORS_SHARE = 0.03
"""Of the transactions: those in the midst of which another producer takes over."""

FRESH_SECONDS = 0.5
"""The time before it tries anew what it could not go on with."""


_nobody = logging.Logger("tests.chaos.copiers")
_nobody.addHandler(logging.NullHandler())
"""Who is told that a producer was fenced: librdkafka would print it."""


class _Copy(NamedTuple):
    id: RecordId
    sent_at: float


class _Transaction:
    """What was sent in one, and where it was written."""

    def __init__(self) -> None:
        self.copies: list[_Copy] = []
        self.written: dict[RecordId, tuple[Place, int | None]] = {}

    def delivered(self, copy: _Copy) -> Callable[[KafkaError | None, Any], None]:
        def note(error: KafkaError | None, message: Any) -> None:
            if error is None:
                offset = message.offset()
                known = offset if offset is not None and offset >= 0 else None
                self.written[copy.id] = (Place(message.topic(), message.partition()), known)

        return note


class Copier(Client):
    def __init__(
        self, name: str, journal: Journal, progress: Progress, bootstrap: str, source: str, targets: Sequence[str]
    ) -> None:
        super().__init__(name, journal)
        self._progress = progress
        self._bootstrap = bootstrap
        self._source = source
        self._targets = targets
        self._rng = random.Random(name)
        self._incarnation = 0
        self._sent = 0
        self._producer: Any = None
        self._consumer: Any = None
        self.positions: dict[Place, int] = {}
        """Up to where it has copied each partition, by what it has committed."""

    def _on_error(self, error: KafkaError) -> None:
        """To be fenced is what it is here for."""

    def _run(self) -> None:
        while not self._ending.is_set():
            try:
                self._open()
                while not self._ending.is_set():
                    messages = self._consumer.consume(RECORDS_MAX, timeout=POLL_SECONDS)
                    if records := [message for message in messages if message.error() is None]:
                        self._copy(records)
            except KafkaException:  # it cannot go on as it is: another takes its place
                self._ending.wait(FRESH_SECONDS)
            finally:
                self._consumer.close()

    def _open(self) -> None:
        self._consumer = Consumer(
            self._common_settings(self._bootstrap)
            | {
                "group.id": f"{self._source}-copiers",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "session.timeout.ms": SESSION_MS,
            }
        )
        self._producer = self._new_producer()
        self._consumer.subscribe([self._source])

    def _new_producer(self) -> Any:
        """Raises KafkaException when there is no coordinator for long."""
        self._incarnation += 1
        settings = {"transactional.id": self.name, "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS, "linger.ms": 0}
        producer = Producer(self._common_settings(self._bootstrap) | settings, logger=_nobody)
        self._patiently(lambda: producer.init_transactions(CALL_SECONDS_MAX))
        return producer

    def _copy(self, records: list[Any]) -> None:
        transaction = _Transaction()
        try:
            self._producer.begin_transaction()
            name = f"{self.name}.{self._incarnation}/{self._sent}"
            for record in records:
                for target in self._targets:
                    self._produce(transaction, name, decode_value(record.value(), record.key()), target)
            read = {Place(record.topic(), record.partition()): record.offset() + 1 for record in records}
            self._send_offsets(read)
            if self._rng.random() < SUCCESSORS_SHARE:
                self._commit_as_a_zombie(transaction)
                return
            self._patiently(lambda: self._producer.commit_transaction(CALL_SECONDS_MAX))
        except KafkaException as failure:
            self._give_up(transaction, failure)
            return
        self._committed(transaction)
        self.positions |= read

    def _produce(self, transaction: _Transaction, name: str, source: RecordId, target: str) -> None:
        """Its key is the id of what it is a copy of."""
        copy, key = _Copy(RecordId(f"{self.name}.{self._incarnation}", self._sent), now()), str(source)
        self._sent += 1
        self._journal.add(Sent(at=copy.sent_at, id=copy.id, topic=target, key=key, transaction=name))
        transaction.copies.append(copy)
        value = encode_value(copy.id, key, PADDING_BYTES)
        self._producer.produce(target, value, key=key, on_delivery=transaction.delivered(copy))

    def _send_offsets(self, read: Mapping[Place, int]) -> None:
        offsets = [TopicPartition(*place, offset) for place, offset in read.items()]
        member = self._consumer.consumer_group_metadata()
        producer = self._producer
        _unless_it_hangs(
            lambda: self._patiently(lambda: producer.send_offsets_to_transaction(offsets, member, CALL_SECONDS_MAX))
        )

    def _commit_as_a_zombie(self, transaction: _Transaction) -> None:
        zombie, self._producer = self._producer, self._new_producer()
        try:
            zombie.commit_transaction(CALL_SECONDS_MAX)
        except KafkaException:
            self._failed(transaction, "fenced")
            self._rewind()
        else:
            self._committed(transaction)

    def _give_up(self, transaction: _Transaction, failure: KafkaException) -> None:
        """Raises KafkaException unless it can go on."""
        try:
            if not failure.args[0].txn_requires_abort():
                raise failure
            self._patiently(lambda: self._producer.abort_transaction(CALL_SECONDS_MAX))
        except KafkaException:
            for copy in transaction.copies:
                self._journal.add(Unknown(at=now(), id=copy.id, error=failure.args[0].name()))
            raise
        self._failed(transaction, "aborted")
        self._rewind()

    def _rewind(self) -> None:
        """To where the last transaction that was committed has come to."""
        assigned = self._consumer.assignment()
        for at in self._consumer.committed(assigned, timeout=CALL_SECONDS_MAX) if assigned else ():
            if at.error is not None:
                raise KafkaException(at.error)
            at.offset = at.offset if at.offset >= 0 else OFFSET_BEGINNING
            self._consumer.seek(at)

    def _committed(self, transaction: _Transaction) -> None:
        self._producer.poll(0)  # hands out what was delivered
        at = now()
        for copy in transaction.copies:
            place, offset = transaction.written[copy.id]
            self._journal.add(Acknowledged(at=at, id=copy.id, place=place, offset=offset))
            self._progress.note(place, copy.sent_at)

    def _failed(self, transaction: _Transaction, why: str) -> None:
        for copy in transaction.copies:
            self._journal.add(Failed(at=now(), id=copy.id, error=why))

    def _patiently(self, call: Callable[[], Any]) -> None:
        """Again and again while that is what the client asks for: it goes on where it was."""
        while True:
            try:
                call()
                return
            except KafkaException as failure:
                if not failure.args[0].retriable() or self._ending.is_set():
                    raise


def _unless_it_hangs(call: Callable[[], None]) -> None:
    """Raises KafkaException when it does: it is left to itself then, with its producer, and another takes its place."""
    outcome: Future[None] = Future()

    def run() -> None:
        try:
            call()
        except BaseException as failure:
            outcome.set_exception(failure)
        else:
            outcome.set_result(None)

    Thread(target=run, daemon=True).start()
    try:
        outcome.result(HUNG_SECONDS)
    except TimeoutError:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "the client hangs")) from None

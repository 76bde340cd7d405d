"""A transactional copier: consumes one topic and produces each record to several others, exactly once.

Now and then another producer with the same transactional id replaces it during a transaction, which it then tries to
commit as a zombie.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from threading import Thread
from typing import Any, NamedTuple

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition

from tests.chaos.clients import PADDING_BYTES, POLL_SECONDS, AckProgress, ChaosClient
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
"""Records of one transaction."""

TRANSACTION_TIMEOUT_MS = 10_000
SESSION_MS = 6_000
"""Session and transaction timeout, short to limit the wait for abandoned members and transactions."""

CALL_SECONDS_MAX = 10.0
HUNG_SECONDS = CALL_SECONDS_MAX + 2.0
"""Time after which `send_offsets_to_transaction` is considered hung: librdkafka waits forever for a group coordinator
that has left the metadata, whatever its timeout (confluentinc/librdkafka#5456 and #5511)."""

SUCCESSORS_SHARE = 0.03
"""The fraction of transactions during which another producer takes over."""

FRESH_SECONDS = 0.5
"""Delay before the copier starts again after a failure."""


_null_logger = logging.Logger("tests.chaos.copiers")
_null_logger.addHandler(logging.NullHandler())
"""A logger that discards messages about fenced producers, which librdkafka would print."""


class _Copy(NamedTuple):
    id: RecordId
    sent_at: float


class _Transaction:
    """The records sent in one transaction and their offsets."""

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


class ChaosCopier(ChaosClient):
    """A client that copies a topic in transactions."""

    def __init__(
        self, name: str, journal: Journal, progress: AckProgress, bootstrap: str, source: str, targets: Sequence[str]
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
        """The committed position of the copier in each partition."""

    def _on_error(self, error: KafkaError) -> None:
        """Ignore errors: the copier expects to be fenced."""

    def _run(self) -> None:
        while not self._ending.is_set():
            try:
                self._open()
                while not self._ending.is_set():
                    messages = self._consumer.consume(RECORDS_MAX, timeout=POLL_SECONDS)
                    if records := [message for message in messages if message.error() is None]:
                        self._copy(records)
            except KafkaException:  # the copier cannot continue: start a new instance
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
        """Return an initialized producer. Raises KafkaException without a coordinator."""
        self._incarnation += 1
        settings = {"transactional.id": self.name, "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS, "linger.ms": 0}
        producer = Producer(self._common_settings(self._bootstrap) | settings, logger=_null_logger)
        self._retry(lambda: producer.init_transactions(CALL_SECONDS_MAX))
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
                self._commit_as_zombie(transaction)
                return
            self._retry(lambda: self._producer.commit_transaction(CALL_SECONDS_MAX))
        except KafkaException as failure:
            self._abort(transaction, failure)
            return
        self._committed(transaction)
        self.positions |= read

    def _produce(self, transaction: _Transaction, name: str, source: RecordId, target: str) -> None:
        """Send a copy. Its key is the id of the original record."""
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
        _run_with_timeout(
            lambda: self._retry(lambda: producer.send_offsets_to_transaction(offsets, member, CALL_SECONDS_MAX))
        )

    def _commit_as_zombie(self, transaction: _Transaction) -> None:
        zombie, self._producer = self._producer, self._new_producer()
        try:
            zombie.commit_transaction(CALL_SECONDS_MAX)
        except KafkaException:
            self._failed(transaction, "fenced")
            self._rewind()
        else:
            self._committed(transaction)

    def _abort(self, transaction: _Transaction, failure: KafkaException) -> None:
        """Abort the transaction. Raises KafkaException unless the copier can continue."""
        try:
            if not failure.args[0].txn_requires_abort():
                raise failure
            self._retry(lambda: self._producer.abort_transaction(CALL_SECONDS_MAX))
        except KafkaException:
            for copy in transaction.copies:
                self._journal.add(Unknown(at=now(), id=copy.id, error=failure.args[0].name()))
            raise
        self._failed(transaction, "aborted")
        self._rewind()

    def _rewind(self) -> None:
        """Seek to the offsets of the last committed transaction."""
        assigned = self._consumer.assignment()
        for at in self._consumer.committed(assigned, timeout=CALL_SECONDS_MAX) if assigned else ():
            if at.error is not None:
                raise KafkaException(at.error)
            at.offset = at.offset if at.offset >= 0 else OFFSET_BEGINNING
            self._consumer.seek(at)

    def _committed(self, transaction: _Transaction) -> None:
        self._producer.poll(0)  # runs the delivery callbacks
        at = now()
        for copy in transaction.copies:
            place, offset = transaction.written[copy.id]
            self._journal.add(Acknowledged(at=at, id=copy.id, place=place, offset=offset))
            self._progress.record_ack(place, copy.sent_at)

    def _failed(self, transaction: _Transaction, why: str) -> None:
        for copy in transaction.copies:
            self._journal.add(Failed(at=now(), id=copy.id, error=why))

    def _retry(self, call: Callable[[], Any]) -> None:
        """Repeat a call as long as its error is retriable."""
        while True:
            try:
                call()
                return
            except KafkaException as failure:
                if not failure.args[0].retriable() or self._ending.is_set():
                    raise


def _run_with_timeout(call: Callable[[], None]) -> None:
    """Run a call on a thread and raise KafkaException if it hangs. The hung producer is abandoned."""
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

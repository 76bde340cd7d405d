"""Transactions of confluent-kafka."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from .serving import Refused
from .transactions import END_TIMEOUT_S, Offset, Wanted
from .wire import Record

NAMES = {"_FENCED": "PRODUCER_FENCED"}
"""Kafka's names of what librdkafka has names of its own for."""


class TransactionalProducer:
    def __init__(self, wanted: Wanted) -> None:
        self._bootstrap = wanted.bootstrap
        self._producer = Producer(
            {
                "bootstrap.servers": wanted.bootstrap,
                "transactional.id": wanted.transactional_id,
                "transaction.timeout.ms": wanted.timeout_ms,
                "log_level": 0,
                # Of a record: it may not be longer than that of the transaction.
                "message.timeout.ms": wanted.timeout_ms,
            }
        )
        with _named():
            self._producer.init_transactions(END_TIMEOUT_S)

    def begin(self) -> None:
        with _named():
            self._producer.begin_transaction()

    def send(self, topic: str, records: list[Record]) -> None:
        failures: list[Any] = []
        for record in records:
            options: dict[str, Any] = {"key": record.key, "on_delivery": _into(failures)}
            if record.partition is not None:
                options["partition"] = record.partition
            with _named():
                self._producer.produce(topic, record.value, **options)
        with _named():
            self._producer.flush(END_TIMEOUT_S)
        if failures:
            raise _refusal(failures[0])

    def send_offsets(self, group: str, offsets: list[Offset]) -> None:
        """The group's metadata is to be had from a consumer only: this one joins nothing."""
        consumer = Consumer({"bootstrap.servers": self._bootstrap, "group.id": group, "log_level": 0})
        try:
            with _named():
                self._producer.send_offsets_to_transaction(
                    [TopicPartition(*each) for each in offsets], consumer.consumer_group_metadata(), END_TIMEOUT_S
                )
        finally:
            consumer.close()

    def commit(self) -> None:
        with _named():
            self._producer.commit_transaction(END_TIMEOUT_S)

    def abort(self) -> None:
        with _named():
            self._producer.abort_transaction(END_TIMEOUT_S)

    def close(self) -> None:
        del self._producer  # what it has not ended stays as it is


@contextmanager
def _named() -> Iterator[None]:
    try:
        yield
    except KafkaException as failure:
        raise _refusal(failure.args[0]) from failure


def _refusal(error: Any) -> Refused:
    return Refused(NAMES.get(error.name(), error.name()), error.str())


def _into(failures: list[Any]) -> Callable[[Any, Any], None]:
    def delivered(error: Any, _message: Any) -> None:
        if error is not None:
            failures.append(error)

    return delivered

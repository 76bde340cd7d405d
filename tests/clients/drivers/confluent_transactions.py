"""Transactional producer of confluent-kafka."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from .command_loop import CommandRejected
from .transactions import END_TIMEOUT_S, Offset, ProducerSettings
from .wire import Record

NAMES = {"_FENCED": "PRODUCER_FENCED"}
"""Kafka's names of errors for which librdkafka has its own names."""


class TransactionalProducer:
    """A transactional producer of confluent-kafka."""

    def __init__(self, wanted: ProducerSettings) -> None:
        self._bootstrap = wanted.bootstrap
        self._producer = Producer(
            {
                "bootstrap.servers": wanted.bootstrap,
                "transactional.id": wanted.transactional_id,
                "transaction.timeout.ms": wanted.timeout_ms,
                "log_level": 0,
                # The delivery timeout of a record must not exceed that of the transaction.
                "message.timeout.ms": wanted.timeout_ms,
            }
        )
        with _with_kafka_error_names():
            self._producer.init_transactions(END_TIMEOUT_S)

    def begin(self) -> None:
        with _with_kafka_error_names():
            self._producer.begin_transaction()

    def send(self, topic: str, records: list[Record]) -> None:
        failures: list[Any] = []
        for record in records:
            options: dict[str, Any] = {"key": record.key, "on_delivery": _collect_errors(failures)}
            if record.partition is not None:
                options["partition"] = record.partition
            with _with_kafka_error_names():
                self._producer.produce(topic, record.value, **options)
        with _with_kafka_error_names():
            self._producer.flush(END_TIMEOUT_S)
        if failures:
            raise _to_rejection(failures[0])

    def send_offsets(self, group: str, offsets: list[Offset]) -> None:
        """Send offsets. The group metadata comes from a consumer that joins nothing."""
        consumer = Consumer({"bootstrap.servers": self._bootstrap, "group.id": group, "log_level": 0})
        try:
            with _with_kafka_error_names():
                self._producer.send_offsets_to_transaction(
                    [TopicPartition(*each) for each in offsets], consumer.consumer_group_metadata(), END_TIMEOUT_S
                )
        finally:
            consumer.close()

    def commit(self) -> None:
        with _with_kafka_error_names():
            self._producer.commit_transaction(END_TIMEOUT_S)

    def abort(self) -> None:
        with _with_kafka_error_names():
            self._producer.abort_transaction(END_TIMEOUT_S)

    def close(self) -> None:
        del self._producer  # without completing an open transaction


@contextmanager
def _with_kafka_error_names() -> Iterator[None]:
    try:
        yield
    except KafkaException as failure:
        raise _to_rejection(failure.args[0]) from failure


def _to_rejection(error: Any) -> CommandRejected:
    return CommandRejected(NAMES.get(error.name(), error.name()), error.str())


def _collect_errors(failures: list[Any]) -> Callable[[Any, Any], None]:
    def on_delivery(error: Any, _message: Any) -> None:
        if error is not None:
            failures.append(error)

    return on_delivery

"""Transactional producer of kafka-python."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kafka import KafkaProducer, OffsetAndMetadata, TopicPartition
from kafka.errors import BrokerResponseError

from .command_loop import CommandRejected
from .transactions import END_TIMEOUT_S, Offset, ProducerSettings
from .wire import Record


class TransactionalProducer:
    """A transactional producer of kafka-python."""

    def __init__(self, wanted: ProducerSettings, api_version: tuple[int, ...] | None) -> None:
        self._producer = KafkaProducer(
            bootstrap_servers=wanted.bootstrap.split(","),
            api_version=api_version,
            transactional_id=wanted.transactional_id,
            transaction_timeout_ms=wanted.timeout_ms,
            max_block_ms=END_TIMEOUT_S * 1000,
        )
        with _with_kafka_error_names():
            self._producer.init_transactions()

    def begin(self) -> None:
        with _with_kafka_error_names():
            self._producer.begin_transaction()

    def send(self, topic: str, records: list[Record]) -> None:
        with _with_kafka_error_names():
            sent = [
                self._producer.send(topic, value=record.value, key=record.key, partition=record.partition)
                for record in records
            ]
            self._producer.flush(END_TIMEOUT_S)
            for future in sent:
                future.get(timeout=END_TIMEOUT_S)

    def send_offsets(self, group: str, offsets: list[Offset]) -> None:
        wanted = {TopicPartition(topic, p): OffsetAndMetadata(at, metadata, -1) for topic, p, at, metadata in offsets}
        with _with_kafka_error_names():
            self._producer.send_offsets_to_transaction(wanted, group)

    def commit(self) -> None:
        with _with_kafka_error_names():
            self._producer.commit_transaction()

    def abort(self) -> None:
        with _with_kafka_error_names():
            self._producer.abort_transaction()

    def close(self) -> None:
        self._producer.close(timeout=0)  # without completing an open transaction


@contextmanager
def _with_kafka_error_names() -> Iterator[None]:
    try:
        yield
    except BrokerResponseError as failure:
        raise CommandRejected(failure.message, str(failure)) from failure

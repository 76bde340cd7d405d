"""Driver of confluent-kafka, which wraps librdkafka (`python -m drivers.confluent`)."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    TIMESTAMP_NOT_AVAILABLE,
    Consumer,
    KafkaException,
    Producer,
    TopicPartition,
    libversion,
    version,
)

from .command_loop import serve
from .confluent_admin import Admin
from .confluent_secured import SecuredClient
from .confluent_transactions import TransactionalProducer
from .members import HEARTBEAT_MS, Members, Membership
from .secured import WriteAndReadCommand
from .transactions import Transactions
from .wire import ExpectedRecords, ReceivedRecord, Record

FLUSH_TIMEOUT_S = 60
BATCH_MAX = 500  # messages per call of consume()


class Driver:
    """Basic commands with confluent-kafka."""

    def capabilities(self) -> dict[str, Any]:
        return {
            "version": f"{version()} (librdkafka {libversion()[0]})",
            "codecs": ["none", "gzip", "snappy", "lz4", "zstd"],
            "headers": True,
            "null_headers": True,
            "null_key_and_value": True,
            "timestamps": True,
            "idempotence": True,
            "assignors": ["range", "cooperative-sticky"],
            "commits": True,
            "static_members": True,
            "transactions": True,
        }

    def produce(
        self, bootstrap: str, topic: str, codec: str, records: list[dict[str, Any]], idempotent: bool = False
    ) -> None:
        producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "compression.type": codec,
                "enable.idempotence": idempotent,
                "acks": "all",
                "linger.ms": 20,
            }
        )
        failures: list[str] = []

        def on_delivery(error: Any, _message: Any) -> None:
            if error is not None:
                failures.append(str(error))

        for fields in records:
            record = Record.from_json(fields)
            options: dict[str, Any] = {"key": record.key, "headers": list(record.headers), "on_delivery": on_delivery}
            if record.partition is not None:
                options["partition"] = record.partition
            if record.timestamp_ms is not None:
                options["timestamp"] = record.timestamp_ms
            producer.produce(topic, record.value, **options)
            producer.poll(0)
        unacknowledged = producer.flush(FLUSH_TIMEOUT_S)
        if unacknowledged or failures:
            raise RuntimeError(
                f"{unacknowledged} records were not acknowledged in time, {len(failures)} failed: {failures[:3]}"
            )

    def consume(
        self, bootstrap: str, topics: dict[str, int], group: str | None, timeout_s: float, isolation: str | None = None
    ) -> dict[str, Any]:
        # librdkafka requires a group id even for manual assignment without commits.
        options = {} if isolation is None else {"isolation.level": isolation}
        consumer = _consumer(bootstrap, group or "never-joined", **options)
        reading = ExpectedRecords(topics)
        problem = None
        try:
            if group is None:
                consumer.assign(_partitions(consumer, topics))
            else:
                consumer.subscribe(list(topics))
            deadline = time.monotonic() + timeout_s
            while not reading.complete and time.monotonic() < deadline:
                reading.add(_convert_messages(consumer.consume(BATCH_MAX, timeout=0.2)))
            if group is not None:
                consumer.commit(asynchronous=False)
        except Exception as error:  # the records read so far are still reported
            problem = repr(error)
        finally:
            consumer.close()
        return reading.to_json(problem)


class _GroupConsumer:
    def __init__(self, consumer: Any, topics: list[str]) -> None:
        self._consumer = consumer
        self._rebalances = 0
        consumer.subscribe(topics, on_assign=self._on_assign)

    def poll(self, timeout_s: float) -> Iterable[ReceivedRecord]:
        return _convert_messages(self._consumer.consume(BATCH_MAX, timeout=timeout_s))

    def assignment(self) -> list[tuple[str, int]]:
        return [(owned.topic, owned.partition) for owned in self._consumer.assignment()]

    def rebalances(self) -> int:
        return self._rebalances

    def commit(self, topic: str, partition: int, offset: int, metadata: str) -> None:
        at = TopicPartition(topic, partition, offset, metadata)
        for result in self._consumer.commit(offsets=[at], asynchronous=False):
            if result.error is not None:
                raise KafkaException(result.error)

    def close(self) -> None:
        self._consumer.close()

    def _on_assign(self, _consumer: Any, _partitions: Any) -> None:
        self._rebalances += 1


def _open_member(wanted: Membership) -> _GroupConsumer:
    options: dict[str, Any] = {"session.timeout.ms": wanted.session_ms, "heartbeat.interval.ms": HEARTBEAT_MS}
    if wanted.assignor is not None:
        options["partition.assignment.strategy"] = wanted.assignor
    if wanted.instance is not None:
        options["group.instance.id"] = wanted.instance
    return _GroupConsumer(_consumer(wanted.bootstrap, wanted.group, **options), wanted.topics)


def _consumer(bootstrap: str, group: str, **options: Any) -> Any:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **options,
        }
    )


def _partitions(consumer: Any, topics: Iterable[str]) -> list[Any]:
    known = consumer.list_topics(timeout=30).topics
    return [TopicPartition(topic, p, OFFSET_BEGINNING) for topic in topics for p in known[topic].partitions]


def _convert_messages(messages: Iterable[Any]) -> Iterable[ReceivedRecord]:
    for message in messages:
        if message.error() is not None:
            raise KafkaException(message.error())
        kind, timestamp_ms = message.timestamp()
        yield ReceivedRecord(
            topic=message.topic(),
            partition=message.partition(),
            offset=message.offset(),
            key=message.key(),
            value=message.value(),
            headers=tuple(message.headers() or ()),
            timestamp_ms=None if kind == TIMESTAMP_NOT_AVAILABLE else timestamp_ms,
        )


if __name__ == "__main__":
    serve(
        Driver(),
        Members(_open_member),
        Admin(),
        Transactions(TransactionalProducer),
        WriteAndReadCommand(SecuredClient),
    )

"""Transactional producer of aiokafka."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from aiokafka import AIOKafkaProducer, OffsetAndMetadata, TopicPartition
from aiokafka.errors import BrokerResponseError, ProducerFenced

from .command_loop import CommandRejected
from .transactions import END_TIMEOUT_S, Offset, ProducerSettings
from .wire import Record


class TransactionalProducer:
    """A transactional producer on the driver's event loop; `run` runs coroutines there."""

    def __init__(self, wanted: ProducerSettings, run: Any) -> None:
        self._run = run
        self._producer = self._run_with_timeout(_open(wanted))

    def begin(self) -> None:
        self._run_with_timeout(self._producer.begin_transaction())

    def send(self, topic: str, records: list[Record]) -> None:
        self._run_with_timeout(self._send(topic, records))

    def send_offsets(self, group: str, offsets: list[Offset]) -> None:
        wanted = {TopicPartition(topic, p): OffsetAndMetadata(at, metadata) for topic, p, at, metadata in offsets}
        self._run_with_timeout(self._producer.send_offsets_to_transaction(wanted, group))

    def commit(self) -> None:
        self._run_with_timeout(self._producer.commit_transaction())

    def abort(self) -> None:
        self._run_with_timeout(self._producer.abort_transaction())

    def close(self) -> None:
        self._run_with_timeout(self._producer.stop())

    def _run_with_timeout(self, work: Any) -> Any:
        with _with_kafka_error_names():
            return self._run(asyncio.wait_for(work, END_TIMEOUT_S))

    async def _send(self, topic: str, records: list[Record]) -> None:
        sent = [
            await self._producer.send(topic, value=record.value, key=record.key, partition=record.partition)
            for record in records
        ]
        await asyncio.gather(*sent)


async def _open(wanted: ProducerSettings) -> Any:
    producer = AIOKafkaProducer(
        bootstrap_servers=wanted.bootstrap,
        transactional_id=wanted.transactional_id,
        transaction_timeout_ms=wanted.timeout_ms,
    )
    await producer.start()
    return producer


@contextmanager
def _with_kafka_error_names() -> Iterator[None]:
    """Convert aiokafka's errors to Kafka's error names. aiokafka has its own error for a fenced producer."""
    try:
        yield
    except ProducerFenced as failure:
        raise CommandRejected("PRODUCER_FENCED", str(failure)) from failure
    except BrokerResponseError as failure:
        raise CommandRejected(failure.message, str(failure)) from failure

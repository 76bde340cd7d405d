"""Driver of aiokafka (`python -m drivers.aiokafka_driver`)."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

from aiokafka import (
    AIOKafkaConsumer,
    AIOKafkaProducer,
    ConsumerRebalanceListener,
    OffsetAndMetadata,
    TopicPartition,
    __version__,
)
from aiokafka.codec import has_lz4, has_snappy, has_zstd
from aiokafka.coordinator.assignors.range import RangePartitionAssignor

from .aiokafka_secured import SecuredClient
from .aiokafka_transactions import TransactionalProducer
from .command_loop import serve
from .members import HEARTBEAT_MS, Members, Membership, RebalanceCount
from .secured import WriteAndReadCommand
from .transactions import Transactions
from .wire import ExpectedRecords, ReceivedRecord, Record

SEND_TIMEOUT_S = 60
ConsumerRebalanceListener.register(RebalanceCount)
Result = TypeVar("Result")


class Driver:
    """Basic commands with aiokafka, on an event loop in a thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()

    def capabilities(self) -> dict[str, Any]:
        libraries = {"snappy": has_snappy(), "lz4": has_lz4(), "zstd": has_zstd()}
        return {
            "version": __version__,
            "codecs": ["none", "gzip", *(codec for codec, usable in libraries.items() if usable)],
            "headers": True,
            "null_headers": True,
            "null_key_and_value": False,  # the producer requires one of the two
            "timestamps": True,
            "idempotence": True,
            "assignors": ["range"],
            "commits": True,
            "static_members": True,
            "transactions": True,
        }

    def produce(
        self, bootstrap: str, topic: str, codec: str, records: list[dict[str, Any]], idempotent: bool = False
    ) -> None:
        self._run(_produce(bootstrap, topic, codec, [Record.from_json(fields) for fields in records], idempotent))

    def consume(
        self, bootstrap: str, topics: dict[str, int], group: str | None, timeout_s: float, isolation: str | None = None
    ) -> dict[str, Any]:
        return self._run(_consume(bootstrap, topics, group, timeout_s, isolation))

    def _run(self, work: Coroutine[Any, Any, Result]) -> Result:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _open_member(self, wanted: Membership) -> _GroupConsumer:
        return self._run(_open_member(wanted, self._run))


class _GroupConsumer:
    def __init__(self, consumer: Any, rebalances: RebalanceCount, run: Any) -> None:
        self._consumer = consumer
        self._rebalances = rebalances
        self._run = run

    def poll(self, timeout_s: float) -> Iterable[ReceivedRecord]:
        return _flatten(self._run(self._consumer.getmany(timeout_ms=int(timeout_s * 1000))))

    def assignment(self) -> list[tuple[str, int]]:
        return [(owned.topic, owned.partition) for owned in self._consumer.assignment()]

    def rebalances(self) -> int:
        return self._rebalances.value

    def commit(self, topic: str, partition: int, offset: int, metadata: str) -> None:
        self._run(self._consumer.commit({TopicPartition(topic, partition): OffsetAndMetadata(offset, metadata)}))

    def close(self) -> None:
        self._run(self._consumer.stop())


async def _open_member(wanted: Membership, run: Any) -> _GroupConsumer:
    options: dict[str, Any] = {"session_timeout_ms": wanted.session_ms, "heartbeat_interval_ms": HEARTBEAT_MS}
    if wanted.assignor == "range":
        options["partition_assignment_strategy"] = (RangePartitionAssignor,)
    consumer = _consumer(wanted.bootstrap, wanted.group, group_instance_id=wanted.instance, **options)
    rebalances = RebalanceCount()
    consumer.subscribe(wanted.topics, listener=rebalances)
    await consumer.start()
    return _GroupConsumer(consumer, rebalances, run)


async def _produce(bootstrap: str, topic: str, codec: str, records: list[Record], idempotent: bool) -> None:
    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap,
        compression_type=None if codec == "none" else codec,
        enable_idempotence=idempotent,
        acks="all",
        linger_ms=20,
    )
    await producer.start()
    try:
        sent = [
            await producer.send(
                topic,
                value=record.value,
                key=record.key,
                headers=list(record.headers),
                partition=record.partition,
                timestamp_ms=record.timestamp_ms,
            )
            for record in records
        ]
        await asyncio.wait_for(asyncio.gather(*sent), SEND_TIMEOUT_S)
    finally:
        await producer.stop()


async def _consume(
    bootstrap: str, topics: dict[str, int], group: str | None, timeout_s: float, isolation: str | None
) -> dict[str, Any]:
    consumer = _consumer(bootstrap, group, **({} if isolation is None else {"isolation_level": isolation}))
    reading = ExpectedRecords(topics)
    problem = None
    try:
        if group is not None:
            consumer.subscribe(list(topics))
        await consumer.start()
        if group is None:
            consumer.assign(await _partitions(consumer, topics))
        deadline = time.monotonic() + timeout_s
        while not reading.complete and time.monotonic() < deadline:
            reading.add(_flatten(await consumer.getmany(timeout_ms=200)))
        if group is not None:
            await consumer.commit()
    except Exception as error:  # the records read so far are still reported
        problem = repr(error)
    finally:
        await consumer.stop()
    return reading.to_json(problem)


async def _partitions(consumer: Any, topics: Iterable[str]) -> list[Any]:
    # `partitions_for_topic` only knows topics that the client has been told to track.
    await consumer._client.set_topics(list(topics))
    return [TopicPartition(topic, p) for topic in topics for p in consumer.partitions_for_topic(topic) or ()]


def _consumer(bootstrap: str, group: str | None, **options: Any) -> Any:
    return AIOKafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        **options,
    )


def _flatten(polled: dict[Any, list[Any]]) -> Iterable[ReceivedRecord]:
    for messages in polled.values():
        for message in messages:
            yield ReceivedRecord(
                topic=message.topic,
                partition=message.partition,
                offset=message.offset,
                key=message.key,
                value=message.value,
                headers=tuple(message.headers),
                timestamp_ms=message.timestamp,
            )


def main() -> None:
    driver = Driver()
    serve(
        driver,
        Members(driver._open_member),
        Transactions(lambda wanted: TransactionalProducer(wanted, driver._run)),
        WriteAndReadCommand(lambda access: SecuredClient(access, driver._run)),
    )


if __name__ == "__main__":
    main()

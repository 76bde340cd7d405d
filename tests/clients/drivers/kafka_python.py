"""Driver of kafka-python, with negotiated versions (`auto`) or those of an old broker, such as `0.10.0`.

python -m drivers.kafka_python auto
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from typing import Any

from kafka import ConsumerRebalanceListener, KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition
from kafka.codec import has_lz4, has_snappy, has_zstd
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.errors import KafkaConnectionError, RebalanceInProgressError
from kafka.version import __version__

from .command_loop import serve
from .kafka_python_admin import Admin
from .kafka_python_secured import SecuredClient
from .kafka_python_transactions import TransactionalProducer
from .members import HEARTBEAT_MS, Members, Membership, RebalanceCount, RetryAfterPoll
from .secured import WriteAndReadCommand
from .transactions import Transactions
from .wire import ExpectedRecords, ReceivedRecord, Record

ASSIGNORS = {"range": RangePartitionAssignor, "cooperative-sticky": CooperativeStickyAssignor}
HEADERS_SINCE = (0, 11)  # message format 2
ZSTD_SINCE = (2, 1)
IDEMPOTENCE_SINCE = (0, 11)  # and transactions
COOPERATIVE_SINCE = (2, 4)
STATIC_MEMBERS_SINCE = (2, 3)
SEND_TIMEOUT_S = 60
METADATA_TIMEOUT_S = 20  # a dead broker stays listed for a few seconds at most
METADATA_RETRY_S = 0.1
ConsumerRebalanceListener.register(RebalanceCount)


class Driver:
    """Basic commands with kafka-python."""

    def __init__(self, api_version: tuple[int, ...] | None) -> None:
        self._api_version = api_version

    def capabilities(self) -> dict[str, Any]:
        libraries = {"snappy": has_snappy(), "lz4": has_lz4(), "zstd": has_zstd() and self._supports(ZSTD_SINCE)}
        return {
            "version": __version__,
            "codecs": ["none", "gzip", *(codec for codec, usable in libraries.items() if usable)],
            "headers": self._supports(HEADERS_SINCE),
            "null_headers": False,  # rejected by the producer, although the format supports them
            "null_key_and_value": False,  # the producer requires one of the two
            "timestamps": True,
            "idempotence": self._supports(IDEMPOTENCE_SINCE),
            "assignors": ["range", *(["cooperative-sticky"] if self._supports(COOPERATIVE_SINCE) else [])],
            "commits": True,
            "static_members": self._supports(STATIC_MEMBERS_SINCE),
            "transactions": self._supports(IDEMPOTENCE_SINCE),
        }

    def produce(
        self, bootstrap: str, topic: str, codec: str, records: list[dict[str, Any]], idempotent: bool = False
    ) -> None:
        producer = KafkaProducer(
            bootstrap_servers=bootstrap,
            api_version=self._api_version,
            compression_type=None if codec == "none" else codec,
            enable_idempotence=idempotent,
            # Without sequence numbers, only one request at a time preserves the order of records.
            max_in_flight_requests_per_connection=5 if idempotent else 1,
            linger_ms=20,
        )
        try:
            sent = [self._send(producer, topic, Record.from_json(fields)) for fields in records]
            for future in sent:
                future.get(timeout=SEND_TIMEOUT_S)
        finally:
            producer.close()

    def consume(
        self, bootstrap: str, topics: dict[str, int], group: str | None, timeout_s: float, isolation: str | None = None
    ) -> dict[str, Any]:
        consumer = self._consumer(bootstrap, group, **({} if isolation is None else {"isolation_level": isolation}))
        reading = ExpectedRecords(topics)
        problem = None
        try:
            if group is None:
                consumer.assign([TopicPartition(t, p) for t in topics for p in consumer.partitions_for_topic(t)])
            else:
                _subscribe(consumer, list(topics))
            deadline = time.monotonic() + timeout_s
            while not reading.complete and time.monotonic() < deadline:
                reading.add(_flatten(consumer.poll(timeout_ms=200)))
            if group is not None:
                consumer.commit()
        except Exception as error:  # the records read so far are still reported
            problem = repr(error)
        finally:
            consumer.close()
        return reading.to_json(problem)

    def _send(self, producer: Any, topic: str, record: Record) -> Any:
        return producer.send(
            topic,
            value=record.value,
            key=record.key,
            headers=list(record.headers) or None,
            partition=record.partition,
            timestamp_ms=record.timestamp_ms,
        )

    def _consumer(self, bootstrap: str, group: str | None, **options: Any) -> Any:
        return KafkaConsumer(
            bootstrap_servers=bootstrap,
            api_version=self._api_version,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            **options,
        )

    def _supports(self, since: tuple[int, ...]) -> bool:
        return self._api_version is None or self._api_version >= since

    def _open_member(self, wanted: Membership) -> _GroupConsumer:
        options: dict[str, Any] = {"session_timeout_ms": wanted.session_ms, "heartbeat_interval_ms": HEARTBEAT_MS}
        if wanted.assignor is not None:
            options["partition_assignment_strategy"] = (ASSIGNORS[wanted.assignor],)
        if wanted.instance is not None:
            options["group_instance_id"] = wanted.instance
        consumer = self._consumer(wanted.bootstrap, wanted.group, **options)
        rebalances = RebalanceCount()
        _subscribe(consumer, wanted.topics, rebalances)
        return _GroupConsumer(consumer, rebalances)


class _GroupConsumer:
    def __init__(self, consumer: Any, rebalances: RebalanceCount) -> None:
        self._consumer = consumer
        self._rebalances = rebalances

    def poll(self, timeout_s: float) -> Iterable[ReceivedRecord]:
        return _flatten(self._consumer.poll(timeout_ms=int(timeout_s * 1000)))

    def assignment(self) -> list[tuple[str, int]]:
        return [(owned.topic, owned.partition) for owned in self._consumer.assignment()]

    def rebalances(self) -> int:
        return self._rebalances.value

    def commit(self, topic: str, partition: int, offset: int, metadata: str) -> None:
        try:
            self._consumer.commit({TopicPartition(topic, partition): OffsetAndMetadata(offset, metadata, -1)})
        except RebalanceInProgressError as error:
            # The client rejoins once it has the metadata of its assignment, and requires a poll first.
            raise RetryAfterPoll from error

    def close(self) -> None:
        self._consumer.close()


def _subscribe(consumer: Any, topics: list[str], listener: RebalanceCount | None = None) -> None:
    """Subscribe, and fetch the topics' metadata before the first poll.

    kafka-python rejoins when metadata arrives that differs from what its assignment was based on (none, at first). If a
    poll returns during that second rebalance, the client never completes its assignment and stops sending heartbeats.
    """
    consumer.subscribe(topics, listener=listener)
    _fetch_metadata(consumer)


def _fetch_metadata(consumer: Any) -> None:
    """Fetch metadata with retries: the client does not switch to another broker if the chosen one has just died."""
    deadline = time.monotonic() + METADATA_TIMEOUT_S
    while True:
        try:
            consumer.topics()
            return
        except KafkaConnectionError:
            if time.monotonic() > deadline:
                raise
            time.sleep(METADATA_RETRY_S)


def _flatten(polled: dict[Any, list[Any]]) -> Iterable[ReceivedRecord]:
    for messages in polled.values():
        for message in messages:
            yield ReceivedRecord(
                topic=message.topic,
                partition=message.partition,
                offset=message.offset,
                key=message.key,
                value=message.value,
                headers=tuple((name, value) for name, value in message.headers or ()),
                timestamp_ms=message.timestamp,
            )


def main(version_text: str) -> None:
    api_version = None if version_text == "auto" else tuple(int(part) for part in version_text.split("."))
    driver = Driver(api_version)
    transactions = Transactions(lambda wanted: TransactionalProducer(wanted, api_version))
    serve(driver, Members(driver._open_member), Admin(api_version), transactions, WriteAndReadCommand(SecuredClient))


if __name__ == "__main__":
    main(sys.argv[1])

"""kafka-python, with versions negotiated (`auto`) or pinned to an old broker's, as `0.10.0`.

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

from .kafka_python_admin import Admin
from .kafka_python_secured import Secured
from .kafka_python_transactions import TransactionalProducer
from .members import HEARTBEAT_MS, AfterThisRound, Members, Membership, RebalanceCount
from .secured import Ways
from .serving import serve
from .transactions import Transactions
from .wire import Reading, Received, Record

ASSIGNORS = {"range": RangePartitionAssignor, "cooperative-sticky": CooperativeStickyAssignor}
HEADERS_SINCE = (0, 11)  # message format 2
ZSTD_SINCE = (2, 1)
IDEMPOTENCE_SINCE = (0, 11)  # and transactions
COOPERATIVE_SINCE = (2, 4)
STATIC_MEMBERS_SINCE = (2, 3)
SEND_TIMEOUT_S = 60
LEARN_TIMEOUT_S = 20  # a dead broker is listed for a few seconds at most
LEARN_PAUSE_S = 0.1
ConsumerRebalanceListener.register(RebalanceCount)


class Driver:
    def __init__(self, api_version: tuple[int, ...] | None) -> None:
        self._api_version = api_version

    def capabilities(self) -> dict[str, Any]:
        libraries = {"snappy": has_snappy(), "lz4": has_lz4(), "zstd": has_zstd() and self._speaks(ZSTD_SINCE)}
        return {
            "version": __version__,
            "codecs": ["none", "gzip", *(codec for codec, usable in libraries.items() if usable)],
            "headers": self._speaks(HEADERS_SINCE),
            "null_headers": False,  # refused by the producer, though the format has them
            "null_key_and_value": False,  # the producer asserts that there is one of the two
            "timestamps": True,
            "idempotence": self._speaks(IDEMPOTENCE_SINCE),
            "assignors": ["range", *(["cooperative-sticky"] if self._speaks(COOPERATIVE_SINCE) else [])],
            "commits": True,
            "static_members": self._speaks(STATIC_MEMBERS_SINCE),
            "transactions": self._speaks(IDEMPOTENCE_SINCE),
        }

    def produce(
        self, bootstrap: str, topic: str, codec: str, records: list[dict[str, Any]], idempotent: bool = False
    ) -> None:
        producer = KafkaProducer(
            bootstrap_servers=bootstrap,
            api_version=self._api_version,
            compression_type=None if codec == "none" else codec,
            enable_idempotence=idempotent,
            # Without sequence numbers only one request at a time keeps the order of records.
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
        reading = Reading(topics)
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
        except Exception as error:  # what was read before is still worth telling
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

    def _speaks(self, since: tuple[int, ...]) -> bool:
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

    def poll(self, timeout_s: float) -> Iterable[Received]:
        return _flatten(self._consumer.poll(timeout_ms=int(timeout_s * 1000)))

    def assignment(self) -> list[tuple[str, int]]:
        return [(owned.topic, owned.partition) for owned in self._consumer.assignment()]

    def rebalances(self) -> int:
        return self._rebalances.value

    def commit(self, topic: str, partition: int, offset: int, metadata: str) -> None:
        try:
            self._consumer.commit({TopicPartition(topic, partition): OffsetAndMetadata(offset, metadata, -1)})
        except RebalanceInProgressError as error:
            # It joins once more when it has seen the metadata of what it was assigned, and asks to be polled first.
            raise AfterThisRound from error

    def close(self) -> None:
        self._consumer.close()


def _subscribe(consumer: Any, topics: list[str], listener: RebalanceCount | None = None) -> None:
    """Asks for the topics' partitions before the first poll, with the subscription in place.

    This client keeps a picture of the partitions of what it has subscribed to, drawn anew whenever metadata comes. A
    leader that assigned by an older picture (an empty one, at first) joins again when a newer comes; and if a poll ends
    in the midst of that second round, the client forgets to take up its assignment, and to send heartbeats, for ever.
    """
    consumer.subscribe(topics, listener=listener)
    _learn_topics(consumer)


def _learn_topics(consumer: Any) -> None:
    """This client asks one broker of those it knows, and does not turn to another if that one has just died."""
    deadline = time.monotonic() + LEARN_TIMEOUT_S
    while True:
        try:
            consumer.topics()
            return
        except KafkaConnectionError:
            if time.monotonic() > deadline:
                raise
            time.sleep(LEARN_PAUSE_S)


def _flatten(polled: dict[Any, list[Any]]) -> Iterable[Received]:
    for messages in polled.values():
        for message in messages:
            yield Received(
                topic=message.topic,
                partition=message.partition,
                offset=message.offset,
                key=message.key,
                value=message.value,
                headers=tuple((name, value) for name, value in message.headers or ()),
                timestamp_ms=message.timestamp,
            )


def main(pinned: str) -> None:
    api_version = None if pinned == "auto" else tuple(int(part) for part in pinned.split("."))
    driver = Driver(api_version)
    transactions = Transactions(lambda wanted: TransactionalProducer(wanted, api_version))
    serve(driver, Members(driver._open_member), Admin(api_version), transactions, Ways(Secured))


if __name__ == "__main__":
    main(sys.argv[1])

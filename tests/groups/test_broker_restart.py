"""A broker restart as seen by the members of a group, with a real client and a real kill."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from chronik.testing import Broker

pytestmark = pytest.mark.slow

confluent_kafka = pytest.importorskip("confluent_kafka")

DEADLINE_SECONDS = 60.0


class RecordingConsumer:
    """A consumer that records its assignments and the records that it reads."""

    def __init__(self, bootstrap: str) -> None:
        self.assigned: list[set[int]] = []
        self.values: list[bytes] = []
        self.consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "g",
                "auto.offset.reset": "earliest",
                "heartbeat.interval.ms": 500,
                "session.timeout.ms": 30_000,
                "reconnect.backoff.max.ms": 200,
                "log_level": 0,
            }
        )
        self.consumer.subscribe(["t"], on_assign=self._assign)

    def _assign(self, _: Any, partitions: list[Any]) -> None:
        self.assigned.append({partition.partition for partition in partitions})

    def poll(self) -> None:
        message = self.consumer.poll(0.02)
        if message is not None and message.error() is None:
            self.values.append(message.value())


@contextmanager
def recording_consumers(bootstrap: str, count: int) -> Iterator[list[RecordingConsumer]]:
    members = [RecordingConsumer(bootstrap) for _ in range(count)]
    try:
        yield members
    finally:
        for member in members:
            member.consumer.close()


def produce(bootstrap: str, *values: bytes) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    for partition, value in enumerate(values):
        producer.produce("t", value, partition=partition)
    assert producer.flush(DEADLINE_SECONDS) == 0


def poll_until_read(members: list[RecordingConsumer], expected: set[bytes]) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while {value for member in members for value in member.values} != expected:
        assert time.monotonic() < deadline, [member.values for member in members]
        for member in members:
            member.poll()


def test_members_survive_broker_kill_without_rebalance() -> None:
    with Broker() as broker:
        broker.create_topic("t", partitions=2)
        produce(broker.bootstrap, b"a", b"b")
        with recording_consumers(broker.bootstrap, 2) as members:
            deadline = time.monotonic() + DEADLINE_SECONDS
            while sorted(map(str, (member.assigned[-1:] for member in members))) != ["[{0}]", "[{1}]"]:
                assert time.monotonic() < deadline, [member.assigned for member in members]
                for member in members:
                    member.poll()
            poll_until_read(members, {b"a", b"b"})
            before = [list(member.assigned) for member in members]
            broker.kill()
            broker.start()
            produce(broker.bootstrap, b"c", b"d")
            poll_until_read(members, {b"a", b"b", b"c", b"d"})
            for member in members:
                member.consumer.commit(asynchronous=False)
            assert [member.assigned for member in members] == before

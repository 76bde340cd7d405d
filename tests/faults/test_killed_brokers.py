"""After `kill -9` during a load, every acknowledged record exists, in order, exactly once."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Producer

from chronik.testing import Broker
from chronik.testing.plugin import BrokerFactory
from tests.run_size import SEED, sized

KILLS = sized(10, 50)
DEADLINE_SECONDS = 60.0
PARTITIONS = 3


class Load:
    """An idempotent librdkafka producer in a thread, which records the acknowledged messages."""

    def __init__(self, broker: Broker, topic: str) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": broker.bootstrap,
                "enable.idempotence": True,
                "linger.ms": 1,
                "reconnect.backoff.ms": 10,
                "reconnect.backoff.max.ms": 50,
                "retry.backoff.ms": 20,
                "message.timeout.ms": 120_000,
                "log_level": 0,
            }
        )
        self._topic = topic
        self.sent = 0
        self.acknowledged: dict[int, tuple[int, int | None]] = {}
        self.failures: list[str] = []
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._ending.is_set():
            if self.sent - len(self.acknowledged) < 2000:
                number = self.sent
                self.sent += 1
                self._producer.produce(
                    self._topic,
                    value=b"%d" % number,
                    partition=number % PARTITIONS,
                    on_delivery=lambda error, message, number=number: self._delivered(number, error, message),
                )
                self._producer.poll(0)
            else:
                self._producer.poll(0.01)
        self._producer.flush(DEADLINE_SECONDS)

    def _delivered(self, number: int, error: Any, message: Any) -> None:
        if error is not None:
            self.failures.append(str(error))
        else:
            self.acknowledged[number] = (message.partition(), message.offset())  # None if unknown to librdkafka

    def end(self) -> None:
        self._ending.set()
        self._thread.join()


def wait_until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.005)


@pytest.mark.parametrize("flush", ["group", "os"])
def test_acknowledged_records_survive_kills_in_order_exactly_once(
    chronik_broker_factory: BrokerFactory, flush: str, record_property: Callable[[str, object], None]
) -> None:
    rng = random.Random(SEED)
    broker = chronik_broker_factory(flush=flush)
    broker.create_topic("load", partitions=PARTITIONS, configs={"internal.segment.bytes": "200000"})
    load = Load(broker, "load")
    try:
        for _ in range(KILLS):
            before = len(load.acknowledged)
            target = before + rng.randrange(50, 1000)
            wait_until(lambda: len(load.acknowledged) >= target, f"no progress beyond {before} records")  # noqa: B023
            broker.kill()
            broker.start()
    finally:
        load.end()
    assert not load.failures
    assert len(load.acknowledged) == load.sent
    found: dict[int, list[int]] = {partition: [] for partition in range(PARTITIONS)}
    for record in broker.records("load"):
        assert record.value is not None
        number = int(record.value)
        partition, offset = load.acknowledged[number]
        assert (partition, offset) == (record.partition, record.offset if offset is not None else None)
        found[record.partition].append(number)
    for partition, numbers in found.items():
        assert numbers == list(range(partition, load.sent, PARTITIONS)), "lost, duplicated or out of order"
    record_property(
        "summary",
        f"kill -9, flush={flush}: {KILLS} kills, {load.sent} records acknowledged, none lost, doubled or out of order",
    )


def test_full_disk_stops_node_without_losing_acknowledged_records(
    chronik_broker_factory: BrokerFactory,
) -> None:
    resource = pytest.importorskip("resource", reason="file size limits require Unix")
    broker = chronik_broker_factory()
    broker.create_topic("load", partitions=PARTITIONS)
    load = Load(broker, "load")
    try:
        wait_until(lambda: len(load.acknowledged) > 1000, "no progress")
        # The limit makes the next write fail or return short, as on a full disk.
        resource.prlimit(broker.pid, resource.RLIMIT_FSIZE, (200_000, 200_000))
        wait_until(lambda: not broker.is_running, "the node keeps running although it cannot write")
        broker.kill()
        assert "node is stopping" in broker.log
        before = len(load.acknowledged)
        broker.start()
        wait_until(lambda: len(load.acknowledged) > before + 1000, "no progress after the restart")
    finally:
        load.end()
    assert not load.failures
    assert len(load.acknowledged) == load.sent
    places = {record.value: (record.partition, record.offset) for record in broker.records("load")}
    assert len(places) == load.sent
    for number, (partition, offset) in load.acknowledged.items():
        there = places[b"%d" % number]
        assert (partition, offset) == there or (offset is None and partition == there[0])

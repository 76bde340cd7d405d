"""A quota of 1 MB/s, as Java's and librdkafka's producers and consumers keep to it: what they get is measured on the
broker's side or by themselves, while others are served at once and the broker's memory stays as it is."""

from __future__ import annotations

import statistics
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from chronik.testing import Broker
from chronik.testing.plugin import BrokerFactory
from tests import long
from tests.api import talk
from tests.api.limiting import set_quota
from tests.raw import RawClient

from .kafka_tools import java_command

RATE = 1_000_000
RECORD_BYTES = 1000
SECONDS = long.count(7, 20)
LEAST, MOST = (0.9, 1.1) if long.LONG else (0.5, 1.3)
"""Shares of the rate. A batch of up to a second's worth more counts for less in a longer time, and the full count is
run on a machine that does nothing else."""

START_SECONDS_MAX = 60.0
GROWTH_BYTES_MAX = 48 << 20
OTHERS_MEDIAN_SECONDS_MAX = 0.05 if long.LONG else 0.5
OTHERS_SLOWEST_SECONDS_MAX = 1.0 if long.LONG else 10.0
POLL_SECONDS = 0.02
LATEST = -1

LIMITED: dict[str, str | None] = {"client_id": "limited"}


@pytest.fixture
def broker(chronik_broker_factory: BrokerFactory) -> Broker:
    broker = chronik_broker_factory()
    broker.create_topic("t")
    broker.create_topic("others")
    with RawClient(broker.bootstrap) as client:
        set_quota(client, LIMITED, producer_byte_rate=RATE, consumer_byte_rate=RATE)
    return broker


def memory_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096


class Others:
    """A producer without a quota, which notes how long each of its requests takes."""

    def __init__(self, broker: Broker) -> None:
        self._bootstrap = broker.bootstrap
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._produce)
        self.seconds: list[float] = []

    def _produce(self) -> None:
        with RawClient(self._bootstrap) as client:
            while not self._ends.wait(0.02):
                began = time.monotonic()
                talk.produce(client, "others", talk.batch(b"x" * 1000))
                self.seconds.append(time.monotonic() - began)

    def __enter__(self) -> Others:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()


def measured(broker: Broker, amount: Callable[[], int]) -> float:
    """Bytes in a second, from the first on."""
    deadline = time.monotonic() + START_SECONDS_MAX
    while not amount():
        assert time.monotonic() < deadline, "nothing came"
        time.sleep(POLL_SECONDS)
    began, memory = time.monotonic(), memory_bytes(broker.pid)
    with Others(broker) as others:
        while time.monotonic() - began < SECONDS:
            time.sleep(POLL_SECONDS)
        rate = amount() / (time.monotonic() - began)
    growth = memory_bytes(broker.pid) - memory
    median, slowest = statistics.median(others.seconds), max(others.seconds)
    print(
        f"{rate:,.0f} B/s over {SECONDS} s; others {median * 1000:.1f} ms, {slowest * 1000:.1f} ms; memory {growth:+,}"
    )
    assert growth < GROWTH_BYTES_MAX
    assert median < OTHERS_MEDIAN_SECONDS_MAX
    assert slowest < OTHERS_SLOWEST_SECONDS_MAX
    return rate


def assert_held(rate: float) -> None:
    assert LEAST * RATE <= rate <= MOST * RATE


def measured_at_the_end_of_the_log(broker: Broker) -> float:
    with RawClient(broker.bootstrap) as client:
        return measured(broker, lambda: talk.list_offset(client, "t", LATEST).offset * RECORD_BYTES)


@contextmanager
def java(main: str, *arguments: str) -> Iterator[Callable[[], str]]:
    """Runs one of Kafka's own tools, and returns what it has said so far when asked."""
    command = [*java_command(f"org.apache.kafka.tools.{main}"), *arguments]
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, text=True)

        def said() -> str:
            assert process.poll() is None, f"it has ended: {Path(f'/proc/self/fd/{output.fileno()}').read_text()}"
            return Path(f"/proc/self/fd/{output.fileno()}").read_text()

        try:
            yield said
        finally:
            process.kill()
            process.wait()


@pytest.mark.parametrize("batch_bytes", [16_384, 1_000_000])
def test_javas_producer(broker: Broker, batch_bytes: int) -> None:
    properties = f"bootstrap.servers={broker.bootstrap} client.id=limited batch.size={batch_bytes} linger.ms=20"
    wanted = f"--topic t --num-records 100000000 --record-size {RECORD_BYTES} --throughput -1 --producer-props"
    with java("ProducerPerformance", *wanted.split(), *properties.split()):
        assert_held(measured_at_the_end_of_the_log(broker))


def test_javas_consumer(broker: Broker, tmp_path: Path) -> None:
    fill(broker)
    config = tmp_path / "consumer.properties"
    config.write_text("client.id=limited\nauto.offset.reset=earliest\n")
    wanted = f"--bootstrap-server {broker.bootstrap} --topic t --messages 1000000000 --timeout 100000"
    detailed = f"--show-detailed-stats --reporting-interval 100 --hide-header --consumer.config {config}"

    with java("ConsumerPerformance", *wanted.split(), *detailed.split()) as said:

        def consumed() -> int:
            """`time, id, data.consumed.in.MB, MB.sec, …`, a line every 100 ms in which something came."""
            lines = [line.split(",") for line in said().splitlines() if line.count(",") > 5]
            return int(float(lines[-1][2]) * (1 << 20)) if lines else 0

        assert_held(measured(broker, consumed))


@pytest.mark.parametrize("batch_bytes", [16_384, 1_000_000])
def test_librdkafkas_producer(broker: Broker, batch_bytes: int) -> None:
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "client.id": "limited",
            "batch.size": batch_bytes,
            "linger.ms": 20,
            "queue.buffering.max.kbytes": 16_384,
            "log_level": 0,
        }
    )
    ends = threading.Event()

    def produce() -> None:
        while not ends.is_set():
            try:
                producer.produce("t", bytes(RECORD_BYTES))
            except BufferError:
                producer.poll(0.01)

    thread = threading.Thread(target=produce)
    thread.start()
    try:
        assert_held(measured_at_the_end_of_the_log(broker))
    finally:
        ends.set()
        thread.join()
        producer.purge(in_queue=True, in_flight=True)
        producer.flush(10)


def test_librdkafkas_consumer(broker: Broker) -> None:
    fill(broker)
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "client.id": "limited",
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "queued.max.messages.kbytes": 1 << 20,
        }
    )
    consumer.subscribe(["t"])
    ends = threading.Event()
    consumed = [0]

    def consume() -> None:
        while not ends.is_set():
            consumed[0] += sum(len(message.value() or b"") for message in consumer.consume(1000, 0.05))

    thread = threading.Thread(target=consume)
    thread.start()
    try:
        assert_held(measured(broker, lambda: consumed[0]))
    finally:
        ends.set()
        thread.join()
        consumer.close()


def fill(broker: Broker) -> None:
    """More than anybody consumes here."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "client.id": "unlimited", "batch.size": 200_000})
    for _ in range(2 * SECONDS * RATE // RECORD_BYTES):
        producer.produce("t", bytes(RECORD_BYTES), on_delivery=None)
        producer.poll(0)
    assert producer.flush(60) == 0

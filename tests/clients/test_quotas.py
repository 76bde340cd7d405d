"""A quota of 1 MB/s with Java and librdkafka producers and consumers.

The rate is measured on the broker or by the client, while other clients are served normally and memory stays constant.
"""

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
from tests import run_size
from tests.api import request_builders
from tests.api.quota_requests import set_quota
from tests.raw import RawClient

from .kafka_tools import java_command

RATE = 1_000_000
RECORD_BYTES = 1000
SECONDS = run_size.sized(7, 20)
LEAST, MOST = (0.9, 1.1) if run_size.IS_LONG_RUN else (0.5, 1.3)
"""Allowed ratios to the quota. The excess of one batch matters less in a longer run, which runs on an idle machine."""

START_SECONDS_MAX = 60.0
GROWTH_BYTES_MAX = 48 << 20
UNLIMITED_MEDIAN_SECONDS_MAX = 0.05 if run_size.IS_LONG_RUN else 0.5
UNLIMITED_SLOWEST_SECONDS_MAX = 1.0 if run_size.IS_LONG_RUN else 10.0
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


class UnlimitedProducer:
    """A producer without a quota that records the latency of each request."""

    def __init__(self, broker: Broker) -> None:
        self._bootstrap = broker.bootstrap
        self._stop_event = threading.Event()
        self._thread = threading.Thread(target=self._produce)
        self.seconds: list[float] = []

    def _produce(self) -> None:
        with RawClient(self._bootstrap) as client:
            while not self._stop_event.wait(0.02):
                started = time.monotonic()
                request_builders.produce(client, "others", request_builders.batch(b"x" * 1000))
                self.seconds.append(time.monotonic() - started)

    def __enter__(self) -> UnlimitedProducer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop_event.set()
        self._thread.join()


def measure_rate(broker: Broker, amount: Callable[[], int]) -> float:
    """Return the bytes per second from the first byte on, and check other clients' latency and the memory."""
    deadline = time.monotonic() + START_SECONDS_MAX
    while not amount():
        assert time.monotonic() < deadline, "no data arrived"
        time.sleep(POLL_SECONDS)
    started, memory = time.monotonic(), memory_bytes(broker.pid)
    with UnlimitedProducer(broker) as unlimited_producer:
        while time.monotonic() - started < SECONDS:
            time.sleep(POLL_SECONDS)
        rate = amount() / (time.monotonic() - started)
    growth = memory_bytes(broker.pid) - memory
    median, slowest = statistics.median(unlimited_producer.seconds), max(unlimited_producer.seconds)
    print(
        f"{rate:,.0f} B/s over {SECONDS} s; others {median * 1000:.1f} ms, {slowest * 1000:.1f} ms; memory {growth:+,}"
    )
    assert growth < GROWTH_BYTES_MAX
    assert median < UNLIMITED_MEDIAN_SECONDS_MAX
    assert slowest < UNLIMITED_SLOWEST_SECONDS_MAX
    return rate


def assert_within_quota(rate: float) -> None:
    assert LEAST * RATE <= rate <= MOST * RATE


def measure_log_growth(broker: Broker) -> float:
    with RawClient(broker.bootstrap) as client:
        return measure_rate(broker, lambda: request_builders.list_offset(client, "t", LATEST).offset * RECORD_BYTES)


@contextmanager
def java(main: str, *arguments: str) -> Iterator[Callable[[], str]]:
    """Run one of Kafka's tools and yield a function that returns its output so far."""
    command = [*java_command(f"org.apache.kafka.tools.{main}"), *arguments]
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, text=True)

        def read_output() -> str:
            assert process.poll() is None, f"exited: {Path(f'/proc/self/fd/{output.fileno()}').read_text()}"
            return Path(f"/proc/self/fd/{output.fileno()}").read_text()

        try:
            yield read_output
        finally:
            process.kill()
            process.wait()


@pytest.mark.parametrize("batch_bytes", [16_384, 1_000_000])
def test_java_producer_keeps_byte_rate_quota(broker: Broker, batch_bytes: int) -> None:
    properties = f"bootstrap.servers={broker.bootstrap} client.id=limited batch.size={batch_bytes} linger.ms=20"
    tool_arguments = f"--topic t --num-records 100000000 --record-size {RECORD_BYTES} --throughput -1 --producer-props"
    with java("ProducerPerformance", *tool_arguments.split(), *properties.split()):
        assert_within_quota(measure_log_growth(broker))


def test_java_consumer_keeps_byte_rate_quota(broker: Broker, tmp_path: Path) -> None:
    fill(broker)
    config = tmp_path / "consumer.properties"
    config.write_text("client.id=limited\nauto.offset.reset=earliest\n")
    tool_arguments = f"--bootstrap-server {broker.bootstrap} --topic t --messages 1000000000 --timeout 100000"
    detailed = f"--show-detailed-stats --reporting-interval 100 --hide-header --consumer.config {config}"

    with java("ConsumerPerformance", *tool_arguments.split(), *detailed.split()) as read_output:

        def consumed() -> int:
            """`time, id, data.consumed.in.MB, MB.sec, …`, one line per 100 ms with data."""
            lines = [line.split(",") for line in read_output().splitlines() if line.count(",") > 5]
            return int(float(lines[-1][2]) * (1 << 20)) if lines else 0

        assert_within_quota(measure_rate(broker, consumed))


@pytest.mark.parametrize("batch_bytes", [16_384, 1_000_000])
def test_librdkafka_producer_keeps_byte_rate_quota(broker: Broker, batch_bytes: int) -> None:
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
    stop_event = threading.Event()

    def produce() -> None:
        while not stop_event.is_set():
            try:
                producer.produce("t", bytes(RECORD_BYTES))
            except BufferError:
                producer.poll(0.01)

    thread = threading.Thread(target=produce)
    thread.start()
    try:
        assert_within_quota(measure_log_growth(broker))
    finally:
        stop_event.set()
        thread.join()
        producer.purge(in_queue=True, in_flight=True)
        producer.flush(10)


def test_librdkafka_consumer_keeps_byte_rate_quota(broker: Broker) -> None:
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
    stop_event = threading.Event()
    consumed = [0]

    def consume() -> None:
        while not stop_event.is_set():
            consumed[0] += sum(len(message.value() or b"") for message in consumer.consume(1000, 0.05))

    thread = threading.Thread(target=consume)
    thread.start()
    try:
        assert_within_quota(measure_rate(broker, lambda: consumed[0]))
    finally:
        stop_event.set()
        thread.join()
        consumer.close()


def fill(broker: Broker) -> None:
    """Produce more records than the consumers read."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "client.id": "unlimited", "batch.size": 200_000})
    for _ in range(2 * SECONDS * RATE // RECORD_BYTES):
        producer.produce("t", bytes(RECORD_BYTES), on_delivery=None)
        producer.poll(0)
    assert producer.flush(60) == 0

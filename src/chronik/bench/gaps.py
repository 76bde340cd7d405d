"""`chronik bench gaps`: how long a partition is unavailable for writes and reads while brokers fail and restart.

The gaps are measured as an application sees them, with a producer and a consumer in their default settings. Their
retry backoff is part of the result.
"""

from __future__ import annotations

import argparse
import itertools
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from chronik.bench.arguments import add_replication_argument, connect, parse_bootstrap_access, parse_positive_int
from chronik.bench.errors import BenchmarkError, LibrdkafkaNotInstalled
from chronik.bench.librdkafka_config import build_librdkafka_security, create_temporary_topics, generate_name
from chronik.client.access.settings import Bootstrap

SECONDS_DEFAULT: Final = 30

RECORD_SECONDS: Final = 0.01
"""Interval in seconds between two records that the benchmark sends.

It is the resolution of the measured gaps.
"""

POLL_SECONDS: Final = 0.1
FIRST_RECORD_SECONDS_MAX: Final = 60.0
STOP_SECONDS_MAX: Final = 60.0
NO_RECORD: Final = -1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--seconds",
        type=parse_positive_int,
        default=SECONDS_DEFAULT,
        metavar="N",
        help="duration (default: %(default)s)",
    )
    add_replication_argument(parser)


def run(arguments: argparse.Namespace) -> list[ServiceAvailability]:
    topic = generate_name("gaps")
    replication_factor_value: int = arguments.replication_factor
    with (
        connect(arguments) as cluster,
        create_temporary_topics(cluster, [topic], replication_factor=replication_factor_value),
    ):
        with AvailabilityProbe(parse_bootstrap_access(arguments), topic, 0) as watch:
            watch.run_for_seconds(arguments.seconds)
        return [watch.summarize()]


@dataclass(frozen=True, slots=True)
class ServiceAvailability:
    """The availability of a partition during a benchmark: its longest interruptions and record counts."""

    seconds: float
    acknowledged: int
    consumed: int
    longest_without_ack_seconds: float
    longest_without_record_seconds: float


def longest_gap(times: Sequence[float], started: float, ended: float) -> float:
    """Return the longest interval without an event, such as an acknowledgement, in the measured period."""
    bounds = [started, *(each for each in times if started < each < ended), ended]
    return max(later - earlier for earlier, later in itertools.pairwise(bounds))


class _Arrivals:
    """Arrival times of records, and the highest record number that was received."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self.last = NO_RECORD

    def add(self, number: int) -> None:
        self.times.append(time.perf_counter())
        self.last = max(self.last, number)


class AvailabilityProbe:
    """A producer that continuously writes to one partition, and a consumer group with one member that reads it.

    On entry, the context manager waits until records flow. Raises BenchmarkError if the producer drops a record.
    """

    def __init__(self, bootstrap: Bootstrap, topic: str, partition: int) -> None:
        try:
            import confluent_kafka
        except ImportError as error:
            raise LibrdkafkaNotInstalled from error
        # Suppress librdkafka's log: brokers are expected to stop.
        common = {"bootstrap.servers": str(bootstrap), "log_level": "0"} | build_librdkafka_security(bootstrap)
        self._producer: Any = confluent_kafka.Producer(common | {"acks": "all"})
        reader = {"group.id": generate_name("gaps"), "auto.offset.reset": "earliest"}
        self._consumer: Any = confluent_kafka.Consumer(common | reader)
        self._topic, self._partition = topic, partition
        self._sent = 0
        self._acknowledged, self._consumed = _Arrivals(), _Arrivals()
        self._failure: str | None = None
        self._started = self._ended = 0.0
        self._stopping = threading.Event()
        jobs = {"producer": self._produce, "consumer": self._consume}
        self._threads = [threading.Thread(target=job, name=f"bench-{name}") for name, job in jobs.items()]

    def __enter__(self) -> AvailabilityProbe:
        for thread in self._threads:
            thread.start()
        try:
            self.wait_until_available(FIRST_RECORD_SECONDS_MAX)
        except BaseException:
            self._stop()
            raise
        self._started = time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended = time.perf_counter()
        self._stop()

    def run_for_seconds(self, seconds: float) -> None:
        """Produce and consume records for some seconds, and raise BenchmarkError if a record is dropped."""
        self._wait(lambda: False, seconds)

    def wait_until_available(self, seconds: float) -> None:
        """Wait until a new record has been acknowledged and consumed.

        Raises BenchmarkError.
        """
        number = self._sent
        if not self._wait(lambda: min(self._acknowledged.last, self._consumed.last) >= number, seconds):
            raise BenchmarkError(
                f"no record was delivered within {seconds:g} s: waiting for number {number}, last acknowledged "
                f"{self._acknowledged.last}, last consumed {self._consumed.last}"
            )

    def summarize(self) -> ServiceAvailability:
        """Return the availability of the partition during the `with` block."""
        acknowledged, consumed = self._acknowledged.times, self._consumed.times
        return ServiceAvailability(
            seconds=self._ended - self._started,
            acknowledged=sum(self._started < each < self._ended for each in acknowledged),
            consumed=sum(self._started < each < self._ended for each in consumed),
            longest_without_ack_seconds=longest_gap(acknowledged, self._started, self._ended),
            longest_without_record_seconds=longest_gap(consumed, self._started, self._ended),
        )

    def _wait(self, is_enough: Callable[[], bool], seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while not is_enough():
            if self._failure is not None:
                raise BenchmarkError(self._failure)
            if time.monotonic() > deadline:
                return False
            time.sleep(RECORD_SECONDS)
        return True

    def _stop(self) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join(STOP_SECONDS_MAX)

    # Thread bodies

    def _produce(self) -> None:
        producer = self._producer
        due = time.monotonic()
        while not self._stopping.is_set():
            try:
                producer.produce(
                    self._topic, b"%d" % self._sent, partition=self._partition, on_delivery=self._on_delivery
                )
                self._sent += 1
            except BufferError:
                pass  # the send queue is full because nothing was acknowledged for a long time
            due += RECORD_SECONDS
            while (remaining_s := due - time.monotonic()) > 0:
                producer.poll(remaining_s)  # returns early when delivery reports arrive
            producer.poll(0)
        producer.purge()
        producer.flush(STOP_SECONDS_MAX)

    def _on_delivery(self, error: Any, message: Any) -> None:
        if error is None:
            self._acknowledged.add(int(message.value()))
        elif not self._stopping.is_set():
            self._failure = f"a record was not delivered: {error.str()}"

    def _consume(self) -> None:
        consumer = self._consumer
        consumer.subscribe([self._topic])
        while not self._stopping.is_set():
            message = consumer.poll(POLL_SECONDS)
            # The client recovers from errors itself; the recovery time is part of the measurement.
            if message is not None and message.error() is None:
                self._consumed.add(int(message.value()))
        consumer.close()

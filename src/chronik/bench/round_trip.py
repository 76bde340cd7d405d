"""`chronik bench round-trip`: the latency from producing a single record to receiving it in a waiting consumer."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any, Final, NamedTuple

from chronik.bench.arguments import connect, parse_bootstrap_access, parse_positive_int
from chronik.bench.errors import BenchmarkError, LibrdkafkaNotInstalled
from chronik.bench.librdkafka_config import build_client_config, create_temporary_topics, generate_name
from chronik.bench.statistics import Latency
from chronik.client.access.settings import Bootstrap
from chronik.config import Address

ARRIVAL_SECONDS_MAX: Final = 10.0
STATUS_SECONDS_MAX: Final = 10.0
WARM_UP_TRIPS: Final = 100  # opens connections and runs every code path once


class TimeSpan(NamedTuple):
    """The start and end time of a record's round trip or of a disk sync.

    All local processes share the clock.
    """

    start: float
    end: float

    @property
    def seconds(self) -> float:
        return self.end - self.start

    def overlaps(self, other: TimeSpan) -> bool:
        return self.start <= other.end and other.start <= self.end


@dataclass(frozen=True, slots=True)
class RoundTripResult:
    """Results of a benchmark: latency of round trips, and how many overlap with slow disk syncs."""

    trips: int
    record_bytes: int
    latency: Latency
    over_50_ms: int
    over_100_ms: int
    beside_slow_syncs: int | None = None
    """Number of round trips that overlap a disk sync of more than 50 ms, or None if the syncs are unknown."""
    max_ms_of_others: float | None = None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--records", type=parse_positive_int, default=2000, metavar="N", help="records to send (default: %(default)s)"
    )
    parser.add_argument(
        "--size",
        type=parse_positive_int,
        default=100,
        metavar="BYTES",
        help="size of a record's value (default: %(default)s)",
    )
    parser.add_argument(
        "--acks", choices=("all", "1", "0"), default="all", help="required acknowledgements (default: %(default)s)"
    )
    parser.add_argument(
        "--http",
        action="append",
        default=[],
        type=Address.parse,
        metavar="HOST:PORT",
        help="HTTP address of a node on this machine, to count trips during its slow disk syncs separately; repeatable",
    )


def run(arguments: argparse.Namespace) -> list[RoundTripResult]:
    topic = generate_name("round-trip")
    with connect(arguments) as cluster, create_temporary_topics(cluster, [topic]):
        trips = measure_round_trips(
            parse_bootstrap_access(arguments), topic, arguments.records, arguments.size, arguments.acks
        )
        return [
            summarize_round_trips(trips, arguments.size, list_slow_syncs(arguments.http) if arguments.http else None)
        ]


def measure(bootstrap: Bootstrap, topic: str, trips: int, size: int = 100, acks: str = "all") -> RoundTripResult:
    """Measure the time of records from a producer to a consumer, on a new topic with one partition.

    Raises BenchmarkError.
    """
    return summarize_round_trips(measure_round_trips(bootstrap, topic, trips, size, acks), size)


def measure_round_trips(
    bootstrap: Bootstrap, topic: str, trips: int, size: int = 100, acks: str = "all"
) -> list[TimeSpan]:
    """Send records one at a time on a new topic, and return when each was sent and consumed.

    Raises BenchmarkError.
    """
    with open_round_trip(bootstrap, topic, size, acks) as trip:
        for _ in range(WARM_UP_TRIPS):
            trip()
        return [trip() for _ in range(trips)]


@contextmanager
def open_round_trip(
    bootstrap: Bootstrap, topic: str, size: int = 100, acks: str = "all"
) -> Iterator[Callable[[], TimeSpan]]:
    """Yield a function that sends a record to a new topic and waits until the record is consumed.

    Its first calls are slower.

    Raises:
        BenchmarkError: If a record does not arrive.
    """
    try:
        import confluent_kafka
    except ImportError as error:
        raise LibrdkafkaNotInstalled from error
    producer = confluent_kafka.Producer(build_client_config(bootstrap, linger_ms="0", acks=acks))
    consumer = confluent_kafka.Consumer(
        build_client_config(bootstrap, group_id=topic, enable_auto_commit="false", enable_auto_offset_store="false")
    )
    values = (_build_value(number, size) for number in count())
    try:
        consumer.assign([confluent_kafka.TopicPartition(topic, 0, confluent_kafka.OFFSET_BEGINNING)])
        yield lambda: _measure_round_trip(producer, consumer, topic, next(values))
    finally:
        consumer.close()
        producer.flush(ARRIVAL_SECONDS_MAX)


def list_slow_syncs(nodes: Sequence[Address]) -> list[TimeSpan]:
    """Return the recent slow disk syncs that the nodes' status pages list.

    Raises NodeRequestError.
    """
    from chronik.console.http_client import fetch_status

    return [
        TimeSpan(*times) for node in nodes for times in fetch_status(node, STATUS_SECONDS_MAX)["syncs"]["recent_slow"]
    ]


def summarize_round_trips(
    trips: Sequence[TimeSpan], size: int, slow_intervals: Sequence[TimeSpan] | None = None
) -> RoundTripResult:
    """Compute the latencies of round trips, separating those that overlap slow disk syncs.

    Raises BenchmarkError without round trips.
    """
    seconds = [trip.seconds for trip in trips]
    unaffected = [trip.seconds for trip in trips if not any(map(trip.overlaps, slow_intervals or ()))]
    return RoundTripResult(
        trips=len(trips),
        record_bytes=size,
        latency=Latency.from_seconds(seconds),
        over_50_ms=sum(each > 0.05 for each in seconds),
        over_100_ms=sum(each > 0.1 for each in seconds),
        beside_slow_syncs=None if slow_intervals is None else len(seconds) - len(unaffected),
        max_ms_of_others=None if slow_intervals is None else 1000 * max(unaffected, default=0.0),
    )


def _build_value(number: int, size: int) -> bytes:
    return b"%0*d" % (size, number)


def _measure_round_trip(producer: Any, consumer: Any, topic: str, value: bytes) -> TimeSpan:
    began = time.perf_counter()
    producer.produce(topic, value, partition=0)
    message = consumer.poll(ARRIVAL_SECONDS_MAX)
    ended = time.perf_counter()
    producer.poll(0)
    if message is None:
        raise BenchmarkError(f"a record did not arrive within {ARRIVAL_SECONDS_MAX:g} s")
    if message.error():
        raise BenchmarkError(f"consume: {message.error().str()}")
    if message.value() != value:
        raise BenchmarkError("received a record other than the one sent")
    return TimeSpan(began, ended)

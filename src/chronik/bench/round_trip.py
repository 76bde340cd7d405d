"""`chronik bench round-trip`: one record at a time, from the call of produce until a waiting consumer has it."""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from typing import Any, Final

from chronik.bench.arguments import cluster_of, positive
from chronik.bench.clients import client_config, temporary_topics, unique_name
from chronik.bench.errors import BenchFailed, ClientMissing
from chronik.bench.measures import Latency

ARRIVAL_SECONDS_MAX: Final = 10.0
WARM_UP_TRIPS: Final = 100  # connections are made, and every code path has run


@dataclass(frozen=True, slots=True)
class RoundTripResult:
    trips: int
    record_bytes: int
    latency: Latency


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--records", type=positive, default=2000, metavar="N")
    parser.add_argument("--size", type=positive, default=100, metavar="BYTES", help="of a record's value")
    parser.add_argument("--acks", choices=("all", "1", "0"), default="all")


def run(arguments: argparse.Namespace) -> list[RoundTripResult]:
    topic = unique_name("round-trip")
    with cluster_of(arguments) as cluster, temporary_topics(cluster, [topic]):
        return [measure(arguments.bootstrap_server, topic, arguments.records, arguments.size, arguments.acks)]


def measure(bootstrap: str, topic: str, trips: int, size: int = 100, acks: str = "all") -> RoundTripResult:
    """The topic is new: its one partition is read from its beginning. Raises BenchFailed."""
    try:
        import confluent_kafka
    except ImportError as error:
        raise ClientMissing from error
    producer = confluent_kafka.Producer(client_config(bootstrap, linger_ms="0", acks=acks))
    consumer = confluent_kafka.Consumer(
        client_config(bootstrap, group_id=topic, enable_auto_commit="false", enable_auto_offset_store="false")
    )
    try:
        consumer.assign([confluent_kafka.TopicPartition(topic, 0, confluent_kafka.OFFSET_BEGINNING)])
        for number in range(WARM_UP_TRIPS):
            _trip(producer, consumer, topic, _value(number, size))
        seconds = [_trip(producer, consumer, topic, _value(number, size)) for number in range(trips)]
    finally:
        consumer.close()
        producer.flush(ARRIVAL_SECONDS_MAX)
    return RoundTripResult(trips, size, Latency.of(seconds))


def _value(number: int, size: int) -> bytes:
    return b"%0*d" % (size, number)


def _trip(producer: Any, consumer: Any, topic: str, value: bytes) -> float:
    began = time.perf_counter()
    producer.produce(topic, value, partition=0)
    message = consumer.poll(ARRIVAL_SECONDS_MAX)
    seconds = time.perf_counter() - began
    producer.poll(0)
    if message is None:
        raise BenchFailed(f"a record did not arrive within {ARRIVAL_SECONDS_MAX:g} s")
    if message.error():
        raise BenchFailed(f"consume: {message.error().str()}")
    if message.value() != value:
        raise BenchFailed("another record arrived than the one that was sent")
    return seconds

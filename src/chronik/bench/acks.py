"""`chronik bench acks`: the latency from producing a single record to its acknowledgement."""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from typing import Any, Final

from chronik.bench.arguments import add_replication_argument, connect, parse_bootstrap_access, parse_positive_int
from chronik.bench.errors import BenchmarkError, LibrdkafkaNotInstalled
from chronik.bench.librdkafka_config import build_client_config, create_temporary_topics, generate_name
from chronik.bench.statistics import Latency
from chronik.client.access.settings import Bootstrap

ACK_SECONDS_MAX: Final = 30.0
WARM_UP_RECORDS: Final = 100  # opens connections and runs every code path once


@dataclass(frozen=True, slots=True)
class AcksResult:
    """Results of a benchmark: the acknowledgement latency of records that are sent one at a time."""

    records: int
    record_bytes: int
    acks: str
    latency: Latency


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
        "--acks", choices=("all", "1"), default="all", help="required acknowledgements (default: %(default)s)"
    )
    add_replication_argument(parser)


def run(arguments: argparse.Namespace) -> list[AcksResult]:
    topic = generate_name("acks")
    replication_factor_value: int = arguments.replication_factor
    with (
        connect(arguments) as cluster,
        create_temporary_topics(cluster, [topic], replication_factor=replication_factor_value),
    ):
        return [measure(parse_bootstrap_access(arguments), topic, arguments.records, arguments.size, arguments.acks)]


def measure(bootstrap: Bootstrap, topic: str, records: int, size: int = 100, acks: str = "all") -> AcksResult:
    """Measure the acknowledgement latency of single records on partition 0. Raises BenchmarkError."""
    try:
        import confluent_kafka
    except ImportError as error:
        raise LibrdkafkaNotInstalled from error
    producer = confluent_kafka.Producer(build_client_config(bootstrap, linger_ms="0", acks=acks))
    value = b"x" * size
    try:
        for _ in range(WARM_UP_RECORDS):
            _send(producer, topic, value)
        seconds = [_send(producer, topic, value) for _ in range(records)]
    finally:
        producer.purge()
        producer.flush(ACK_SECONDS_MAX)
    return AcksResult(records, size, acks, Latency.from_seconds(seconds))


def _send(producer: Any, topic: str, value: bytes) -> float:
    reports: list[Any] = []
    started = time.perf_counter()
    producer.produce(topic, value, partition=0, on_delivery=lambda error, _: reports.append(error))
    deadline = started + ACK_SECONDS_MAX
    while not reports and time.perf_counter() < deadline:
        producer.poll(ACK_SECONDS_MAX)
    seconds = time.perf_counter() - started
    if not reports:
        raise BenchmarkError(f"a record was not acknowledged within {ACK_SECONDS_MAX:g} s")
    if reports[0] is not None:
        raise BenchmarkError(f"a record was not acknowledged: {reports[0].str()}")
    return seconds

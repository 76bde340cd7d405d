"""`chronik bench consume`: the throughput of one librdkafka consumer that reads a topic without a group."""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from chronik.bench.arguments import add_load_arguments, connect, parse_bootstrap_access, parse_positive_int
from chronik.bench.errors import BenchmarkError
from chronik.bench.librdkafka import LibrdkafkaConsumer
from chronik.bench.librdkafka_config import build_client_config
from chronik.bench.statistics import MEGABYTE, MILLION, CpuMeter
from chronik.client.access.settings import Bootstrap
from chronik.client.cluster import ClusterClient
from chronik.client.offsets import list_earliest_offsets, list_latest_offsets
from chronik.wording import pluralize

RECORDS_PER_CALL: Final = 10_000
POLL_MS: Final = 5  # how long a call waits for a full batch; only the last call of a run waits
STALLED_SECONDS_MAX: Final = 30.0
QUEUED_RECORDS_MIN: Final = 1_000_000  # librdkafka prefetches this many while records are counted
QUEUED_KIB_MAX: Final = 1_000_000  # high enough for the record count above to be the limit
FULL_QUEUE_BACKOFF_MS: Final = 5  # the default of one second is for slow readers
FETCH_BYTES_MAX: Final = 8_000_000  # per request; the default of 1 MB per partition would limit a single partition


@dataclass(frozen=True, slots=True)
class ConsumeLoad:
    """Parameters of a consumer benchmark: topic, number of records and client settings."""

    bootstrap: Bootstrap
    topic: str
    partitions: int
    records: int
    broker_pid: int | None = None
    security: Mapping[str, str] = field(default_factory=dict)
    """Security settings in librdkafka's format."""


@dataclass(frozen=True, slots=True)
class ConsumeResult:
    """Results of a consumer benchmark: throughput and CPU time."""

    records: int
    seconds: float
    records_per_second: float
    mb_per_second: float
    client_cpu_s_per_million: float
    broker_cpu_s_per_million: float | None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_load_arguments(parser)
    parser.add_argument("--records", type=parse_positive_int, metavar="N", help="records to read (default: all)")


def run(arguments: argparse.Namespace) -> list[ConsumeResult]:
    with connect(arguments) as cluster:
        partitions, records = count_records(cluster, arguments.topic)
    if not records:
        raise BenchmarkError(f"topic {arguments.topic} is empty; run `chronik bench produce` first")
    if arguments.records is not None:
        records = min(records, arguments.records)
    return [
        measure(ConsumeLoad(parse_bootstrap_access(arguments), arguments.topic, partitions, records, arguments.pid))
    ]


def count_records(cluster: ClusterClient, topic: str) -> tuple[int, int]:
    """Return the number of partitions and records of a topic."""
    partitions = cluster.retry(lambda: cluster.partitions(topic))
    first, end = list_earliest_offsets(cluster, partitions), list_latest_offsets(cluster, partitions)
    return len(partitions), sum(end[partition] - first[partition] for partition in partitions)


def measure(load: ConsumeLoad) -> ConsumeResult:
    """Run the consumer benchmark, and return its throughput.

    Timing starts after the first records. Raises BenchmarkError.
    """
    consumer = LibrdkafkaConsumer(_build_consumer_config(load), load.topic, load.partitions, RECORDS_PER_CALL)
    try:
        first, _ = _consume_records(consumer)
        broker_cpu, client_cpu_s, started = CpuMeter(load.broker_pid), time.process_time(), time.perf_counter()
        measured, measured_bytes = 0, 0
        while first + measured < load.records:
            records, size = _consume_records(consumer)
            measured += records
            measured_bytes += records * size
        if not measured:
            raise BenchmarkError(f"{pluralize(load.records, 'record')} arrived in one poll: too few to measure")
        seconds = time.perf_counter() - started
        return ConsumeResult(
            records=measured,
            seconds=seconds,
            records_per_second=measured / seconds,
            mb_per_second=measured_bytes / seconds / MEGABYTE,
            client_cpu_s_per_million=(time.process_time() - client_cpu_s) / measured * MILLION,
            broker_cpu_s_per_million=broker_cpu.compute_seconds_per_million(measured),
        )
    finally:
        consumer.close()


def _consume_records(consumer: LibrdkafkaConsumer) -> tuple[int, int]:
    """Consume the available records, and return their number and the size of one of them.

    Inspecting each record would dominate the cost.
    """
    deadline = time.monotonic() + STALLED_SECONDS_MAX
    while not (received := consumer.consume(POLL_MS)).records:
        if time.monotonic() > deadline:
            raise BenchmarkError(f"no record arrived within {STALLED_SECONDS_MAX:g} s")
    return received.records, received.sample_bytes


def _build_consumer_config(load: ConsumeLoad) -> dict[str, str]:
    return dict(load.security) | build_client_config(
        load.bootstrap,
        queued_min_messages=str(QUEUED_RECORDS_MIN),
        queued_max_messages_kbytes=str(QUEUED_KIB_MAX),
        fetch_queue_backoff_ms=str(FULL_QUEUE_BACKOFF_MS),
        fetch_message_max_bytes=str(FETCH_BYTES_MAX),
    )

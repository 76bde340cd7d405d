"""`chronik bench produce`: the maximum throughput of one librdkafka producer."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from chronik.bench.arguments import (
    add_load_arguments,
    add_replication_argument,
    connect,
    parse_bootstrap_access,
    parse_positive_int,
)
from chronik.bench.errors import BenchmarkError
from chronik.bench.librdkafka import LibrdkafkaProducer
from chronik.bench.librdkafka_config import build_client_config, ensure_topic
from chronik.bench.statistics import MEGABYTE, MILLION, CpuMeter, Latency
from chronik.client.access.settings import Bootstrap

RECORDS_PER_CALL: Final = 10_000  # one call takes 0.3 ms; delivery reports are processed in between
QUEUED_RECORDS_MAX: Final = 1_000_000  # enough for librdkafka to stay busy while this thread is not scheduled
QUEUED_KIB_MAX: Final = 2_097_151  # librdkafka's maximum; the record count above is the limit
BATCH_RECORDS_MAX: Final = 1_000_000  # high enough for the bytes to be the limit
BATCH_BYTES_MAX: Final = 1_000_000
LINGER_MS: Final = 5
STALLED_SECONDS_MAX: Final = 30.0
CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")


@dataclass(frozen=True)
class ProduceLoad:
    """Parameters of a producer benchmark: topic, number of records and producer settings."""

    bootstrap: Bootstrap
    topic: str
    records: int = 1_000_000
    size: int = 100
    acks: str = "all"
    codec: str = "none"
    broker_pid: int | None = None
    batch_records: int = BATCH_RECORDS_MAX
    security: Mapping[str, str] = field(default_factory=dict)
    """Security settings in librdkafka's format."""


@dataclass(frozen=True, slots=True)
class ProduceResult:
    """Results of a producer benchmark: throughput, CPU time and latency."""

    records: int
    record_bytes: int
    seconds: float
    records_per_second: float
    mb_per_second: float
    client_cpu_s_per_million: float
    broker_cpu_s_per_million: float | None
    latency: Latency
    """Latency from enqueueing to the delivery report, for the first record of each batch."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_load_arguments(parser)
    parser.add_argument(
        "--records",
        type=parse_positive_int,
        default=ProduceLoad.records,
        metavar="N",
        help="records to send (default: %(default)s)",
    )
    parser.add_argument(
        "--size",
        type=parse_positive_int,
        default=ProduceLoad.size,
        metavar="BYTES",
        help="size of a record's value (default: %(default)s)",
    )
    parser.add_argument(
        "--acks",
        choices=("all", "1", "0"),
        default=ProduceLoad.acks,
        help="required acknowledgements (default: %(default)s)",
    )
    parser.add_argument("--codec", choices=CODECS, default=ProduceLoad.codec, help="compression (default: %(default)s)")
    parser.add_argument(
        "--partitions", type=parse_positive_int, default=1, metavar="N", help="partitions if the topic is created"
    )
    add_replication_argument(parser)


def run(arguments: argparse.Namespace) -> list[ProduceResult]:
    with connect(arguments) as cluster:
        ensure_topic(cluster, arguments.topic, arguments.partitions, arguments.replication_factor)
    load = ProduceLoad(
        parse_bootstrap_access(arguments),
        arguments.topic,
        arguments.records,
        arguments.size,
        arguments.acks,
        arguments.codec,
        arguments.pid,
    )
    return [measure(load)]


def measure(load: ProduceLoad) -> ProduceResult:
    """Run the producer benchmark, and raise BenchmarkError if a record is not acknowledged."""
    producer = LibrdkafkaProducer(_build_producer_config(load), load.topic, _build_value(load), RECORDS_PER_CALL)
    try:
        _Delivery(producer, 1).run()  # opens the connection and the broker's files
        broker_cpu, client_cpu_s, started = CpuMeter(load.broker_pid), time.process_time(), time.perf_counter()
        latencies_us = _Delivery(producer, load.records).run()
        seconds = time.perf_counter() - started
        return ProduceResult(
            records=load.records,
            record_bytes=load.size,
            seconds=seconds,
            records_per_second=load.records / seconds,
            mb_per_second=load.records * load.size / seconds / MEGABYTE,
            client_cpu_s_per_million=(time.process_time() - client_cpu_s) / load.records * MILLION,
            broker_cpu_s_per_million=broker_cpu.compute_seconds_per_million(load.records),
            latency=Latency.from_seconds(latency / MILLION for latency in latencies_us),
        )
    finally:
        producer.close()


def _build_producer_config(load: ProduceLoad) -> dict[str, str]:
    return dict(load.security) | build_client_config(
        load.bootstrap,
        acks=load.acks,
        compression_codec=load.codec,
        linger_ms=str(LINGER_MS),
        batch_size=str(BATCH_BYTES_MAX),
        batch_num_messages=str(load.batch_records),
        queue_buffering_max_messages=str(QUEUED_RECORDS_MAX),
        queue_buffering_max_kbytes=str(QUEUED_KIB_MAX),
        enable_idempotence="false",
    )


def _build_value(load: ProduceLoad) -> bytes:
    """Return the value of all records of the benchmark.

    With compression, it is random, so that only its repetition is compressible.
    """
    return b"x" * load.size if load.codec == "none" else os.urandom(load.size)


class _Delivery:
    """A benchmark run that enqueues records as fast as librdkafka accepts them, until all are delivered."""

    def __init__(self, producer: LibrdkafkaProducer, records: int) -> None:
        self._producer = producer
        self._unsent = self._undelivered = records
        self._latencies_us: list[int] = []

    def run(self) -> list[int]:
        """Send all records and wait for their delivery, and return each batch's latency in microseconds."""
        while self._undelivered:
            wanted = min(self._unsent, RECORDS_PER_CALL)
            accepted = self._producer.enqueue(wanted) if wanted else 0
            self._unsent -= accepted
            self._process_delivery_reports(wait=accepted < RECORDS_PER_CALL)
        return self._latencies_us

    def _process_delivery_reports(self, *, wait: bool) -> None:
        report = self._producer.poll(int(STALLED_SECONDS_MAX * 1000) if wait else 0)
        if wait and report is None:
            raise BenchmarkError(f"no record was acknowledged for {STALLED_SECONDS_MAX:g} s")
        while report is not None:
            if report.records:
                self._undelivered -= report.records
                self._latencies_us.append(report.latency_us)
            report = self._producer.poll(0)

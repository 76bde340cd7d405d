"""`chronik bench transactions`: the rate of consecutive transactions of one producer."""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from typing import Final

from chronik.bench.arguments import add_replication_argument, connect, parse_bootstrap_access, parse_positive_int
from chronik.bench.librdkafka import LibrdkafkaTransactionalProducer
from chronik.bench.librdkafka_config import build_client_config, create_temporary_topics, generate_name
from chronik.bench.statistics import Latency
from chronik.client.access.settings import Bootstrap

RECORDS_DEFAULT: Final = (10, 10_000)
SECONDS_DEFAULT: Final = 10
WARM_UP_TRANSACTIONS: Final = 20  # opens connections and runs every code path once
CALL_MS_MAX: Final = 60_000


@dataclass(frozen=True, slots=True)
class TransactionsLoad:
    """Parameters of a transaction benchmark: records per transaction, and duration or transaction count."""

    records: int
    """Number of records in each transaction."""
    seconds: float = SECONDS_DEFAULT
    transactions: int | None = None
    """Number of transactions; None to run for `seconds`."""
    size: int = 100


@dataclass(frozen=True, slots=True)
class TransactionsResult:
    """Results of a transaction benchmark: throughput, and latency of the commits."""

    records_per_transaction: int
    record_bytes: int
    transactions: int
    seconds: float
    transactions_per_second: float
    records_per_second: float
    commit: Latency
    """Latency of the commit call, including the delivery of outstanding records."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--records",
        type=parse_positive_int,
        nargs="+",
        default=list(RECORDS_DEFAULT),
        metavar="N",
        help="records per transaction; several values are measured one after another (default: %(default)s)",
    )
    parser.add_argument(
        "--seconds",
        type=parse_positive_int,
        default=SECONDS_DEFAULT,
        metavar="N",
        help="duration (default: %(default)s)",
    )
    parser.add_argument(
        "--transactions", type=parse_positive_int, metavar="N", help="number of transactions (overrides --seconds)"
    )
    parser.add_argument(
        "--size",
        type=parse_positive_int,
        default=100,
        metavar="BYTES",
        help="size of a record's value (default: %(default)s)",
    )
    parser.add_argument("--partitions", type=parse_positive_int, default=1, metavar="N", help="partitions of the topic")
    add_replication_argument(parser)


def run(arguments: argparse.Namespace) -> list[TransactionsResult]:
    topic = generate_name("transactions")
    with (
        connect(arguments) as cluster,
        create_temporary_topics(cluster, [topic], arguments.partitions, arguments.replication_factor),
    ):
        return [
            measure(
                parse_bootstrap_access(arguments),
                topic,
                TransactionsLoad(records, arguments.seconds, arguments.transactions, arguments.size),
            )
            for records in arguments.records
        ]


def measure(bootstrap: Bootstrap, topic: str, load: TransactionsLoad) -> TransactionsResult:
    """Run the transaction benchmark, and return its throughput and latency.

    Raises BenchmarkError.
    """
    return summarize_transactions(*measure_transactions(bootstrap, topic, load), load)


def summarize_transactions(commits: list[float], seconds: float, load: TransactionsLoad) -> TransactionsResult:
    """Compute throughput and latency of the benchmark's transactions.

    Raises BenchmarkError if there were none.
    """
    return TransactionsResult(
        records_per_transaction=load.records,
        record_bytes=load.size,
        transactions=len(commits),
        seconds=seconds,
        transactions_per_second=len(commits) / seconds,
        records_per_second=len(commits) * load.records / seconds,
        commit=Latency.from_seconds(commits),
    )


def measure_transactions(bootstrap: Bootstrap, topic: str, load: TransactionsLoad) -> tuple[list[float], float]:
    """Run transactions, and return each commit's latency and the total time, in seconds.

    Raises:
        BenchmarkError: If a transaction is not committed.
    """
    config = build_client_config(bootstrap, transactional_id=generate_name("producer"))
    producer = LibrdkafkaTransactionalProducer(config, topic, b"x" * load.size, load.records)
    try:
        producer.init_transactions(CALL_MS_MAX)
        for _ in range(WARM_UP_TRANSACTIONS):
            _run_transaction(producer, load.records)
        commits: list[float] = []
        started = time.perf_counter()
        while not _is_run_complete(load, len(commits), time.perf_counter() - started):
            commits.append(_run_transaction(producer, load.records))
        return commits, time.perf_counter() - started
    finally:
        producer.close()


def _is_run_complete(load: TransactionsLoad, transactions: int, seconds: float) -> bool:
    return seconds >= load.seconds if load.transactions is None else transactions >= load.transactions


def _run_transaction(producer: LibrdkafkaTransactionalProducer, records: int) -> float:
    producer.begin()
    unsent = records
    while unsent:
        unsent -= producer.enqueue(unsent)
    started = time.perf_counter()
    producer.commit(CALL_MS_MAX)
    return time.perf_counter() - started

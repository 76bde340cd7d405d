"""`python -m bench.transactions` (`make bench-transactions`): transaction rate and commit latency, compared with Kafka.

All servers run throughout and are measured in interleaved rounds, so that other load on the machine affects them
equally. One node that leaves flushing to the system, as Kafka does, must reach Kafka's rate and p99; three nodes must
reach 0.7 of the rate with at most 1.5 times the p99. The exit code is 1 if a goal is missed.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

from bench.apache_kafka import describe_kafka, kafka_unavailable_reason
from bench.cluster.nodes import NODES
from bench.kafka_comparison import (
    RunningServer,
    ServerFactory,
    apache_kafka_cluster,
    chronik_cluster,
    chronik_node,
    print_progress,
)
from bench.results import Cell, ResultTable, add_keep_option, describe_run, format_report, format_verdict
from bench.servers import CHRONIK_OS, ROOT
from chronik.bench.librdkafka_config import create_temporary_topics, generate_name
from chronik.bench.report import median_ratio, rotate_servers
from chronik.bench.statistics import Latency
from chronik.bench.transactions import RECORDS_DEFAULT, TransactionsLoad, measure_transactions
from chronik.client.cluster import ClusterClient
from chronik.errors import ChronikError
from tools.docs.benchmark_pages import keep_tables

NAME: Final = "transactions"
"""The name of the page and of the JSON file."""
ROUNDS: Final = 5
SECONDS: Final = 4.0
"""Per server, size and round."""

WARM_UP_SECONDS: Final = 5.0
"""Per server and size, before the first round: Java compiles hot code."""


class TransactionGoal(NamedTuple):
    """Required ratios to a Kafka cluster of the same size."""

    rate_least: float
    p99_most: float


@dataclass(slots=True)
class TransactionRound:
    """The commit latencies and the duration of one round."""

    commits: list[float]
    seconds: float

    @property
    def rate(self) -> float:
        return len(self.commits) / self.seconds


@dataclass(slots=True)
class TransactionsSubject:
    """A server under test and its rounds."""

    name: str
    nodes: int
    start: ServerFactory
    goal: TransactionGoal | None = None
    """None if there is no requirement."""
    is_kafka: bool = False
    rounds: dict[int, list[TransactionRound]] = field(default_factory=dict)
    """Rounds by number of records per transaction."""

    def rates(self, records: int) -> list[float]:
        return [each.rate for each in self.rounds[records]]

    def commit(self, records: int) -> Latency:
        return Latency.from_seconds(commit for each in self.rounds[records] for commit in each.commits)


def create_subjects(*, with_kafka: bool) -> list[TransactionsSubject]:
    chronik = [
        TransactionsSubject("Chronik, one node, os", 1, chronik_node(CHRONIK_OS), TransactionGoal(1.0, 1.0)),
        TransactionsSubject("Chronik, three nodes, os", NODES, chronik_cluster("os"), TransactionGoal(0.7, 1.5)),
        TransactionsSubject("Chronik, three nodes, group", NODES, chronik_cluster("group")),
    ]
    references = [
        TransactionsSubject("Apache Kafka, one node", 1, apache_kafka_cluster(1), is_kafka=True),
        TransactionsSubject("Apache Kafka, three nodes", NODES, apache_kafka_cluster(NODES), is_kafka=True),
    ]
    return [*chronik, *(references if with_kafka else ())]


def measure(measured: Sequence[TransactionsSubject], rounds: int, seconds: float, folder: Path) -> None:
    with ExitStack() as stack:
        running = {}
        for subject in measured:
            print_progress(f"starting {subject.name}")
            running[subject.name] = stack.enter_context(subject.start(folder))
        for subject in measured:
            for records in RECORDS_DEFAULT:
                _run_round(running[subject.name], subject.nodes, records, min(seconds, WARM_UP_SECONDS))
        by_name = {subject.name: subject for subject in measured}
        for round_number in range(rounds):
            for records in RECORDS_DEFAULT:
                for name in rotate_servers(list(by_name), round_number):
                    print_progress(f"round {round_number + 1} of {rounds}, {records:,} records each: {name}")
                    subject = by_name[name]
                    completed = _run_round(running[name], subject.nodes, records, seconds)
                    subject.rounds.setdefault(records, []).append(completed)


def _run_round(server: RunningServer, nodes: int, records: int, seconds: float) -> TransactionRound:
    topic = generate_name("transactions")
    with ClusterClient(server.bootstrap) as cluster, create_temporary_topics(cluster, [topic], 1, nodes):
        return TransactionRound(*measure_transactions(server.bootstrap, topic, TransactionsLoad(records, seconds)))


def find_peer(subject: TransactionsSubject, measured: Sequence[TransactionsSubject]) -> TransactionsSubject | None:
    """Return the Kafka cluster of the same size, if it is measured."""
    if subject.is_kafka:
        return None
    return next((each for each in measured if each.is_kafka and each.nodes == subject.nodes), None)


def compute_ratios(subject: TransactionsSubject, peer: TransactionsSubject, records: int) -> tuple[float, float]:
    """Return the ratios of the subject's rate and p99 to the peer's."""
    rate = median_ratio(subject.rates(records), peer.rates(records))
    return rate, subject.commit(records).p99_ms / peer.commit(records).p99_ms


def is_met(subject: TransactionsSubject, measured: Sequence[TransactionsSubject], records: int) -> bool:
    peer = find_peer(subject, measured)
    if peer is None or subject.goal is None:
        return True
    rate, p99 = compute_ratios(subject, peer, records)
    return rate >= subject.goal.rate_least and p99 <= subject.goal.p99_most


def build_table(measured: Sequence[TransactionsSubject], records: int) -> ResultTable:
    headings = ["", "transactions", "transactions/s", "records/s", "commit p50 ms", "p99 ms"]
    headings += ["longest ms", "rate / Kafka's", "p99 / Kafka's", ""]
    rows = [_row(subject, measured, records) for subject in measured]
    return ResultTable(f"{records:,} records per transaction", headings, rows)


def _row(subject: TransactionsSubject, measured: Sequence[TransactionsSubject], records: int) -> list[Cell]:
    commit, rate = subject.commit(records), median(subject.rates(records))
    transactions = sum(len(each.commits) for each in subject.rounds[records])
    row: list[Cell] = [subject.name, transactions, rate, rate * records, commit.p50_ms, commit.p99_ms, commit.max_ms]
    peer = find_peer(subject, measured)
    if peer is None:
        return [*row, None, None, None]
    ratios = [f"{ratio:.2f}" for ratio in compute_ratios(subject, peer, records)]
    return [*row, *ratios, None if subject.goal is None else format_verdict(is_met(subject, measured, records))]


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.transactions", description="Transactions vs. Apache Kafka.")
    parser.add_argument("--rounds", type=int, default=ROUNDS, metavar="N", help="(default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=SECONDS, metavar="N", help="per round (default: %(default)s)")
    parser.add_argument("--without-kafka", action="store_true", help="measure Chronik alone")
    parser.add_argument("--folder", type=Path, default=ROOT / "build", metavar="DIR", help="directory for data")
    add_keep_option(parser)
    arguments = parser.parse_args(argv)
    arguments.folder.mkdir(parents=True, exist_ok=True)
    missing = "--without-kafka" if arguments.without_kafka else kafka_unavailable_reason()
    load_before = os.getloadavg()[0]
    measured = create_subjects(with_kafka=missing is None)
    try:
        measure(measured, arguments.rounds, arguments.seconds, arguments.folder.resolve())
    except ChronikError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    run = describe_run(f"{arguments.rounds} interleaved rounds. {describe_kafka(missing)}.", load_before)
    tables = [build_table(measured, records) for records in RECORDS_DEFAULT]
    print(format_report(run, tables))
    if arguments.keep:
        keep_tables(NAME, run, tables)
    return 0 if all(is_met(subject, measured, records) for subject in measured for records in RECORDS_DEFAULT) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

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

from bench.apache_kafka import why_missing
from bench.beside_kafka import Running, Start, kafka, one_node, say, three_nodes
from bench.cluster.nodes import NODES
from bench.servers import CHRONIK_OS, ROOT
from bench.tables import machine
from chronik.bench.clients import temporary_topics, unique_name
from chronik.bench.measures import Latency
from chronik.bench.report import number
from chronik.bench.rounds import MISSED, in_turn, markdown_table, median_ratio
from chronik.bench.transactions import RECORDS_DEFAULT, TransactionsLoad, make_transactions
from chronik.client.cluster import Cluster
from chronik.errors import ChronikError

ROUNDS: Final = 5
SECONDS: Final = 4.0
"""Per server, size and round."""

WARM_UP_SECONDS: Final = 5.0
"""Per server and size, before the first round: Java compiles hot code."""


class Goal(NamedTuple):
    """Required ratios to a Kafka cluster of the same size."""

    rate_least: float
    p99_most: float


@dataclass(slots=True)
class Round:
    """The commit latencies and the duration of one round."""

    commits: list[float]
    seconds: float

    @property
    def rate(self) -> float:
        return len(self.commits) / self.seconds


@dataclass(slots=True)
class Subject:
    """A server under test and its rounds."""

    name: str
    nodes: int
    start: Start
    goal: Goal | None = None
    """None if there is no requirement."""
    is_kafka: bool = False
    rounds: dict[int, list[Round]] = field(default_factory=dict)
    """Rounds by number of records per transaction."""

    def rates(self, records: int) -> list[float]:
        return [each.rate for each in self.rounds[records]]

    def commit(self, records: int) -> Latency:
        return Latency.of(commit for each in self.rounds[records] for commit in each.commits)


def subjects(*, with_kafka: bool) -> list[Subject]:
    chronik = [
        Subject("Chronik, one node, os", 1, one_node(CHRONIK_OS), Goal(1.0, 1.0)),
        Subject("Chronik, three nodes, os", NODES, three_nodes("os"), Goal(0.7, 1.5)),
        Subject("Chronik, three nodes, group", NODES, three_nodes("group")),
    ]
    references = [
        Subject("Apache Kafka, one node", 1, kafka(1), is_kafka=True),
        Subject("Apache Kafka, three nodes", NODES, kafka(NODES), is_kafka=True),
    ]
    return [*chronik, *(references if with_kafka else ())]


def measure(measured: Sequence[Subject], rounds: int, seconds: float, folder: Path) -> None:
    with ExitStack() as stack:
        running = {}
        for subject in measured:
            say(f"starting {subject.name}")
            running[subject.name] = stack.enter_context(subject.start(folder))
        for subject in measured:
            for records in RECORDS_DEFAULT:
                _run_round(running[subject.name], subject.nodes, records, min(seconds, WARM_UP_SECONDS))
        by_name = {subject.name: subject for subject in measured}
        for round_number in range(rounds):
            for records in RECORDS_DEFAULT:
                for name in in_turn(list(by_name), round_number):
                    say(f"round {round_number + 1} of {rounds}, {records:,} records each: {name}")
                    subject = by_name[name]
                    completed = _run_round(running[name], subject.nodes, records, seconds)
                    subject.rounds.setdefault(records, []).append(completed)


def _run_round(server: Running, nodes: int, records: int, seconds: float) -> Round:
    topic = unique_name("transactions")
    with Cluster(server.bootstrap) as cluster, temporary_topics(cluster, [topic], 1, nodes):
        return Round(*make_transactions(server.bootstrap, topic, TransactionsLoad(records, seconds)))


def peer_of(subject: Subject, measured: Sequence[Subject]) -> Subject | None:
    """Return the Kafka cluster of the same size, if it is measured."""
    if subject.is_kafka:
        return None
    return next((each for each in measured if each.is_kafka and each.nodes == subject.nodes), None)


def beside(subject: Subject, peer: Subject, records: int) -> tuple[float, float]:
    """Return the ratios of the subject's rate and p99 to the peer's."""
    rate = median_ratio(subject.rates(records), peer.rates(records))
    return rate, subject.commit(records).p99_ms / peer.commit(records).p99_ms


def is_met(subject: Subject, measured: Sequence[Subject], records: int) -> bool:
    peer = peer_of(subject, measured)
    if peer is None or subject.goal is None:
        return True
    rate, p99 = beside(subject, peer, records)
    return rate >= subject.goal.rate_least and p99 <= subject.goal.p99_most


def table(measured: Sequence[Subject], records: int) -> str:
    headings = [f"{records:,} records each", "transactions", "a second", "records/s", "commit p50 ms", "p99 ms"]
    headings += ["longest ms", "rate / Kafka's", "p99 / Kafka's", ""]
    return markdown_table(headings, [_row(subject, measured, records) for subject in measured])


def _row(subject: Subject, measured: Sequence[Subject], records: int) -> list[str]:
    commit, rate = subject.commit(records), median(subject.rates(records))
    transactions = sum(len(each.commits) for each in subject.rounds[records])
    cells = [transactions, rate, rate * records, commit.p50_ms, commit.p99_ms, commit.max_ms]
    peer = peer_of(subject, measured)
    ratios = ["", ""] if peer is None else [f"{ratio:.2f}" for ratio in beside(subject, peer, records)]
    verdict = "" if peer is None or subject.goal is None else "met" if is_met(subject, measured, records) else MISSED
    return [subject.name, *map(number, cells), *ratios, verdict]


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.transactions", description="Transactions vs. Apache Kafka.")
    parser.add_argument("--rounds", type=int, default=ROUNDS, metavar="N", help="(default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=SECONDS, metavar="N", help="per round (default: %(default)s)")
    parser.add_argument("--without-kafka", action="store_true", help="measure Chronik alone")
    parser.add_argument("--folder", type=Path, default=ROOT / "build", metavar="DIR", help="directory for data")
    arguments = parser.parse_args(argv)
    arguments.folder.mkdir(parents=True, exist_ok=True)
    missing = "--without-kafka" if arguments.without_kafka else why_missing()
    load_before = os.getloadavg()[0]
    measured = subjects(with_kafka=missing is None)
    try:
        measure(measured, arguments.rounds, arguments.seconds, arguments.folder.resolve())
    except ChronikError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    left_out = "" if missing is None else f" Apache Kafka is left out: {missing}."
    print(f"Measured on {machine()}; load before: {load_before:.2f}. {arguments.rounds} interleaved rounds.{left_out}")
    for records in RECORDS_DEFAULT:
        print(f"\n{table(measured, records)}")
    return 0 if all(is_met(subject, measured, records) for subject in measured for records in RECORDS_DEFAULT) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

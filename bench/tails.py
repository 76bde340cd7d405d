"""`python -m bench.tails` (`make bench-tails`): the longest of many round trips on a busy machine, compared with Kafka.

One record at a time, from produce to a waiting consumer, while other processes use all CPU they can get. All servers
run throughout and are measured in interleaved rounds, so that other load on the machine affects them equally. The
longest trip must not exceed that of an Apache Kafka with as many nodes, or 100 ms, whichever is more. Trips during an
fdatasync of more than 50 ms are counted separately, because they show the disk. The exit code is 1 on a longer trip.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

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
from bench.servers import CHRONIK_GROUP, CHRONIK_OS, ROOT
from chronik.bench.librdkafka_config import create_temporary_topics, generate_name
from chronik.bench.report import rotate_servers
from chronik.bench.round_trip import (
    RoundTripResult,
    TimeSpan,
    list_slow_syncs,
    measure_round_trips,
    summarize_round_trips,
)
from chronik.client.cluster import ClusterClient
from chronik.errors import ChronikError
from tools.docs.benchmark_pages import keep_tables

NAME: Final = "tails"
"""The name of the page and of the JSON file."""
TRIPS: Final = 20_000
ROUNDS: Final = 5
BUSY_PROCESSES: Final = 2
WARM_UP_TRIPS: Final = 1000
"""Per server, before the first round: Java compiles hot code."""

RECORD_BYTES: Final = 100
LONGEST_MS: Final = 100.0
"""The allowed duration of a trip, even if Kafka's longest is shorter."""


@dataclass(slots=True)
class TailsSubject:
    """A server under test and its round trips."""

    name: str
    nodes: int
    start: ServerFactory
    is_kafka: bool = False
    trips: list[TimeSpan] = field(default_factory=list)
    slow_syncs: dict[TimeSpan, None] = field(default_factory=dict)

    def result(self) -> RoundTripResult:
        return summarize_round_trips(self.trips, RECORD_BYTES, None if self.is_kafka else list(self.slow_syncs))


def create_subjects(*, with_kafka: bool) -> list[TailsSubject]:
    chronik = [
        TailsSubject("Chronik, one node, os", 1, chronik_node(CHRONIK_OS)),
        TailsSubject("Chronik, one node, group", 1, chronik_node(CHRONIK_GROUP)),
        TailsSubject("Chronik, three nodes, os", NODES, chronik_cluster("os")),
        TailsSubject("Chronik, three nodes, group", NODES, chronik_cluster("group")),
    ]
    references = [
        TailsSubject("Apache Kafka, one node", 1, apache_kafka_cluster(1), is_kafka=True),
        TailsSubject("Apache Kafka, three nodes", NODES, apache_kafka_cluster(NODES), is_kafka=True),
    ]
    return [*chronik, *(references if with_kafka else ())]


@contextmanager
def run_busy_processes(processes: int) -> Iterator[None]:
    """Run busy processes that use all CPU they can get."""
    started = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(processes)]
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


def measure(measured: Sequence[TailsSubject], trips: int, rounds: int, others: int, folder: Path) -> None:
    with ExitStack() as stack:
        running = {}
        for subject in measured:
            print_progress(f"starting {subject.name}")
            running[subject.name] = stack.enter_context(subject.start(folder))
        for subject in measured:
            _trips(running[subject.name], subject.nodes, WARM_UP_TRIPS)
        stack.enter_context(run_busy_processes(others))
        by_name = {subject.name: subject for subject in measured}
        for round_number in range(rounds):
            for name in rotate_servers(list(by_name), round_number):
                print_progress(f"round {round_number + 1} of {rounds}: {name}")
                subject, server = by_name[name], running[name]
                subject.trips += _trips(server, subject.nodes, trips // rounds)
                subject.slow_syncs.update(dict.fromkeys(list_slow_syncs(server.http)))


def _trips(server: RunningServer, nodes: int, count: int) -> list[TimeSpan]:
    topic = generate_name("tails")
    with ClusterClient(server.bootstrap) as cluster, create_temporary_topics(cluster, [topic], 1, nodes):
        return measure_round_trips(server.bootstrap, topic, count, RECORD_BYTES)


def allowed_ms(subject: TailsSubject, measured: Sequence[TailsSubject]) -> float:
    """Return the longest trip of a Kafka with as many nodes, or 100 ms if that is more."""
    peers = [each.result().latency.max_ms for each in measured if each.is_kafka and each.nodes == subject.nodes]
    return max([LONGEST_MS, *peers])


def longest_ms(result: RoundTripResult) -> float:
    return result.latency.max_ms if result.max_ms_of_others is None else result.max_ms_of_others


def is_met(subject: TailsSubject, measured: Sequence[TailsSubject]) -> bool:
    return subject.is_kafka or longest_ms(subject.result()) <= allowed_ms(subject, measured)


def build_table(measured: Sequence[TailsSubject]) -> ResultTable:
    headings = ["", "trips", "p50 ms", "p99 ms", "p99.9 ms", "longest ms", "over 50 ms", "over 100 ms"]
    headings += ["during a slow sync", "longest of the others ms", "allowed ms", ""]
    return ResultTable("Round trips", headings, [_row(subject, measured) for subject in measured])


def _row(subject: TailsSubject, measured: Sequence[TailsSubject]) -> list[Cell]:
    result = subject.result()
    latency = result.latency
    row: list[Cell] = [subject.name, result.trips, latency.p50_ms, latency.p99_ms, latency.p999_ms, latency.max_ms]
    row += [result.over_50_ms, result.over_100_ms, result.beside_slow_syncs, result.max_ms_of_others]
    if subject.is_kafka:
        return [*row, None, None]
    return [*row, allowed_ms(subject, measured), format_verdict(is_met(subject, measured))]


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.tails", description=__doc__.partition("\n")[0])
    parser.add_argument("--trips", type=int, default=TRIPS, metavar="N", help="per server (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=ROUNDS, metavar="N", help="(default: %(default)s)")
    parser.add_argument("--busy", type=int, default=BUSY_PROCESSES, metavar="N", help="(default: %(default)s)")
    parser.add_argument("--without-kafka", action="store_true", help="measure Chronik alone")
    parser.add_argument("--folder", type=Path, default=ROOT / "build", metavar="DIR", help="directory for data")
    add_keep_option(parser)
    arguments = parser.parse_args(argv)
    arguments.folder.mkdir(parents=True, exist_ok=True)
    missing = "--without-kafka" if arguments.without_kafka else kafka_unavailable_reason()
    load_before = os.getloadavg()[0]
    measured = create_subjects(with_kafka=missing is None)
    try:
        measure(measured, arguments.trips, arguments.rounds, arguments.busy, arguments.folder.resolve())
    except ChronikError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    settings = (
        f"{arguments.rounds} interleaved rounds next to {arguments.busy} busy processes. {describe_kafka(missing)}."
    )
    run, tables = describe_run(settings, load_before), [build_table(measured)]
    print(format_report(run, tables))
    if arguments.keep:
        keep_tables(NAME, run, tables)
    return 0 if all(is_met(subject, measured) for subject in measured) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""`python -m bench.fairness` (`make bench-fairness`): throughput of honest clients while 1,000 connections attack.

The attacker repeats expensive requests on 1,000 connections from 120 addresses. Each round measures, for Chronik and
Apache Kafka interleaved:

1. one honest producer and a latency probe during the attack;
2. the same next to a process that uses as much CPU as the attacker did, but does not connect;
3. ten honest producers during the attack.

The honest producer's retained throughput is the first result divided by the second, so it excludes the CPU that the
attacker takes from the machine. The exit code is 1 if Chronik retains less than 40 % or less than Apache Kafka, if the
probe's p99 during the attack is longer than Kafka's, or if the slowest of ten producers writes less than half of what
the fastest does.

Before the first round, each server is attacked once without measuring, because Java compiles hot code. Rates are
medians over the rounds; latencies are of all rounds together. A probe request that is outstanding at the end of a
measurement counts with its time so far.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Final

from bench.apache_kafka import describe_kafka, kafka_unavailable_reason
from bench.kafka_comparison import RunningServer, ServerFactory, apache_kafka_cluster, chronik_node, print_progress
from bench.results import Cell, ResultTable, add_keep_option, describe_run, format_report, format_verdict
from bench.servers import CHRONIK_GROUP, CHRONIK_OS, ROOT, responds_to_api_versions
from chronik.bench.errors import BenchmarkError
from chronik.bench.librdkafka import LibrdkafkaProducer as LibrdkafkaProducer
from chronik.bench.librdkafka_config import build_client_config, create_temporary_topics, generate_name
from chronik.bench.report import format_number, median_ratio, rotate_servers
from chronik.bench.statistics import MEGABYTE, Latency
from chronik.client.admin import NewTopic, create_topics
from chronik.client.cluster import ClusterClient
from chronik.client.errors import ClientError
from chronik.client.producer import Producer
from chronik.client.records import OutgoingRecord
from chronik.errors import ChronikError
from chronik.protocol.errors import KafkaError
from tests.abuse.floods import flood_process
from tests.abuse.floods.attacker import FloodSpec, FloodTotals
from tests.abuse.floods.requests import topic_name
from tools.docs.benchmark_pages import keep_tables

NAME: Final = "fairness"
"""The name of the page and of the JSON file."""
ROUNDS: Final = 3
SECONDS: Final = 6.0
SETTLE_SECONDS: Final = 2.0
"""From the start of the attacker to the measurement, so that it can connect."""

CONNECTIONS: Final = 1_000
SOURCES: Final = 120
KINDS: Final = [
    "list-transactions-pattern",
    "list-transactions",
    "metadata-unknown",
    "metadata-all",
    "describe-configs",
    "list-groups",
    "describe-log-dirs",
]
NAMES: Final = 500
TOPICS: Final = 500
IDS: Final = 20_000
CLIENTS: Final = 10
RECORD_BYTES: Final = 100
RECORDS_PER_CALL: Final = 1_000
QUEUED_RECORDS_MAX: Final = 100_000
POLL_MS: Final = 10
PROBE_EVERY_SECONDS: Final = 0.02
REQUEST_SECONDS_MAX: Final = 120.0
READY_SECONDS_MAX: Final = 120.0
CALM_SECONDS: Final = 0.05
CALM_ANSWERS: Final = 10
CALM_SECONDS_MAX: Final = 600.0
BURN_PERIOD_SECONDS: Final = 0.01

SHARE_LEAST: Final = 0.4
EQUALITY_LEAST: Final = 0.5
ATTACKED, BURNED, ATTACKED_TEN = "attacked", "burner", "attacked, ten producers"


# Worker processes: this module with other arguments


def produce_forever(bootstrap: str, topics: Sequence[str]) -> None:
    """Produce to each topic with its own client; after a line on stdin, measure and print the rates."""
    counts = [0] * len(topics)

    def run(index: int) -> None:
        config = build_client_config(
            bootstrap,
            client_id=f"honest-{index}",
            acks="all",
            linger_ms="5",
            queue_buffering_max_messages=str(QUEUED_RECORDS_MAX),
            enable_idempotence="false",
        )
        producer = LibrdkafkaProducer(config, topics[index], b"x" * RECORD_BYTES, RECORDS_PER_CALL)
        while True:
            accepted = producer.enqueue(RECORDS_PER_CALL)
            report = producer.poll(0 if accepted == RECORDS_PER_CALL else POLL_MS)
            while report is not None:
                counts[index] += report.records
                report = producer.poll(0)

    for index in range(len(topics)):
        threading.Thread(target=run, args=(index,), daemon=True).start()
    while not all(counts):
        time.sleep(0.01)
    seconds = wait_for_start()
    before, attempt_started = list(counts), time.monotonic()
    time.sleep(seconds)
    elapsed = time.monotonic() - attempt_started
    report_and_exit([(after - count) / elapsed for after, count in zip(counts, before, strict=True)])


def probe_forever(bootstrap: str, topic: str) -> None:
    """Produce one record at a time; after a line on stdin, measure and print the latencies."""
    attempt_started: float | None = None
    latencies: list[tuple[float, float]] = []

    def run() -> None:
        nonlocal attempt_started
        with ClusterClient(bootstrap, client_id="probe", timeout_s=REQUEST_SECONDS_MAX) as cluster:
            producer = Producer(cluster, acks=-1)
            while True:
                attempt_started = time.monotonic()
                try:
                    producer.send(topic, [OutgoingRecord(b"x" * RECORD_BYTES)])
                except (ClientError, KafkaError):
                    continue  # the latency includes failed attempts
                latencies.append((attempt_started, time.monotonic()))
                attempt_started = None
                time.sleep(PROBE_EVERY_SECONDS)

    threading.Thread(target=run, daemon=True).start()
    while not latencies:
        time.sleep(0.01)
    seconds = wait_for_start()
    started = time.monotonic()
    time.sleep(seconds)
    now, pending = time.monotonic(), attempt_started
    in_period = [end - start for start, end in list(latencies) if end > started]
    report_and_exit([*in_period, *([] if pending is None else [now - pending])])


def burn(fraction: float) -> None:
    """Use a fraction of one core until stdin is closed."""
    threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
    while True:
        period_ends = time.monotonic() + BURN_PERIOD_SECONDS
        cpu_limit = time.thread_time() + fraction * BURN_PERIOD_SECONDS
        while time.thread_time() < cpu_limit:
            pass
        time.sleep(max(0.0, period_ends - time.monotonic()))


def wait_for_start() -> float:
    """Print that the worker is ready, and return the duration that stdin then contains."""
    print("ready", flush=True)
    return float(sys.stdin.readline())


def report_and_exit(result: list[float]) -> None:
    """Print the result and exit without flushing queued records."""
    print(json.dumps(result), flush=True)
    os._exit(0)


class Worker:
    """A process that runs one of the functions above."""

    def __init__(self, *arguments: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.fairness", "--worker", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
            text=True,
        )

    def __enter__(self) -> Worker:
        return self

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()

    def __exit__(self, *_: object) -> None:
        self.stop()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()

    def wait_until_ready(self) -> None:
        """Wait until the worker's clients have produced. Raises BenchFailed."""
        if self._read_line() != "ready":
            raise BenchmarkError("an honest client could not produce")

    def start(self, seconds: float) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{seconds}\n")
        self._process.stdin.flush()

    def result(self) -> list[float]:
        """Return the worker's result. Raises BenchFailed."""
        line = self._read_line()
        if not line:
            raise BenchmarkError("an honest client failed during the measurement")
        found: list[float] = json.loads(line)
        return found

    def _read_line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()


# Measurements


@dataclass(slots=True)
class PhaseResult:
    """Rates and latencies of the honest clients in one phase of one round."""

    rates: list[float]
    """Records per second of each producer."""
    latencies: list[float]
    """Seconds, of the probe."""


@dataclass(slots=True)
class FairnessSubject:
    """A server under test and its results."""

    name: str
    start: ServerFactory
    is_kafka: bool = False
    phases: dict[str, list[PhaseResult]] = field(default_factory=dict)
    attacker_cpu: list[float] = field(default_factory=list)
    """Cores that the attacker used, by round."""
    responses: dict[str, list[float]] = field(default_factory=dict)
    """Responses per second that the attacker received, by phase and round."""
    recovery_seconds: list[float] = field(default_factory=list)
    """Seconds from the end of the attack until small requests are fast again, by round."""

    def totals(self, phase: str) -> list[float]:
        return [sum(each.rates) for each in self.phases[phase]]

    @property
    def retained_throughput(self) -> float:
        return median_ratio(self.totals(ATTACKED), self.totals(BURNED))

    @property
    def fairness_ratio(self) -> float:
        """The rate of the slowest of ten producers divided by that of the fastest."""
        ratios = (min(each.rates) / max(each.rates) if max(each.rates) else 0.0 for each in self.phases[ATTACKED_TEN])
        return median(ratios)

    def latency(self, phase: str) -> Latency:
        return Latency.from_seconds(seconds for each in self.phases[phase] for seconds in each.latencies)


def create_subjects(*, with_group: bool, with_kafka: bool) -> list[FairnessSubject]:
    chronik = [FairnessSubject("Chronik, os", chronik_node(CHRONIK_OS))]
    if with_group:
        chronik.append(FairnessSubject("Chronik, group", chronik_node(CHRONIK_GROUP)))
    return [
        *chronik,
        *([FairnessSubject("Apache Kafka", apache_kafka_cluster(1), is_kafka=True)] if with_kafka else ()),
    ]


def parse_port(server: RunningServer) -> int:
    return int(server.bootstrap.rpartition(":")[2])


def populate(server: RunningServer) -> None:
    """Create the topics and transactional ids that the attacker requests."""
    with ClusterClient(server.bootstrap) as cluster:
        create_topics(cluster, [NewTopic(topic_name(index), 1, 1) for index in range(TOPICS)])
        cluster.retry(lambda: cluster.transaction_coordinator("flood"))
    address = ("127.0.0.1", parse_port(server))
    spec = FloodSpec(["short-ids"], [address], connections=64, seconds=flood_process.PREPARE_SECONDS_MAX, requests=IDS)
    done = flood_process.wait_for_flood(flood_process.start_flood(spec), spec.seconds)
    if done.responses < IDS:
        raise BenchmarkError(f"{server.bootstrap}: only {done.responses} of {IDS} transactional ids were created")


def wait_until_responsive(server: RunningServer) -> float:
    """Wait until the server responds to small requests quickly again, and return the seconds. Raises BenchFailed."""
    started = time.monotonic()
    deadline = started + CALM_SECONDS_MAX
    fast_responses = 0
    while fast_responses < CALM_ANSWERS:
        attempt_started = time.monotonic()
        try:
            is_responding = responds_to_api_versions(parse_port(server))
        except TimeoutError:
            is_responding = False
        fast_responses = (
            fast_responses + 1 if is_responding and time.monotonic() - attempt_started < CALM_SECONDS else 0
        )
        if time.monotonic() > deadline:
            raise BenchmarkError(f"{server.bootstrap} is still slow {CALM_SECONDS_MAX:g} s after the attack")
        time.sleep(CALM_SECONDS)
    return time.monotonic() - started


@contextmanager
def run_attack(server: RunningServer, options: argparse.Namespace, totals: list[FloodTotals]) -> Iterator[None]:
    spec = FloodSpec(
        KINDS,
        [("127.0.0.1", parse_port(server))],
        connections=options.connections,
        sources=options.sources,
        seconds=READY_SECONDS_MAX,
        names=NAMES,
    )
    process = flood_process.start_flood(spec)
    try:
        yield
    finally:
        assert process.stdin is not None
        process.stdin.close()
        totals.append(flood_process.wait_for_flood(process, spec.seconds))


def measure_phase(subject: FairnessSubject, server: RunningServer, phase: str, options: argparse.Namespace) -> None:
    clients = CLIENTS if phase == ATTACKED_TEN else 1
    topics = [generate_name(f"fairness-{index}") for index in range(clients + 1)]
    totals: list[FloodTotals] = []
    with ExitStack() as stack:
        cluster = stack.enter_context(ClusterClient(server.bootstrap, timeout_s=REQUEST_SECONDS_MAX))
        stack.enter_context(create_temporary_topics(cluster, topics))
        producers = stack.enter_context(Worker("produce", server.bootstrap, *topics[1:]))
        probe = stack.enter_context(Worker("probe", server.bootstrap, topics[0]))
        producers.wait_until_ready()
        probe.wait_until_ready()
        with ExitStack() as attack_stack:
            if phase == BURNED:
                attack_stack.enter_context(Worker("burn", str(subject.attacker_cpu[-1])))
            else:
                attack_stack.enter_context(run_attack(server, options, totals))
            time.sleep(SETTLE_SECONDS)
            producers.start(options.seconds)
            probe.start(options.seconds)
            measured = PhaseResult(producers.result(), probe.result())
        producers.stop()
        probe.stop()
        # Requests of the attacker may still keep the server busy.
        seconds = wait_until_responsive(server)
    subject.phases.setdefault(phase, []).append(measured)
    for done in totals:
        subject.responses.setdefault(phase, []).append(done.responses / done.seconds)
        if phase == ATTACKED:
            subject.attacker_cpu.append(done.cpu_seconds / done.seconds)
            subject.recovery_seconds.append(seconds)


def measure(measured: Sequence[FairnessSubject], options: argparse.Namespace) -> None:
    with ExitStack() as stack:
        running = {}
        for subject in measured:
            print_progress(f"starting {subject.name}")
            running[subject.name] = stack.enter_context(subject.start(options.folder.resolve()))
            populate(running[subject.name])
        for subject in measured:
            print_progress(f"warming up {subject.name}")
            measure_phase(FairnessSubject(subject.name, subject.start), running[subject.name], ATTACKED, options)
        by_name = {subject.name: subject for subject in measured}
        for round_number in range(options.rounds):
            for phase in (ATTACKED, BURNED, ATTACKED_TEN):
                for name in rotate_servers(list(by_name), round_number):
                    print_progress(f"round {round_number + 1} of {options.rounds}, {phase}: {name}")
                    measure_phase(by_name[name], running[name], phase, options)


# Report


def build_tables(measured: Sequence[FairnessSubject], goals: Sequence[tuple[str, bool]]) -> list[ResultTable]:
    targets: list[list[Cell]] = [[summary, format_verdict(is_met)] for summary, is_met in goals]
    return [
        build_throughput_table(measured),
        build_latency_table(measured),
        ResultTable("Targets", ["", ""], targets),
    ]


def build_throughput_table(measured: Sequence[FairnessSubject]) -> ResultTable:
    headings = ["", "attacked, MB/s", "burner, MB/s", "retained, %", "ten producers, MB/s", "slowest / fastest"]
    headings += ["attacker, cores", "attacker, responses/s", "with ten producers, responses/s", "recovery, s"]
    rows: list[list[Cell]] = []
    for subject in measured:
        rates = [median(subject.totals(phase)) * RECORD_BYTES / MEGABYTE for phase in (ATTACKED, BURNED, ATTACKED_TEN)]
        rows.append(
            [
                subject.name,
                rates[0],
                rates[1],
                100 * subject.retained_throughput,
                rates[2],
                f"{subject.fairness_ratio:.2f}",
                median(subject.attacker_cpu),
                *(median(subject.responses[phase]) for phase in (ATTACKED, ATTACKED_TEN)),
                median(subject.recovery_seconds),
            ]
        )
    return ResultTable("Throughput", headings, rows)


def build_latency_table(measured: Sequence[FairnessSubject]) -> ResultTable:
    rows: list[list[Cell]] = []
    for subject in measured:
        for phase in (ATTACKED, BURNED, ATTACKED_TEN):
            latency = subject.latency(phase)
            records = sum(len(each.latencies) for each in subject.phases[phase])
            figures = (latency.p50_ms, latency.p99_ms, latency.p999_ms, latency.max_ms)
            rows.append([f"{subject.name}, {phase}", records, *figures])
    return ResultTable("Latency of the probe", ["", "records", "p50 ms", "p99 ms", "p99.9 ms", "max ms"], rows)


def evaluate_goals(measured: Sequence[FairnessSubject]) -> list[tuple[str, bool]]:
    found = []
    peer = next((subject for subject in measured if subject.is_kafka), None)
    for subject in measured:
        if subject.is_kafka:
            continue
        share, equality, p99_ms = subject.retained_throughput, subject.fairness_ratio, subject.latency(ATTACKED).p99_ms
        found.append((f"{subject.name}: keeps {share:.1%} (at least {SHARE_LEAST:.0%})", share >= SHARE_LEAST))
        summary = (
            f"{subject.name}: slowest of ten producers {equality:.2f} of the fastest (at least {EQUALITY_LEAST:g})"
        )
        found.append((summary, equality >= EQUALITY_LEAST))
        if peer is not None:
            found.append(
                (
                    f"{subject.name}: share {share:.1%}, Kafka's {peer.retained_throughput:.1%}",
                    share >= peer.retained_throughput,
                )
            )
            limit_ms = peer.latency(ATTACKED).p99_ms
            summary = f"{subject.name}: probe p99 {format_number(p99_ms)} ms, Kafka's {format_number(limit_ms)} ms"
            found.append((summary, p99_ms <= limit_ms))
    return found


def main(argv: list[str]) -> int:
    if argv[:1] == ["--worker"]:
        return run_worker(argv[1], argv[2:])
    parser = argparse.ArgumentParser(prog="python -m bench.fairness", description="Honest clients under attack.")
    parser.add_argument("--rounds", type=int, default=ROUNDS, metavar="N", help="(default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=SECONDS, metavar="N", help="per phase (default: %(default)s)")
    parser.add_argument("--connections", type=int, default=CONNECTIONS, metavar="N", help="(default: %(default)s)")
    parser.add_argument("--sources", type=int, default=SOURCES, metavar="N", help="addresses (default: %(default)s)")
    parser.add_argument("--with-group", action="store_true", help='also measure flush = "group"')
    parser.add_argument("--without-kafka", action="store_true", help="measure Chronik alone")
    parser.add_argument("--folder", type=Path, default=ROOT / "build", metavar="DIR", help="directory for data")
    add_keep_option(parser)
    options = parser.parse_args(argv)
    options.folder.mkdir(parents=True, exist_ok=True)
    missing = "as requested" if options.without_kafka else kafka_unavailable_reason()
    load_before = os.getloadavg()[0]
    measured = create_subjects(with_group=options.with_group, with_kafka=missing is None)
    try:
        measure(measured, options)
    except ChronikError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    setting = f"{options.connections:,} hostile connections from {options.sources} addresses, {options.rounds} rounds"
    goals = evaluate_goals(measured)
    run, tables = describe_run(f"{setting}. {describe_kafka(missing)}.", load_before), build_tables(measured, goals)
    print(format_report(run, tables))
    if options.keep:
        keep_tables(NAME, run, tables)
    return 0 if all(is_met for _, is_met in goals) else 1


def run_worker(kind: str, arguments: Sequence[str]) -> int:
    workers: dict[str, Any] = {
        "produce": lambda: produce_forever(arguments[0], arguments[1:]),
        "probe": lambda: probe_forever(arguments[0], arguments[1]),
        "burn": lambda: burn(float(arguments[0])),
    }
    workers[kind]()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

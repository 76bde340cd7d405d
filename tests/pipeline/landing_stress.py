"""Stress test of a landing while drivers, Spark workers and brokers are killed and brokers' networks are partitioned.

With `--s3`, the table is on an S3 server that is killed, too, behind a proxy that loses requests and responses; those
of its catalog of Iceberg tables are lost in the same way. With several drivers, all land the topic concurrently; all
but the first run without Spark. With `--queries`, SQL queries during the run must see every offset exactly once. The
faults follow from a seed. At the end, the table must contain exactly the records in the producer's journal.

    .venv/bin/python -m tests.pipeline.landing_stress --records 1000000 --kills 50 --seed 1
    .venv/bin/python -m tests.pipeline.landing_stress --s3 --drivers 2 --queries 100 --table-format iceberg
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from chronik.client.admin import NewTopic, create_topics
from chronik.client.cluster import ClusterClient as Client
from chronik.pipeline.journal.pipeline_status import status
from chronik.pipeline.tables.catalog import CATALOG_VARIABLE
from chronik.pipeline.tables.storage import table_uri
from chronik.pipeline.tables.storage_options import ICEBERG_CATALOG
from chronik.pipeline.tables.topic_table import TableFormat
from chronik.testing import Cluster
from chronik.testing.seaweedfs import SeaweedFS
from tests.pipeline.landing_stress_queries import ContinuousQueries
from tests.pipeline.landing_stress_tools import JournalingProducer, LandedTable, LandingDriver, find_differences
from tests.pipeline.s3_fault_proxy import Fault, FaultKind, FaultProxyProcess, Operation, run_s3_fault_proxy
from tests.pipeline.seaweedfs import ACCESS_KEY_ID, BUCKET, SECRET_ACCESS_KEY, TABLE_BUCKET, prepare_seaweedfs
from tests.pipeline.spark_cluster import SparkCluster

TOPIC = "events"
PARTITIONS = 3
ROUNDS_PER_KILL = 4
"""Rounds in the share of records before a kill: about two seconds, so that the kill hits the middle of them."""

PROGRESS_SECONDS_MAX = 300.0
"""Maximum time without progress. A driver is back after 10 to 20 s; the rest is for busy machines."""

POLL_SECONDS = 0.1
ENDED_MAX = 10


class KillKind(StrEnum):
    """The kind of fault to inject."""

    DRIVER = "driver"
    """The driver with its JVM, like a machine failure."""
    PYTHON = "python"
    """Only the driver's Python process: its JVM and tasks keep running for a while."""
    WORKER = "worker"
    """A Spark worker with its executors, which is replaced."""
    BROKER = "broker"
    """A node of the Chronik cluster, which is restarted after a while."""
    NETWORK = "network"
    """A node of the Chronik cluster is isolated from the network for a while."""
    STORE = "store"
    """The S3 server, which is restarted after a while."""


WEIGHTS = {
    KillKind.DRIVER: 3,
    KillKind.PYTHON: 2,
    KillKind.WORKER: 4,
    KillKind.BROKER: 4,
    KillKind.NETWORK: 4,
    KillKind.STORE: 4,
}

WITHOUT_VICTIM = (KillKind.DRIVER, KillKind.PYTHON, KillKind.STORE)


@dataclass(frozen=True, slots=True)
class LandingKill:
    """A scheduled fault."""

    kind: KillKind
    victim: int = 0
    """Index of the worker or node."""
    after_s: float = 0.3
    """Delay after the first landed row."""
    away_s: float = 1.0
    """Time until a node returns."""

    def __str__(self) -> str:
        return self.kind if self.kind in WITHOUT_VICTIM else f"{self.kind} {self.victim + 1}"


def schedule_kills(
    seed: int,
    kills: int,
    workers: int = 2,
    nodes: int = 3,
    *,
    with_store: bool = False,
    kills_per_kind: int | None = None,
) -> list[LandingKill]:
    """Return a schedule that depends only on the seed and contains every kind of fault.

    With `kills_per_kind`, it contains that many of each kind, instead of `kills` in total. Without workers, only
    processes that the run has are killed.
    """
    rng = random.Random(seed)
    excluded = {*([] if with_store else [KillKind.STORE]), *([] if workers else [KillKind.WORKER, KillKind.PYTHON])}
    weights = {kind: weight for kind, weight in WEIGHTS.items() if kind not in excluded}
    kinds = [*weights, *rng.choices(list(weights), list(weights.values()), k=kills)][:kills]
    if kills_per_kind is not None:
        kinds = [*weights] * kills_per_kind
    rng.shuffle(kinds)
    return [
        LandingKill(
            kind,
            rng.randrange(workers if kind is KillKind.WORKER else nodes),
            round(rng.uniform(0.0, 2.0), 2),
            round(rng.uniform(0.5, 4.0), 2),
        )
        for kind in kinds
    ]


@dataclass(slots=True)
class LandingOutcome:
    """The result of the stress test."""

    records: int
    kills: Counter[str] = field(default_factory=Counter)
    recoveries_s: dict[str, list[float]] = field(default_factory=dict)
    ended_by_itself: int = 0
    """Drivers that exited without being killed and were restarted."""
    seconds: float = 0.0
    files: int = 0
    orphans: int = 0
    queries: int = 0
    """SQL queries that returned every offset exactly once."""
    failed_queries: int = 0
    """SQL queries that failed with an error, because a broker or the store was unavailable."""
    injected: Counter[str] = field(default_factory=Counter)
    """Faults that the proxies of the S3 server and of its catalog have injected."""
    wrong: list[str] = field(default_factory=list)

    def add(self, kill: LandingKill, seconds: float) -> None:
        self.kills[kill.kind] += 1
        self.recoveries_s.setdefault(kill.kind, []).append(seconds)

    def __str__(self) -> str:
        kills = ", ".join(f"{count} {kind}" for kind, count in sorted(self.kills.items()))
        slowest = ", ".join(f"{kind} {max(times):.0f} s" for kind, times in sorted(self.recoveries_s.items()))
        verdict = "; ".join(self.wrong) or "the table contains each record exactly once"
        return (
            f"{self.records:,} records, {self.kills.total()} kills ({kills}) in {self.seconds:.0f} s: {verdict}\n"
            f"longest recovery: {slowest}; drivers that exited unexpectedly: {self.ended_by_itself};"
            f" {self.files} files, {self.orphans} orphans;"
            f" {self.queries} queries with every offset once, {self.failed_queries} failed; faults of the store:"
            f" {', '.join(f'{count} {kind}' for kind, count in sorted(self.injected.items())) or 'none'}"
        )


@dataclass(frozen=True, slots=True)
class StressStore:
    """The location of the tables, and the processes of its store, if it has any."""

    root: str
    options: Mapping[str, str] | None = None
    """Storage options of the test itself, which bypass the proxy."""
    query_options: Mapping[str, str] | None = None
    """Storage options of queries, with the address of the proxy."""
    driver_environment: Mapping[str, str] = field(default_factory=dict)
    """Environment variables of drivers, with the address of the proxy."""
    server: SeaweedFS | None = None
    proxies: Mapping[str, FaultProxyProcess] = field(default_factory=dict)
    """Proxies that inject faults, by the prefix of their faults in the outcome."""


STORE_FAULTS = (
    Fault(FaultKind.LOST_RESPONSE, probability=0.02),
    Fault(FaultKind.LOST_REQUEST, probability=0.01),
    Fault(FaultKind.SLOW_DOWN, probability=0.01),
    Fault(FaultKind.LOST_RESPONSE, [Operation.CONDITIONAL_PUT], probability=0.1),
)
"""Faults that the proxy of the S3 server injects during the whole run."""

CATALOG_FAULTS = (
    Fault(FaultKind.LOST_RESPONSE, [Operation.OTHER], "/tables/[^/]+$", probability=0.1),
    Fault(FaultKind.LOST_RESPONSE, probability=0.02),
    Fault(FaultKind.LOST_REQUEST, probability=0.01),
)
"""Faults that the proxy of the Iceberg catalog injects during the whole run. The first one concerns commits."""


@contextmanager
def run_s3_store(directory: Path, seed: int, table_format: TableFormat) -> Iterator[StressStore]:
    """Run an S3 server behind a proxy that injects faults, and for Iceberg tables another one for its REST catalog."""
    seaweedfs = prepare_seaweedfs(directory / "s3")
    server = seaweedfs.server
    try:
        seaweedfs.start()
        with ExitStack() as stack:
            proxies = {"": stack.enter_context(run_s3_fault_proxy(server.endpoint, seed=seed))}
            proxies[""].inject(*STORE_FAULTS)
            root, direct = f"s3://{BUCKET}/tables", server.options | {"max_retries": "2"}
            proxied = server.options | {"aws_endpoint_url": proxies[""].endpoint}
            variables = {name.upper(): value for name, value in proxied.items()}
            if table_format is TableFormat.ICEBERG:
                proxies["catalog_"] = stack.enter_context(run_s3_fault_proxy(server.catalog, seed=seed))
                proxies["catalog_"].inject(*CATALOG_FAULTS)
                root = f"s3://{TABLE_BUCKET}/chronik"
                properties = f"warehouse=s3://{TABLE_BUCKET}&credential={ACCESS_KEY_ID}:{SECRET_ACCESS_KEY}"
                direct |= {ICEBERG_CATALOG: f"{server.catalog}?{properties}"}
                proxied |= {ICEBERG_CATALOG: f"{proxies['catalog_'].endpoint}?{properties}"}
                variables[CATALOG_VARIABLE] = proxied[ICEBERG_CATALOG]
            yield StressStore(root, direct, proxied, variables, seaweedfs, proxies)
    finally:
        seaweedfs.kill()


class LandingStress:
    """A run of the stress test."""

    def __init__(
        self,
        brokers: Cluster,
        spark: SparkCluster | None,
        store: StressStore,
        directory: Path,
        records: int,
        say: Callable[[str], None],
        *,
        table_format: TableFormat = TableFormat.DELTA,
        drivers: int = 1,
        queries: int = 0,
    ) -> None:
        self._brokers, self._spark, self._store = brokers, spark, store
        self._folder, self._records, self._say = directory, records, say
        self._table = LandedTable(table_uri(store.root, TOPIC), store.options)
        self._outcome = LandingOutcome(records)
        self._format, self._driver_count, self._queries = table_format, drivers, queries
        self._drivers: list[LandingDriver] = []

    def run(self, kills: Sequence[LandingKill]) -> LandingOutcome:
        started = time.monotonic()
        with Client(self._brokers.bootstrap) as client:
            create_topics(client, [NewTopic(TOPIC, PARTITIONS, len(self._brokers.nodes))])
        # One share before and one after each kill, so that there are always records to land; the rest at the end.
        share = self._records // (2 * len(kills) + 1)
        arguments = ["-b", self._brokers.bootstrap, "--table-root", self._store.root, "--topics", TOPIC]
        arguments += ["--table-format", self._format]
        arguments += ["--interval", "0.2", "--max-records-per-round", str(max(1, share // ROUNDS_PER_KILL))]
        with ExitStack() as stack:
            producer = stack.enter_context(
                JournalingProducer(self._brokers.bootstrap, TOPIC, PARTITIONS, self._records)
            )
            self._drivers = [stack.enter_context(self._build_driver(n, arguments)) for n in range(self._driver_count)]
            queries = stack.enter_context(self._build_queries(producer))
            for number, kill in enumerate(kills):
                seconds = self._kill_and_recover(kill, producer, share * (2 * number + 1), share)
                self._outcome.add(kill, seconds)
                self._say(
                    f"kill {number + 1} of {len(kills)}: {kill}; landing again after {seconds:.1f} s,"
                    f" {self._table.count_landed_rows():,} of {producer.acknowledged:,} landed,"
                    f" {queries.completed} queries"
                )
            producer.allow_up_to(self._records)
            self._wait_for_rows(self._records)
            queries.wait_for_completion()
            for driver in self._drivers:
                assert driver.stop() == 0, driver.log_tail()
            self._outcome.queries, self._outcome.failed_queries = queries.completed, queries.failed
            self._outcome.wrong = (
                find_differences(producer.journal(), self._table.read_positions())
                + self._status_differences()
                + queries.wrong
            )
        self._outcome.files, self._outcome.orphans = self._table.file_counts()
        self._outcome.seconds = time.monotonic() - started
        for prefix, proxy in self._store.proxies.items():
            injected = proxy.read_report().injected
            self._outcome.injected.update({f"{prefix}{kind}": count for kind, count in injected.items()})
        return self._outcome

    def _build_driver(self, number: int, arguments: list[str]) -> LandingDriver:
        """Return a driver. All but the first land in their own process, so that they do not wait for executors."""
        log = self._folder / f"driver{number + 1}.log"
        uses_spark = self._spark is not None and number == 0
        master = ["--master", self._spark.url] if self._spark is not None and uses_spark else []
        conf = self._spark.conf if self._spark is not None else {}
        return LandingDriver([*arguments, *master], conf, log, self._store.driver_environment)

    def _build_queries(self, producer: JournalingProducer) -> ContinuousQueries:
        return ContinuousQueries(
            self._brokers.bootstrap,
            self._store.root,
            TOPIC,
            self._queries,
            self._store.query_options,
            lambda: producer.acknowledged,
        )

    def _status_differences(self) -> list[str]:
        """Return the differences between the pipeline's final status and the expected one."""
        reported = [(topic.topic, topic.state, topic.lag) for topic in status(self._brokers.bootstrap)]
        # With several drivers, the last report may be of one that has not read the others' last commit.
        lags = {0} if self._driver_count == 1 else {each[2] for each in reported}
        is_expected = [each[:2] for each in reported] == [(TOPIC, "stopped")] and reported[0][2] in lags
        return [] if is_expected else [f"unexpected status: {reported}"]

    def _kill_and_recover(self, kill: LandingKill, producer: JournalingProducer, records: int, share: int) -> float:
        """Kill in the middle of landing, and return the seconds until rows land again.

        A killed driver is started again immediately if it is the only one, else after the others have landed rows.
        """
        producer.allow_up_to(records)
        self._wait_for_rows(self._table.count_landed_rows() + 1)
        time.sleep(kill.after_s)  # the seed determines the point within a round; there is no state to wait for
        killed_at = time.monotonic()
        stopped = self._inject(kill)
        reached = self._table.count_landed_rows()  # a commit that was in progress does not show a recovery
        producer.allow_up_to(records + share)
        self._wait_for_rows(reached + 1, stopped)
        seconds = time.monotonic() - killed_at
        if stopped is not None:
            stopped.start()
        return seconds

    def _inject(self, kill: LandingKill) -> LandingDriver | None:
        """Inject a fault, and return the driver that was killed and not started again, if any."""
        nodes = sorted(self._brokers.nodes)
        match kill.kind:
            case KillKind.DRIVER | KillKind.PYTHON:
                driver = self._drivers[kill.victim % len(self._drivers)]
                driver.kill(python_alone=kill.kind is KillKind.PYTHON)
                if len(self._drivers) > 1:
                    return driver
                driver.start()
            case KillKind.STORE:
                assert self._store.server is not None
                self._store.server.kill()
                time.sleep(kill.away_s)
                self._store.server.start()
            case KillKind.WORKER:
                assert self._spark is not None
                self._spark.replace_worker(kill.victim)
            case KillKind.BROKER:
                node = self._brokers[nodes[kill.victim % len(nodes)]]
                node.kill()
                time.sleep(kill.away_s)
                node.start()
                self._brokers.wait_until_ready()
            case KillKind.NETWORK:
                self._brokers.isolate(nodes[kill.victim % len(nodes)])
                time.sleep(kill.away_s)
                self._brokers.restore_links()
                self._brokers.wait_until_ready()
        return None

    def _wait_for_rows(self, rows: int, stopped: LandingDriver | None = None) -> None:
        """Wait for the landed rows, without a time limit as long as there is progress."""
        landed, last_progress = self._table.count_landed_rows(), time.monotonic()
        while landed < rows:
            for driver in self._drivers:
                if driver is not stopped and not driver.is_running:
                    self._outcome.ended_by_itself += 1
                    self._say(f"driver exited unexpectedly:\n{driver.log_tail()}")
                    assert self._outcome.ended_by_itself < ENDED_MAX, "drivers exit repeatedly"
                    driver.start()
            time.sleep(POLL_SECONDS)
            before, landed = landed, self._table.count_landed_rows()
            if landed > before:
                last_progress = time.monotonic()
            idle_s = time.monotonic() - last_progress
            assert idle_s < PROGRESS_SECONDS_MAX, (
                f"no progress for {idle_s:.0f} s: {landed} of {rows} rows\n{self._drivers[0].log_tail()}"
            )


def run_landing_stress(
    kills: Sequence[LandingKill],
    records: int,
    directory: Path,
    say: Callable[[str], None],
    nodes: int = 3,
    *,
    workers: int = 2,
    s3_seed: int | None = None,
    table_format: TableFormat = TableFormat.DELTA,
    drivers: int = 1,
    queries: int = 0,
) -> LandingOutcome:
    """Run the stress test with its own brokers, Spark cluster and, with a seed of its faults, S3 server.

    Without workers, there is no Spark cluster, and all drivers land in their own processes.
    """
    with ExitStack() as stack:
        store = (
            StressStore(str(directory / "tables"))
            if s3_seed is None
            else stack.enter_context(run_s3_store(directory, s3_seed, table_format))
        )
        spark = stack.enter_context(SparkCluster(workers=workers)) if workers else None
        brokers = stack.enter_context(Cluster(nodes, directory / "brokers", links=True))
        stress = LandingStress(
            brokers,
            spark,
            store,
            directory,
            records,
            say,
            table_format=table_format,
            drivers=drivers,
            queries=queries,
        )
        return stress.run(kills)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--kills-per-kind", type=int, help="number of kills of each kind, instead of --kills")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--s3", action="store_true", help="land on an S3 server (SeaweedFS)")
    parser.add_argument("--table-format", type=TableFormat, choices=list(TableFormat), default=TableFormat.DELTA)
    parser.add_argument("--drivers", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2, help="Spark workers; 0 for drivers without Spark")
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--queries", type=int, default=0, help="minimum number of SQL queries during the run")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="chronik-landing-") as directory:
        outcome = run_landing_stress(
            schedule_kills(
                arguments.seed,
                arguments.kills,
                arguments.workers,
                arguments.nodes,
                with_store=arguments.s3,
                kills_per_kind=arguments.kills_per_kind,
            ),
            arguments.records,
            Path(directory),
            lambda line: print(line, flush=True),
            arguments.nodes,
            workers=arguments.workers,
            s3_seed=arguments.seed if arguments.s3 else None,
            table_format=arguments.table_format,
            drivers=arguments.drivers,
            queries=arguments.queries,
        )
    print(outcome)
    return 1 if outcome.wrong else 0


if __name__ == "__main__":
    sys.exit(main())

"""Stress test of a landing while drivers, Spark workers and brokers are killed and brokers' networks are partitioned.

The faults follow from a seed. At the end, the table must contain exactly the records in the producer's journal.

    .venv/bin/python -m tests.pipeline.landing_stress --records 1000000 --kills 50 --seed 1
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from chronik.client.admin import NewTopic, create_topics
from chronik.client.cluster import ClusterClient as Client
from chronik.pipeline.journal.pipeline_status import status
from chronik.pipeline.tables.storage import table_uri
from chronik.testing import Cluster
from tests.pipeline.landing_stress_tools import JournalingProducer, LandedTable, LandingDriver, find_differences
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


WEIGHTS = {KillKind.DRIVER: 3, KillKind.PYTHON: 2, KillKind.WORKER: 4, KillKind.BROKER: 4, KillKind.NETWORK: 4}


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
        return self.kind if self.kind in (KillKind.DRIVER, KillKind.PYTHON) else f"{self.kind} {self.victim + 1}"


def schedule_kills(seed: int, kills: int, workers: int = 2, nodes: int = 3) -> list[LandingKill]:
    """Return a schedule that depends only on the seed and contains every kind of fault."""
    rng = random.Random(seed)
    kinds = [*WEIGHTS, *rng.choices(list(WEIGHTS), list(WEIGHTS.values()), k=kills)][:kills]
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
            f" {self.files} files, {self.orphans} orphans"
        )


class LandingStress:
    """A run of the stress test."""

    def __init__(
        self, brokers: Cluster, spark: SparkCluster, directory: Path, records: int, say: Callable[[str], None]
    ) -> None:
        self._brokers, self._spark = brokers, spark
        self._folder, self._records, self._say = directory, records, say
        self._root = str(directory / "tables")
        self._table = LandedTable(table_uri(self._root, TOPIC))
        self._outcome = LandingOutcome(records)

    def run(self, kills: Sequence[LandingKill]) -> LandingOutcome:
        started = time.monotonic()
        with Client(self._brokers.bootstrap) as client:
            create_topics(client, [NewTopic(TOPIC, PARTITIONS, len(self._brokers.nodes))])
        # One share before and one after each kill, so that there are always records to land; the rest at the end.
        share = self._records // (2 * len(kills) + 1)
        arguments = ["-b", self._brokers.bootstrap, "--table-root", self._root, "--topics", TOPIC]
        arguments += ["--master", self._spark.url, "--interval", "0.2"]
        arguments += ["--max-records-per-round", str(max(1, share // ROUNDS_PER_KILL))]
        with (
            JournalingProducer(self._brokers.bootstrap, TOPIC, PARTITIONS, self._records) as producer,
            LandingDriver(arguments, self._spark.conf, self._folder / "driver.log") as driver,
        ):
            for number, kill in enumerate(kills):
                seconds = self._kill_and_recover(kill, producer, driver, share * (2 * number + 1), share)
                self._outcome.add(kill, seconds)
                self._say(
                    f"kill {number + 1} of {len(kills)}: {kill}; landing again after {seconds:.1f} s,"
                    f" {self._table.count_landed_rows():,} of {producer.acknowledged:,} landed"
                )
            producer.allow_up_to(self._records)
            self._wait_for_rows(self._records, driver)
            assert driver.stop() == 0, driver.log_tail()
            self._outcome.wrong = (
                find_differences(producer.journal(), self._table.read_positions()) + self._status_differences()
            )
        self._outcome.files, self._outcome.orphans = self._table.file_counts()
        self._outcome.seconds = time.monotonic() - started
        return self._outcome

    def _status_differences(self) -> list[str]:
        """Return the differences between the pipeline's final status and the expected one."""
        reported = [(topic.topic, topic.state, topic.lag) for topic in status(self._brokers.bootstrap)]
        return [] if reported == [(TOPIC, "stopped", 0)] else [f"unexpected status: {reported}"]

    def _kill_and_recover(
        self, kill: LandingKill, producer: JournalingProducer, driver: LandingDriver, records: int, share: int
    ) -> float:
        """Kill in the middle of landing, and return the seconds until rows land again."""
        producer.allow_up_to(records)
        self._wait_for_rows(self._table.count_landed_rows() + 1, driver)
        time.sleep(kill.after_s)  # the seed determines the point within a round; there is no state to wait for
        killed_at = time.monotonic()
        self._inject(kill, driver)
        reached = self._table.count_landed_rows()  # a commit that was in progress does not show a recovery
        producer.allow_up_to(records + share)
        self._wait_for_rows(reached + 1, driver)
        return time.monotonic() - killed_at

    def _inject(self, kill: LandingKill, driver: LandingDriver) -> None:
        nodes = sorted(self._brokers.nodes)
        match kill.kind:
            case KillKind.DRIVER | KillKind.PYTHON:
                driver.kill(python_alone=kill.kind is KillKind.PYTHON)
                driver.start()
            case KillKind.WORKER:
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

    def _wait_for_rows(self, rows: int, driver: LandingDriver) -> None:
        """Wait for the landed rows, without a time limit as long as there is progress."""
        landed, last_progress = self._table.count_landed_rows(), time.monotonic()
        while landed < rows:
            if not driver.is_running:
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
                f"no progress for {idle_s:.0f} s: {landed} of {rows} rows\n{driver.log_tail()}"
            )


def run_landing_stress(
    kills: Sequence[LandingKill], records: int, directory: Path, say: Callable[[str], None], nodes: int = 3
) -> LandingOutcome:
    """Run the stress test with its own brokers and Spark cluster."""
    with ExitStack() as stack:
        spark = stack.enter_context(SparkCluster(workers=2))
        brokers = stack.enter_context(Cluster(nodes, directory / "brokers", links=True))
        return LandingStress(brokers, spark, directory, records, say).run(kills)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="chronik-landing-") as directory:
        kills = schedule_kills(arguments.seed, arguments.kills)
        outcome = run_landing_stress(kills, arguments.records, Path(directory), lambda line: print(line, flush=True))
    print(outcome)
    return 1 if outcome.wrong else 0


if __name__ == "__main__":
    sys.exit(main())

"""A landing in a storm: drivers, Spark workers and brokers are killed and the brokers' network is cut, by seed, while
records are produced; at the end the table must hold exactly what the producer's journal does.

    .venv/bin/python -m tests.pipeline.long_landing --records 1000000 --kills 50 --seed 1
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
from chronik.client.cluster import Cluster as Client
from chronik.pipeline.journal.status import status
from chronik.pipeline.tables.storage import table_uri
from chronik.testing import Cluster
from tests.pipeline.long_landing_parts import (
    JournalledProducer,
    LandedTable,
    LandingDriver,
    differences,
)
from tests.pipeline.spark_cluster import SparkCluster

TOPIC = "events"
PARTITIONS = 3
ROUNDS_PER_SHARE = 4
"""Rounds that the records before a kill take: about two seconds, so that it falls into the middle of them."""

GOES_ON_SECONDS_MAX = 300.0
"""A driver is back in 10 to 20 s; this is for machines that do much else."""

POLL_SECONDS = 0.1
ENDED_MAX = 10


class Kind(StrEnum):
    DRIVER = "driver"
    """With its JVM, as a machine that is gone."""
    PYTHON = "python"
    """The driver's Python alone: its JVM and its tasks run on until they notice."""
    WORKER = "worker"
    """A Spark worker with its executors; another takes its place."""
    BROKER = "broker"
    """A node of the Chronik cluster; it comes back after a while."""
    NETWORK = "network"
    """A node of the Chronik cluster hears nobody, and nobody hears it; then it heals."""


WEIGHTS = {Kind.DRIVER: 3, Kind.PYTHON: 2, Kind.WORKER: 4, Kind.BROKER: 4, Kind.NETWORK: 4}


@dataclass(frozen=True, slots=True)
class Kill:
    kind: Kind
    victim: int = 0
    """Which of the workers or nodes, counted from 0."""
    after_s: float = 0.3
    """From the moment that rows land."""
    away_s: float = 1.0
    """For a node: until it is back."""

    def __str__(self) -> str:
        return self.kind if self.kind in (Kind.DRIVER, Kind.PYTHON) else f"{self.kind} {self.victim + 1}"


def schedule(seed: int, kills: int, workers: int = 2, nodes: int = 3) -> list[Kill]:
    """Follows from its seed alone. Every kind comes in turn before chance decides, so none is ever missing."""
    chance = random.Random(seed)
    kinds = [*WEIGHTS, *chance.choices(list(WEIGHTS), list(WEIGHTS.values()), k=kills)][:kills]
    chance.shuffle(kinds)
    return [
        Kill(
            kind,
            chance.randrange(workers if kind is Kind.WORKER else nodes),
            round(chance.uniform(0.0, 2.0), 2),
            round(chance.uniform(0.5, 4.0), 2),
        )
        for kind in kinds
    ]


@dataclass(slots=True)
class Outcome:
    records: int
    kills: Counter[str] = field(default_factory=Counter)
    recoveries_s: dict[str, list[float]] = field(default_factory=dict)
    ended_by_itself: int = 0
    """Drivers that nobody killed, and that had to be started again."""
    seconds: float = 0.0
    files: int = 0
    orphans: int = 0
    wrong: list[str] = field(default_factory=list)

    def add(self, kill: Kill, seconds: float) -> None:
        self.kills[kill.kind] += 1
        self.recoveries_s.setdefault(kill.kind, []).append(seconds)

    def __str__(self) -> str:
        kills = ", ".join(f"{count} {kind}" for kind, count in sorted(self.kills.items()))
        slowest = ", ".join(f"{kind} {max(times):.0f} s" for kind, times in sorted(self.recoveries_s.items()))
        verdict = "; ".join(self.wrong) or "the table holds each exactly once"
        return (
            f"{self.records:,} records, {self.kills.total()} kills ({kills}) in {self.seconds:.0f} s: {verdict}\n"
            f"landing again after at most: {slowest}; drivers that ended by themselves: {self.ended_by_itself};"
            f" {self.files} files, {self.orphans} left by lost attempts"
        )


class Storm:
    def __init__(
        self, brokers: Cluster, spark: SparkCluster, folder: Path, records: int, say: Callable[[str], None]
    ) -> None:
        self._brokers, self._spark = brokers, spark
        self._folder, self._records, self._say = folder, records, say
        self._root = str(folder / "tables")
        self._table = LandedTable(table_uri(self._root, TOPIC))
        self._outcome = Outcome(records)

    def run(self, kills: Sequence[Kill]) -> Outcome:
        began = time.monotonic()
        with Client(self._brokers.bootstrap) as client:
            create_topics(client, [NewTopic(TOPIC, PARTITIONS, len(self._brokers.nodes))])
        # One before each kill and one after it, so that there is always something to land; and the rest at the end.
        share = self._records // (2 * len(kills) + 1)
        arguments = ["-b", self._brokers.bootstrap, "--table-root", self._root, "--topics", TOPIC]
        arguments += ["--master", self._spark.url, "--interval", "0.2"]
        arguments += ["--max-records-per-round", str(max(1, share // ROUNDS_PER_SHARE))]
        with (
            JournalledProducer(self._brokers.bootstrap, TOPIC, PARTITIONS, self._records) as producer,
            LandingDriver(arguments, self._spark.conf, self._folder / "driver.log") as driver,
        ):
            for number, kill in enumerate(kills):
                seconds = self._strike(kill, producer, driver, share * (2 * number + 1), share)
                self._outcome.add(kill, seconds)
                self._say(
                    f"kill {number + 1} of {len(kills)}: {kill}; landing again after {seconds:.1f} s,"
                    f" {self._table.rows_landed():,} of {producer.acknowledged:,} landed"
                )
            producer.allow(self._records)
            self._wait_for_rows(self._records, driver)
            assert driver.stop() == 0, driver.last_words()
            self._outcome.wrong = differences(producer.journal(), self._table.positions()) + self._told_wrongly()
        self._outcome.files, self._outcome.orphans = self._table.file_counts()
        self._outcome.seconds = time.monotonic() - began
        return self._outcome

    def _told_wrongly(self) -> list[str]:
        """What those who ask about the pipeline are told, after all that has happened to its drivers."""
        told = [(topic.topic, topic.state, topic.lag) for topic in status(self._brokers.bootstrap)]
        return [] if told == [(TOPIC, "stopped", 0)] else [f"status says {told}"]

    def _strike(
        self, kill: Kill, producer: JournalledProducer, driver: LandingDriver, records: int, share: int
    ) -> float:
        """Kills in the middle of landing. How long it took until rows land again."""
        producer.allow(records)
        self._wait_for_rows(self._table.rows_landed() + 1, driver)
        time.sleep(kill.after_s)  # the place within a round is the seed's choice, not a state to wait for
        struck = time.monotonic()
        self._do(kill, driver)
        reached = self._table.rows_landed()  # what was just being committed is no sign of life
        producer.allow(records + share)
        self._wait_for_rows(reached + 1, driver)
        return time.monotonic() - struck

    def _do(self, kill: Kill, driver: LandingDriver) -> None:
        nodes = sorted(self._brokers.nodes)
        match kill.kind:
            case Kind.DRIVER | Kind.PYTHON:
                driver.kill(python_alone=kill.kind is Kind.PYTHON)
                driver.start()
            case Kind.WORKER:
                self._spark.replace_worker(kill.victim)
            case Kind.BROKER:
                node = self._brokers[nodes[kill.victim % len(nodes)]]
                node.kill()
                time.sleep(kill.away_s)
                node.start()
                self._brokers.wait_until_ready()
            case Kind.NETWORK:
                self._brokers.cut_off(nodes[kill.victim % len(nodes)])
                time.sleep(kill.away_s)
                self._brokers.heal()
                self._brokers.wait_until_ready()

    def _wait_for_rows(self, rows: int, driver: LandingDriver) -> None:
        """However long it takes, as long as rows land."""
        landed, moved = self._table.rows_landed(), time.monotonic()
        while landed < rows:
            if not driver.running:
                self._outcome.ended_by_itself += 1
                self._say(f"the driver ended by itself:\n{driver.last_words()}")
                assert self._outcome.ended_by_itself < ENDED_MAX, "drivers end again and again"
                driver.start()
            time.sleep(POLL_SECONDS)
            before, landed = landed, self._table.rows_landed()
            if landed > before:
                moved = time.monotonic()
            standing_s = time.monotonic() - moved
            assert standing_s < GOES_ON_SECONDS_MAX, (
                f"{landed} rows since {standing_s:.0f} s, on the way to {rows}\n{driver.last_words()}"
            )


def run_storm(kills: Sequence[Kill], records: int, folder: Path, say: Callable[[str], None], nodes: int = 3) -> Outcome:
    """Brokers and a Spark cluster of its own, which end with it."""
    with ExitStack() as stack:
        spark = stack.enter_context(SparkCluster(workers=2))
        brokers = stack.enter_context(Cluster(nodes, folder / "brokers", links=True))
        return Storm(brokers, spark, folder, records, say).run(kills)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="chronik-landing-") as folder:
        kills = schedule(arguments.seed, arguments.kills)
        outcome = run_storm(kills, arguments.records, Path(folder), lambda line: print(line, flush=True))
    print(outcome)
    return 1 if outcome.wrong else 0


if __name__ == "__main__":
    sys.exit(main())

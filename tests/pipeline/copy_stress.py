"""Stress test of a stream that copies a topic while its driver, executors and Python workers are killed.

The kills follow from a seed. At the end, a read_committed consumer must see each record exactly once.

    .venv/bin/python -m tests.pipeline.copy_stress --records 1000000 --kills 20 --seed 1 [--kafka]
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy as np

from chronik.client.admin import NewTopic, create_topics
from chronik.client.cluster import ClusterClient as Client
from chronik.testing import Cluster
from tests.pipeline.apache_kafka import ApacheKafka
from tests.pipeline.committed_reader import CommittedReader, read_committed_values
from tests.pipeline.landing_stress_tools import JournalingProducer, LandingDriver
from tests.pipeline.spark_cluster import SparkCluster

SOURCE, TARGET = "events", "copies"
SOURCE_PARTITIONS, TARGET_PARTITIONS = 3, 4

EPOCHS_PER_KILL = 3
"""Micro-batches in the share of records before a kill, so that the kill hits the middle of them."""

PROGRESS_SECONDS_MAX = 300.0
ONCE_SECONDS_MAX = 600.0
"""Maximum time of the final run; 20 s on an idle machine."""
POLL_SECONDS = 0.05
ENDED_MAX = 10

DAEMON = "pyspark.daemon"
"""Module name in the command line of the daemon that forks Python workers, and of the workers."""


class Victim(StrEnum):
    """The process that a kill hits."""

    DRIVER = "driver"
    """The driver with its JVM; in local mode this includes the executor."""
    PYTHON = "python"
    """Only the driver's Python process: its JVM and tasks keep running for a while, alongside the next driver."""
    EXECUTOR = "executor"
    """A Spark worker with its executor, which is replaced. Its Python workers keep running for a while."""
    TASK = "task"
    """A Python worker, whose task Spark retries."""


WEIGHTS = {Victim.DRIVER: 3, Victim.PYTHON: 2, Victim.EXECUTOR: 4, Victim.TASK: 4}


class CopyKill(NamedTuple):
    """A scheduled kill."""

    victim: Victim
    after_s: float = 0.3
    """Delay after the first copied record."""
    which: int = 0
    """Index of the worker to kill."""


def schedule_kills(seed: int, kills: int, workers: int = 2) -> list[CopyKill]:
    """Return a schedule that depends only on the seed and contains every kind of kill."""
    rng = random.Random(seed)
    victims = [*WEIGHTS, *rng.choices(list(WEIGHTS), list(WEIGHTS.values()), k=kills)][:kills]
    rng.shuffle(victims)
    return [CopyKill(each, round(rng.uniform(0.0, 1.5), 2), rng.randrange(workers)) for each in victims]


class CopyDriver(LandingDriver):
    """A process that runs `copy_stream.py`, with its JVM."""

    COMMAND: ClassVar[tuple[str, ...]] = ("-P", str(Path(__file__).with_name("copy_stream.py")))


@dataclass(slots=True)
class CopyOutcome:
    """The result of the stress test."""

    records: int
    kills: Counter[str] = field(default_factory=Counter)
    ended_by_itself: int = 0
    """Drivers that exited without being killed and were restarted."""
    seconds: float = 0.0
    wrong: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        kills = ", ".join(f"{count} {kind}" for kind, count in sorted(self.kills.items()))
        ended = f", {self.ended_by_itself} drivers exited unexpectedly" if self.ended_by_itself else ""
        verdict = "; ".join(self.wrong) or "each copied exactly once"
        return (
            f"{self.records:,} records, {self.kills.total()} kills ({kills}){ended}, {self.seconds:,.0f} s: {verdict}"
        )


class CopyStress:
    """A run of the stress test."""

    def __init__(
        self, bootstrap: str, spark: SparkCluster | None, folder: Path, records: int, say: Callable[[str], None]
    ) -> None:
        """Create a run; without `spark`, in Spark's local mode."""
        self._bootstrap, self._spark, self._folder = bootstrap, spark, folder
        self._records, self._say = records, say
        self._outcome = CopyOutcome(records)
        self._copied = 0

    def run(self, kills: Sequence[CopyKill]) -> CopyOutcome:
        started = time.monotonic()
        with Client(self._bootstrap) as client:
            create_topics(client, [NewTopic(SOURCE, SOURCE_PARTITIONS), NewTopic(TARGET, TARGET_PARTITIONS)])
        share = self._records // (2 * len(kills) + 1)
        arguments = [self._bootstrap, SOURCE, TARGET, str(self._folder / "checkpoint")]
        arguments += ["--records-per-epoch", str(max(SOURCE_PARTITIONS, share // EPOCHS_PER_KILL))]
        conf: Mapping[str, str] = {}
        if self._spark is not None:
            arguments += ["--master", self._spark.url]
            conf = self._spark.conf
        with (
            JournalingProducer(self._bootstrap, SOURCE, SOURCE_PARTITIONS, self._records) as producer,
            CommittedReader(self._bootstrap, TARGET, TARGET_PARTITIONS) as reader,
            CopyDriver(arguments, conf, self._folder / "driver.log") as driver,
        ):
            for number, kill in enumerate(kills):
                self._kill_and_wait(kill, producer, driver, reader, share * (2 * number + 1), share)
                self._outcome.kills[kill.victim] += 1
                self._say(f"kill {number + 1} of {len(kills)}: {kill.victim}; {self._copied:,} copied")
            producer.allow_up_to(self._records)
            self._wait_for(self._records, driver, reader)
            # The driver may have been about to retry a micro-batch, which must not become visible either.
            driver.kill()
            driver.start("--once")
            assert driver.wait(ONCE_SECONDS_MAX) == 0, driver.log_tail()
        self._outcome.wrong = self._find_differences()
        self._outcome.seconds = time.monotonic() - started
        return self._outcome

    def _kill_and_wait(
        self,
        kill: CopyKill,
        producer: JournalingProducer,
        driver: CopyDriver,
        reader: CommittedReader,
        upto: int,
        share: int,
    ) -> None:
        """Kill in the middle of copying, and wait until records are copied again."""
        producer.allow_up_to(upto)
        self._wait_for(self._copied + 1, driver, reader)
        time.sleep(kill.after_s)  # the seed determines the point within an epoch; there is no state to wait for
        self._kill(kill, driver)
        self._copied += len(reader.poll())
        producer.allow_up_to(upto + share)
        self._wait_for(min(upto + share, self._copied + share), driver, reader)

    def _kill(self, kill: CopyKill, driver: CopyDriver) -> None:
        match kill.victim:
            case Victim.DRIVER | Victim.PYTHON:
                driver.kill(python_alone=kill.victim is Victim.PYTHON)
                driver.start()
            case Victim.EXECUTOR:
                assert self._spark is not None, "only a cluster has separate executors"
                self._spark.replace_worker(kill.which)
            case Victim.TASK:
                roots = [driver.pid] if self._spark is None else [worker.pid for worker in self._spark.workers]
                deadline = time.monotonic() + PROGRESS_SECONDS_MAX
                while not (workers := find_python_workers(roots)):
                    assert time.monotonic() < deadline, "no Python workers found"
                    time.sleep(POLL_SECONDS)
                for pid in workers:
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)

    def _wait_for(self, records: int, driver: CopyDriver, reader: CommittedReader) -> None:
        """Wait for the copied records, without a time limit as long as there is progress."""
        last_progress = time.monotonic()
        while self._copied < records:
            if not driver.is_running:
                self._outcome.ended_by_itself += 1
                self._say(f"driver exited unexpectedly:\n{driver.log_tail()}")
                assert self._outcome.ended_by_itself < ENDED_MAX, "drivers exit repeatedly"
                driver.start()
            new_records = len(reader.poll(POLL_SECONDS))
            self._copied += new_records
            if new_records:
                last_progress = time.monotonic()
            idle_s = time.monotonic() - last_progress
            assert idle_s < PROGRESS_SECONDS_MAX, (
                f"no progress for {idle_s:.0f} s: {self._copied} of {records} records\n{driver.log_tail()}"
            )

    def _find_differences(self) -> list[str]:
        return find_copy_differences(read_committed_values(self._bootstrap, TARGET, TARGET_PARTITIONS), self._records)


def find_copy_differences(values: Sequence[bytes], records: int) -> list[str]:
    """Return descriptions of records that are missing or duplicated."""
    times = np.bincount([int(value.split()[0]) for value in values], minlength=records)
    wrong = [f"record {number} occurs {times[number]} times" for number in np.flatnonzero(times != 1)[:5]]
    return wrong + ([f"{records} records but {len(values)} copies"] if len(values) != records else [])


def find_python_workers(roots: Sequence[int]) -> list[int]:
    """Return the pids of Python workers that run tasks, forked by an executor's daemon."""
    return [
        pid
        for root in roots
        for pid in _descendants(root)
        if _has_argument(pid, DAEMON) and _has_argument(_parents().get(pid, 0), DAEMON)
    ]


def _descendants(root: int) -> Iterator[int]:
    parents = _parents()
    for pid in parents:
        ancestor = parents.get(pid, 0)
        while ancestor not in (0, root):
            ancestor = parents.get(ancestor, 0)
        if ancestor == root:
            yield pid


def _parents() -> dict[int, int]:
    found = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            found[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
    return found


def _has_argument(pid: int, name: str) -> bool:
    try:
        return name in Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    except OSError:
        return False


def run_copy_stress(
    kills: Sequence[CopyKill],
    records: int,
    folder: Path,
    say: Callable[[str], None],
    *,
    is_local: bool = False,
    nodes: int = 3,
    kafka: bool = False,
) -> CopyOutcome:
    """Run the stress test with its own brokers and, unless in local mode, its own Spark cluster."""
    with ExitStack() as stack:
        spark = None if is_local else stack.enter_context(SparkCluster(workers=2))
        directory = folder / "brokers"
        directory.mkdir()
        brokers: ApacheKafka | Cluster = ApacheKafka(directory) if kafka else Cluster(nodes, directory)
        with brokers:
            return CopyStress(brokers.bootstrap, spark, folder, records, say).run(kills)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kafka", action="store_true", help="use an Apache Kafka broker instead of three nodes")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="chronik-copying-") as folder:
        kills = schedule_kills(arguments.seed, arguments.kills)
        outcome = run_copy_stress(
            kills, arguments.records, Path(folder), lambda line: print(line, flush=True), kafka=arguments.kafka
        )
    print(f"seed {arguments.seed}: {outcome}")
    return 1 if outcome.wrong else 0


if __name__ == "__main__":
    sys.exit(main())

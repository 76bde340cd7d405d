"""A stream from topic to topic in a storm: its driver, the executors and their Python workers are killed, by seed. At
the end a reader of committed records sees each record exactly once.

    .venv/bin/python -m tests.pipeline.long_copying --records 1000000 --kills 20 --seed 1 [--kafka]
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
from chronik.client.cluster import Cluster as Client
from chronik.testing import Cluster
from tests.pipeline.apache_kafka import ApacheKafka
from tests.pipeline.committed import CommittedReader, committed_values
from tests.pipeline.long_landing_parts import JournalledProducer, LandingDriver
from tests.pipeline.spark_cluster import SparkCluster

SOURCE, TARGET = "events", "copies"
SOURCE_PARTITIONS, TARGET_PARTITIONS = 3, 4

EPOCHS_PER_SHARE = 3
"""Micro-batches that the records before a kill take, so that it falls into the middle of them."""

GOES_ON_SECONDS_MAX = 300.0
ONCE_SECONDS_MAX = 600.0
"""20 s on a machine that does nothing else."""
POLL_SECONDS = 0.05
ENDED_MAX = 10

DAEMON = "pyspark.daemon"
"""What the process is called that forks an executor's Python workers, and these too."""


class Victim(StrEnum):
    DRIVER = "driver"
    """With its JVM, and without a cluster also with its executor."""
    PYTHON = "python"
    """The driver's Python alone: its JVM and its tasks run on until they notice, beside the next driver."""
    EXECUTOR = "executor"
    """A Spark worker with its executor; its Python workers run on until they notice. Another takes its place."""
    TASK = "task"
    """A Python worker: Spark runs its task again."""


WEIGHTS = {Victim.DRIVER: 3, Victim.PYTHON: 2, Victim.EXECUTOR: 4, Victim.TASK: 4}


class Kill(NamedTuple):
    victim: Victim
    after_s: float = 0.3
    """From the moment that records are copied."""
    which: int = 0
    """Of the workers, counted from 0."""


def schedule(seed: int, kills: int, workers: int = 2) -> list[Kill]:
    """Follows from its seed alone. Every kind comes in turn before chance decides, so none is ever missing."""
    chance = random.Random(seed)
    victims = [*WEIGHTS, *chance.choices(list(WEIGHTS), list(WEIGHTS.values()), k=kills)][:kills]
    chance.shuffle(victims)
    return [Kill(each, round(chance.uniform(0.0, 1.5), 2), chance.randrange(workers)) for each in victims]


class CopyDriver(LandingDriver):
    """`copy_stream.py`, and with it a JVM."""

    COMMAND: ClassVar[tuple[str, ...]] = ("-P", str(Path(__file__).with_name("copy_stream.py")))


@dataclass(slots=True)
class Outcome:
    records: int
    kills: Counter[str] = field(default_factory=Counter)
    ended_by_itself: int = 0
    """Drivers that nobody killed, and that had to be started again."""
    seconds: float = 0.0
    wrong: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        kills = ", ".join(f"{count} {kind}" for kind, count in sorted(self.kills.items()))
        ended = f", {self.ended_by_itself} drivers ended by themselves" if self.ended_by_itself else ""
        judged = "; ".join(self.wrong) or "each copied exactly once"
        return f"{self.records:,} records, {self.kills.total()} kills ({kills}){ended}, {self.seconds:,.0f} s: {judged}"


class Storm:
    def __init__(
        self, bootstrap: str, spark: SparkCluster | None, folder: Path, records: int, say: Callable[[str], None]
    ) -> None:
        """`spark`: None for Spark's local mode."""
        self._bootstrap, self._spark, self._folder = bootstrap, spark, folder
        self._records, self._say = records, say
        self._outcome = Outcome(records)
        self._copied = 0

    def run(self, kills: Sequence[Kill]) -> Outcome:
        began = time.monotonic()
        with Client(self._bootstrap) as client:
            create_topics(client, [NewTopic(SOURCE, SOURCE_PARTITIONS), NewTopic(TARGET, TARGET_PARTITIONS)])
        share = self._records // (2 * len(kills) + 1)
        arguments = [self._bootstrap, SOURCE, TARGET, str(self._folder / "checkpoint")]
        arguments += ["--records-per-epoch", str(max(SOURCE_PARTITIONS, share // EPOCHS_PER_SHARE))]
        conf: Mapping[str, str] = {}
        if self._spark is not None:
            arguments += ["--master", self._spark.url]
            conf = self._spark.conf
        with (
            JournalledProducer(self._bootstrap, SOURCE, SOURCE_PARTITIONS, self._records) as producer,
            CommittedReader(self._bootstrap, TARGET, TARGET_PARTITIONS) as reader,
            CopyDriver(arguments, conf, self._folder / "driver.log") as driver,
        ):
            for number, kill in enumerate(kills):
                self._strike(kill, producer, driver, reader, share * (2 * number + 1), share)
                self._outcome.kills[kill.victim] += 1
                self._say(f"kill {number + 1} of {len(kills)}: {kill.victim}; {self._copied:,} copied")
            producer.allow(self._records)
            self._wait_for(self._records, driver, reader)
            # It may have been about to do something again: what it does from here on must not be seen either.
            driver.kill()
            driver.start("--once")
            assert driver.wait(ONCE_SECONDS_MAX) == 0, driver.last_words()
        self._outcome.wrong = self._judged()
        self._outcome.seconds = time.monotonic() - began
        return self._outcome

    def _strike(
        self,
        kill: Kill,
        producer: JournalledProducer,
        driver: CopyDriver,
        reader: CommittedReader,
        upto: int,
        share: int,
    ) -> None:
        """Kills in the middle of copying, and waits until records are copied again."""
        producer.allow(upto)
        self._wait_for(self._copied + 1, driver, reader)
        time.sleep(kill.after_s)  # the place within an epoch is the seed's choice, not a state to wait for
        self._do(kill, driver)
        self._copied += len(reader.poll())
        producer.allow(upto + share)
        self._wait_for(min(upto + share, self._copied + share), driver, reader)

    def _do(self, kill: Kill, driver: CopyDriver) -> None:
        match kill.victim:
            case Victim.DRIVER | Victim.PYTHON:
                driver.kill(python_alone=kill.victim is Victim.PYTHON)
                driver.start()
            case Victim.EXECUTOR:
                assert self._spark is not None, "only a cluster has executors of their own"
                self._spark.replace_worker(kill.which)
            case Victim.TASK:
                roots = [driver.pid] if self._spark is None else [worker.pid for worker in self._spark.workers]
                deadline = time.monotonic() + GOES_ON_SECONDS_MAX
                while not (workers := _python_workers(roots)):
                    assert time.monotonic() < deadline, "there are no Python workers"
                    time.sleep(POLL_SECONDS)
                for pid in workers:
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)

    def _wait_for(self, records: int, driver: CopyDriver, reader: CommittedReader) -> None:
        """However long it takes, as long as records are copied."""
        moved = time.monotonic()
        while self._copied < records:
            if not driver.running:
                self._outcome.ended_by_itself += 1
                self._say(f"the driver ended by itself:\n{driver.last_words()}")
                assert self._outcome.ended_by_itself < ENDED_MAX, "drivers end again and again"
                driver.start()
            came = len(reader.poll(POLL_SECONDS))
            self._copied += came
            if came:
                moved = time.monotonic()
            standing_s = time.monotonic() - moved
            assert standing_s < GOES_ON_SECONDS_MAX, (
                f"{self._copied} records since {standing_s:.0f} s, on the way to {records}\n{driver.last_words()}"
            )

    def _judged(self) -> list[str]:
        return differences(committed_values(self._bootstrap, TARGET, TARGET_PARTITIONS), self._records)


def differences(values: Sequence[bytes], records: int) -> list[str]:
    """What is there not once, in words."""
    times = np.bincount([int(value.split()[0]) for value in values], minlength=records)
    wrong = [f"record {number} is there {times[number]} times" for number in np.flatnonzero(times != 1)[:5]]
    return wrong + ([f"{records} records and {len(values)} copies"] if len(values) != records else [])


def _python_workers(roots: Sequence[int]) -> list[int]:
    """Those that run tasks: forked by a daemon, which an executor has started."""
    return [
        pid
        for root in roots
        for pid in _descendants(root)
        if _is_called(pid, DAEMON) and _is_called(_parents().get(pid, 0), DAEMON)
    ]


def _descendants(root: int) -> Iterator[int]:
    parents = _parents()
    for pid in parents:
        above = parents.get(pid, 0)
        while above not in (0, root):
            above = parents.get(above, 0)
        if above == root:
            yield pid


def _parents() -> dict[int, int]:
    found = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            found[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
    return found


def _is_called(pid: int, name: str) -> bool:
    try:
        return name in Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    except OSError:
        return False


def run_storm(
    kills: Sequence[Kill],
    records: int,
    folder: Path,
    say: Callable[[str], None],
    *,
    is_local: bool = False,
    nodes: int = 3,
    kafka: bool = False,
) -> Outcome:
    """Brokers and, unless Spark's local mode is enough, a Spark cluster of its own, which end with it."""
    with ExitStack() as stack:
        spark = None if is_local else stack.enter_context(SparkCluster(workers=2))
        place = folder / "brokers"
        place.mkdir()
        brokers: ApacheKafka | Cluster = ApacheKafka(place) if kafka else Cluster(nodes, place)
        with brokers:
            return Storm(brokers.bootstrap, spark, folder, records, say).run(kills)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kafka", action="store_true", help="Apache Kafka's broker instead of three nodes of ours")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="chronik-copying-") as folder:
        kills = schedule(arguments.seed, arguments.kills)
        outcome = run_storm(
            kills, arguments.records, Path(folder), lambda line: print(line, flush=True), kafka=arguments.kafka
        )
    print(f"seed {arguments.seed}: {outcome}")
    return 1 if outcome.wrong else 0


if __name__ == "__main__":
    sys.exit(main())

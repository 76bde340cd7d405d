"""Landing rounds of one case in a process of its own: `python -m bench.pipeline.round_lander BOOTSTRAP FOLDER CASE`.

Prints the times as JSON. Landed rows are many links to one data file, each committed with its own offsets.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import threading
import time
import uuid
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from statistics import median

from bench.pipeline.rounds import RoundCase, RoundTimes
from chronik.bench.errors import BenchmarkError
from chronik.bench.statistics import MILLION
from chronik.client.admin import NewTopic, create_topics
from chronik.client.cluster import ClusterClient
from chronik.client.producer import Producer
from chronik.client.records import OutgoingRecord
from chronik.pipeline.journal.reports import ProgressReporter
from chronik.pipeline.landing.driver import LandingDriver
from chronik.pipeline.landing.landing_task import LandingTask, LandingTaskResult, run_landing_tasks
from chronik.pipeline.landing.local_runner import LandingTaskRunner
from chronik.pipeline.landing.settings import LandingSettings, TableSettings
from chronik.pipeline.tables.catalog import open_table
from chronik.pipeline.tables.commit_plan import PartitionRange, TaskOutput, WrittenFile
from chronik.pipeline.tables.layout import TableKind
from chronik.pipeline.tables.storage import table_uri

ROWS_PER_FILE = MILLION
RECORDS_PER_PARTITION = 10
WARM_UP_ROUNDS = 2


class InThisProcess(LandingTaskRunner):
    """A task runner that runs all tasks in this process, and stops the driver after a round."""

    def __init__(self) -> None:
        """Without a Spark session."""

    def parallelism(self) -> int:
        return 1

    def run(self, tasks: Sequence[LandingTask]) -> list[LandingTaskResult]:
        return run_landing_tasks(tasks)


def main(arguments: list[str]) -> int:
    bootstrap, folder, text = arguments
    case = RoundCase(**json.loads(text))
    with ClusterClient(bootstrap) as cluster:
        print(json.dumps(asdict(_RoundLander(case, cluster, bootstrap, folder).measure())))
    return 0


class _RoundLander:
    def __init__(self, case: RoundCase, cluster: ClusterClient, bootstrap: str, folder: str) -> None:
        self._case, self._cluster, self._folder = case, cluster, folder
        prefix = f"rounds-{uuid.uuid4().hex[:8]}"
        self._names = [f"{prefix}-{number}" for number in range(case.topics)]
        settings = LandingSettings(bootstrap, folder, tuple(self._names), TableSettings(TableKind.DECODED), prefix)
        self._driver = LandingDriver(settings, cluster, InThisProcess(), ProgressReporter(), threading.Event())
        self._producer = Producer(cluster)
        self._value = json.dumps({f"column_{number}": number for number in range(case.columns)}).encode()

    def measure(self) -> RoundTimes:
        create_topics(self._cluster, [NewTopic(name, self._case.partitions) for name in self._names])
        self._land()
        for name in self._names:
            self._add_landed_rows(name)
        for _ in range(WARM_UP_ROUNDS):
            self._land()
        rounds, cpu, idle, commits = [], [], [], []
        for _ in range(self._case.rounds):
            seconds, cpu_s, commit_s = self._land()
            rounds.append(seconds)
            cpu.append(cpu_s)
            commits.append(commit_s)
            started = time.perf_counter()
            self._driver.land_round()
            idle.append(time.perf_counter() - started)
        peak = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return RoundTimes(median(rounds), median(cpu), median(idle), median(commits), peak)

    def _land(self) -> tuple[float, float, float]:
        """Send records to all topics and land them; return the duration and CPU time of the round, and its commits."""
        for name in self._names:
            records = [
                OutgoingRecord(self._value, partition=partition)
                for partition in range(self._case.partitions)
                for _ in range(RECORDS_PER_PARTITION)
            ]
            self._producer.send(name, records)
        started, cpu = time.perf_counter(), time.process_time()
        stages = self._driver.land_round()
        seconds, cpu_s = time.perf_counter() - started, time.process_time() - cpu
        if stages.errors:
            raise BenchmarkError(f"a round failed: {stages.errors[0]}")
        return seconds, cpu_s, stages.commit_s

    def _add_landed_rows(self, name: str) -> None:
        """Add landed rows of a partition that the topic does not have, so that the rounds do not depend on them."""
        if not self._case.landed_rows:
            return
        table = open_table(table_uri(self._folder, name))
        directory = Path(table_uri(self._folder, name))
        file = max(directory.glob("**/part-*.parquet"), key=lambda path: path.stat().st_size)
        template = _read_written_file(directory, file)
        outputs = []
        for start in range(0, self._case.landed_rows, ROWS_PER_FILE):
            end = min(self._case.landed_rows, start + ROWS_PER_FILE)
            path = file.with_name(f"part-{uuid.uuid4()}.zstd.parquet")
            os.link(file, path)
            written = replace(template, path=str(path.relative_to(directory)), rows=end - start)
            outputs.append(TaskOutput((PartitionRange(self._case.partitions, start, end),), (written,)))
        for first in range(0, len(outputs), 10):  # as ten rounds of a million rows each
            table.commit(outputs[first : first + 10])


def _read_written_file(directory: Path, file: Path) -> WrittenFile:
    entry = next(
        action["add"]
        for log in sorted((directory / "_delta_log").glob("*.json"))
        for action in map(json.loads, log.read_text().splitlines())
        if action.get("add", {}).get("path", "").endswith(file.name)
    )
    return WrittenFile(
        entry["path"],
        entry["size"],
        json.loads(entry["stats"])["numRecords"],
        entry["partitionValues"],
        entry["stats"],
        int(time.time() * 1000),
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

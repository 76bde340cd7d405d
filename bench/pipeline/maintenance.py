"""The cost of table maintenance: a topic lands in small rounds with and without it, interleaved.

The rounds run in the pipeline's own process, so maintenance competes with landing for its CPU and interpreter.
"""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from bench.cluster.figures import Figure
from bench.pipeline.plan import PipelineBenchmarkPlan
from chronik.bench.errors import BenchmarkError
from chronik.bench.report import rotate_servers
from chronik.pipeline.journal.reports import MaintenanceReport, ProgressReporter, TopicReport
from chronik.pipeline.landing.local_runner import LOCAL_RECORDS_MAX
from chronik.pipeline.landing.runner import run
from chronik.pipeline.table_maintenance.policy import SHARE
from chronik.pipeline.table_maintenance.settings import MaintenanceOptions
from chronik.pipeline.tables.catalog import open_table
from chronik.pipeline.tables.storage import table_uri

ROUNDS_LEAST: Final = 50
"""Minimum number of landing rounds of one measurement."""
RATE_RATIO_LEAST: Final = 1 - SHARE
ON, OFF = "with maintenance", "without"


class _MaintainedLanding(NamedTuple):
    rows_per_second: float
    share: float
    """Part of the time that maintenance took."""
    files: int


class _LandingTimer(ProgressReporter):
    """Stops a pipeline when all records have landed, and measures the time from its first report."""

    def __init__(self, records: int, stop: threading.Event) -> None:
        self._records = records
        self._stop = stop
        self._started_s: float | None = None
        self.seconds = 0.0
        self.maintenance_seconds = 0.0
        self.error: str | None = None

    def report(self, report: TopicReport) -> None:
        now_s = time.perf_counter()
        if self._started_s is None:
            self._started_s = now_s - report.round_seconds
        self.seconds = now_s - self._started_s
        self.error = report.last_error
        if self.error is not None or report.total_rows >= self._records:
            self._stop.set()

    def report_maintenance(self, report: MaintenanceReport) -> None:
        self.maintenance_seconds += report.seconds


def measure_maintenance(plan: PipelineBenchmarkPlan) -> list[Figure]:
    topic = plan.topic(plan.records)
    landings: dict[str, list[_MaintainedLanding]] = defaultdict(list)
    ways: dict[str, Callable[[], _MaintainedLanding]] = {
        ON: lambda: _land(plan, topic, is_maintained=True),
        OFF: lambda: _land(plan, topic, is_maintained=False),
    }
    ways[OFF]()  # a warm-up
    for number in range(plan.rounds):
        for name in rotate_servers(list(ways), number):
            landings[name].append(ways[name]())
    pairs = list(zip(landings[ON], landings[OFF], strict=True))
    return [
        Figure(
            f"{ON} / {OFF}: rows/s",
            [one.rows_per_second / other.rows_per_second for one, other in pairs],
            at_least=RATE_RATIO_LEAST,
        ),
        Figure("time of maintenance / time of landing", [each.share for each in landings[ON]]),
        *(Figure(f"{name}: rows/s", [each.rows_per_second for each in found]) for name, found in landings.items()),
        *(Figure(f"{name}: files", [float(each.files) for each in found]) for name, found in landings.items()),
    ]


def _land(plan: PipelineBenchmarkPlan, topic: str, *, is_maintained: bool) -> _MaintainedLanding:
    """Land a topic in rounds that are small enough to run in this process. Raises BenchFailed."""
    folder = plan.directory / "tables"
    shutil.rmtree(folder, ignore_errors=True)
    os.sync()
    stop = threading.Event()
    timer = _LandingTimer(plan.records, stop)
    try:
        summary = run(
            plan.bootstrap,
            str(folder),
            [topic],
            round_records_max=max(1, min(LOCAL_RECORDS_MAX, plan.records // ROUNDS_LEAST)),
            maintenance=MaintenanceOptions(is_enabled=is_maintained),
            reporter=timer,
            stop=stop,
        )
        if summary.rows[topic] != plan.records:
            raise BenchmarkError(f"{summary.rows[topic]:,} of {plan.records:,} rows landed: {timer.error}")
        files = _count_files(folder, topic)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return _MaintainedLanding(plan.records / timer.seconds, timer.maintenance_seconds / timer.seconds, files)


def _count_files(folder: Path, topic: str) -> int:
    return len(open_table(table_uri(str(folder), topic)).files().files)

"""Maintenance of the tables of a running pipeline, in a thread of its own.

The maintainer learns from the driver's reports which tables exist and how many rounds they had. Landing never waits for
it, and it takes only a small part of the time: see `policy`. A table that several pipelines land is maintained by one
of them at a time. If two processes replace the same files nevertheless, one of them abandons its work.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from chronik.errors import ChronikError
from chronik.pipeline.journal.reports import DriverRole, MaintenanceReport, ProgressReporter, TopicReport
from chronik.pipeline.spark.tasks import SparkTaskRunner
from chronik.pipeline.table_maintenance.execution import (
    MaintenanceExecutor,
    MaintenanceOutcome,
    MaintenanceResult,
)
from chronik.pipeline.table_maintenance.merges import MergeTask, get_maintainer, merge_table_files
from chronik.pipeline.table_maintenance.policy import (
    FILES_PER_MERGE,
    LEASE_MS,
    MaintenanceBudget,
    MaintenanceSettings,
    PlannedMaintenance,
    plan_maintenance,
)
from chronik.pipeline.tables.catalog import open_table
from chronik.pipeline.tables.commit_plan import WrittenFile
from chronik.pipeline.tables.storage import DEAD_LETTERS_SUFFIX
from chronik.pipeline.tables.topic_table import TableMissingError, TopicTable
from chronik.pipeline_journal import LandingState

logger = logging.getLogger("chronik.pipeline")

CHECK_SECONDS_MAX: Final = 600.0
"""Maximum time between two checks of a table, for what becomes due without new rows."""

RETRY_SECONDS_MIN, RETRY_DOUBLINGS_MAX = 10.0, 6
"""Delay after a failed maintenance of a table: doubled after each further failure, up to ten minutes."""

STOP_SECONDS_MAX: Final = 10.0
"""Maximum time that a stopping pipeline waits for a commit in progress. Merges stop earlier."""

SPARK_TASKS_DIVISOR: Final = 4
"""Maximum part of Spark's cores, as a divisor, on which merges run concurrently with landing."""

ReadSettings = Callable[[str], MaintenanceSettings]
"""A function that returns the maintenance settings of a topic. Only the maintainer's thread calls it."""


class MaintenanceStoppedError(ChronikError):
    """The pipeline stops, and the files of an incomplete compaction are deleted."""


@dataclass(slots=True)
class _TrackedTable:
    """A table to maintain, and when to examine it next."""

    topic: str
    uri: str
    rounds: int = 0
    """Number of rounds with rows since the last check."""
    next_check_s: float = 0.0
    failures: int = 0
    is_paused: bool = False
    opened: TopicTable | None = None
    settings: MaintenanceSettings | None = None
    plan: PlannedMaintenance | None = None

    def is_due(self, now_s: float) -> bool:
        has_grown = self.failures == 0 and self.rounds >= FILES_PER_MERGE
        return not self.is_paused and self.plan is None and (has_grown or self.next_check_s <= now_s)


class TableMaintainer(ProgressReporter):
    """Maintains the tables in the reports that it receives and passes on to another reporter."""

    def __init__(
        self,
        pipeline: str,
        reporter: ProgressReporter,
        read_settings: ReadSettings,
        *,
        storage_options: Mapping[str, str] | None = None,
        spark: Callable[[], SparkTaskRunner | None] = lambda: None,
        stop: threading.Event | None = None,
        once: bool = False,
        hit_failpoint: Callable[[str], None] = lambda name: None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Create a maintainer and start its thread.

        `stop` is the event that stops the pipeline. With `once`, the maintainer has no thread: it maintains the tables
        in `close`, when everything has landed.
        """
        self._pipeline = pipeline
        self._reporter = reporter
        self._read_settings = read_settings
        self._storage_options = storage_options
        self._spark = spark
        self._once = once
        self._monotonic = monotonic
        self._executor = MaintenanceExecutor(
            get_maintainer(),
            self._run_merges,
            0 if once else LEASE_MS,
            hit_failpoint,
        )
        self._budget = MaintenanceBudget(monotonic())
        self._lock = threading.Lock()
        self._tables: dict[str, _TrackedTable] = {}
        self._stop = stop or threading.Event()
        self._closing = threading.Event()
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        if not once:
            self._thread = threading.Thread(target=self._run, name="chronik-maintenance", daemon=True)
            self._thread.start()

    @property
    def _is_stopping(self) -> bool:
        return self._stop.is_set() or self._closing.is_set()

    # Called in the driver's thread

    def report(self, report: TopicReport) -> None:
        self._reporter.report(report)
        with self._lock:
            self._track(report)
        self._wake.set()

    def _track(self, report: TopicReport) -> None:
        for uri, rows in (
            (report.table, report.round_rows - report.round_dead_letters),
            (report.table + DEAD_LETTERS_SUFFIX, report.round_dead_letters),
        ):
            if report.state is LandingState.STOPPED and not self._once:
                self._tables.pop(uri, None)
            else:
                table = self._tables.setdefault(uri, _TrackedTable(report.topic, uri))
                table.is_paused = report.state is LandingState.PAUSED
                table.rounds += rows > 0

    def report_role(self, role: DriverRole) -> None:
        """Leave the tables to the driver that has become active, if this one is on standby."""
        self._reporter.report_role(role)
        if role is DriverRole.STANDBY:
            with self._lock:
                self._tables.clear()

    def report_maintenance(self, report: MaintenanceReport) -> None:
        self._reporter.report_maintenance(report)

    def is_paused(self, topic: str) -> bool:
        return self._reporter.is_paused(topic)

    def close(self) -> None:
        """Stop the thread, and close the other reporter. With `once`, first maintain the tables within the budget.

        A merge in progress ends without a commit.
        """
        if self._thread is not None:
            self._closing.set()
            self._wake.set()
            self._thread.join(STOP_SECONDS_MAX)
        else:
            self._maintain_within_budget()
        self._reporter.close()

    def _maintain_within_budget(self) -> None:
        try:
            while not self._is_stopping and self.maintain_next() <= 0:
                pass
        except Exception:  # everything has landed, which is what the caller needs
            logger.exception("pipeline %s: table maintenance failed unexpectedly", self._pipeline)

    # Called in the maintainer's thread

    def _run(self) -> None:
        while not self._is_stopping:
            self._wake.clear()
            try:
                wait_s = self.maintain_next()
            except Exception:  # landing must continue
                logger.exception("pipeline %s: table maintenance failed unexpectedly; retrying", self._pipeline)
                wait_s = RETRY_SECONDS_MIN
            self._wake.wait(wait_s)

    def maintain_next(self) -> float:
        """Examine the tables that are due, and execute the maintenance with the largest benefit.

        Returns:
            The number of seconds until more may be due; 0 if it may be due now.
        """
        now_s = self._monotonic()
        if not self._budget.is_available(now_s):
            return self._budget.compute_wait(now_s)
        with self._lock:
            tables = list(self._tables.values())
        random.shuffle(tables)  # a short run may not have the time for all of them
        due = sorted((each for each in tables if each.is_due(now_s)), key=lambda each: each.rounds == 0)
        for table in due:
            if self._is_stopping or not self._budget.is_available(self._monotonic()):
                break
            self._examine(table)
        planned = [each for each in tables if each.plan is not None and not each.is_paused]
        if planned and not self._is_stopping:
            self._maintain(max(planned, key=_get_priority))
            return 0.0
        next_s = min((each.next_check_s for each in tables), default=now_s + CHECK_SECONDS_MAX)
        return max(0.0, next_s - self._monotonic(), self._budget.compute_wait(self._monotonic()))

    def _examine(self, table: _TrackedTable) -> None:
        """Plan what a table needs."""
        started_s = self._monotonic()
        with self._lock:
            table.rounds, table.next_check_s = 0, started_s + CHECK_SECONDS_MAX
        try:
            table.settings = self._read_settings(table.topic)
            if table.settings.is_enabled:
                if table.opened is None:
                    table.opened = open_table(table.uri, self._storage_options)
                plans = plan_maintenance(
                    table.opened.statistics(),
                    table.settings,
                    maintainer=self._executor.maintainer,
                    now_ms=time.time_ns() // 1_000_000,
                )
                table.plan = plans[0] if plans else None
        except TableMissingError:
            table.opened = None  # most topics have no dead-letter records
        except (ChronikError, OSError) as error:
            self._record_failure(table, None, error, 0.0)
        finally:
            self._budget.charge(self._monotonic() - started_s)

    def _maintain(self, table: _TrackedTable) -> None:
        plan, table.plan = table.plan, None
        assert plan is not None
        assert table.opened is not None
        assert table.settings is not None
        started_s = self._monotonic()
        table.next_check_s = started_s  # more may be due afterwards
        try:
            result = self._executor.execute(table.opened, plan, table.settings)
        except MaintenanceStoppedError:
            return
        except Exception as error:
            if not isinstance(error, (ChronikError, OSError)):
                logger.exception("table %s: %s failed unexpectedly; it will be retried", table.uri, plan.action)
            self._record_failure(table, plan, error, self._monotonic() - started_s)
            return
        finally:
            self._budget.charge(self._monotonic() - started_s)
        table.failures = 0
        self._report(table, plan, result, self._monotonic() - started_s)

    def _record_failure(
        self, table: _TrackedTable, plan: PlannedMaintenance | None, error: Exception, seconds: float
    ) -> None:
        doublings = min(table.failures, RETRY_DOUBLINGS_MAX)
        table.failures += 1
        table.opened = None
        table.next_check_s = self._monotonic() + RETRY_SECONDS_MIN * 2**doublings
        reason = str(error) or type(error).__name__
        self._report(table, plan, MaintenanceResult(MaintenanceOutcome.FAILED), seconds, reason)

    def _report(
        self,
        table: _TrackedTable,
        plan: PlannedMaintenance | None,
        result: MaintenanceResult,
        seconds: float,
        error: str | None = None,
    ) -> None:
        report = MaintenanceReport(
            pipeline=self._pipeline,
            topic=table.topic,
            table=table.uri,
            action="examination" if plan is None else plan.action.value,
            outcome=result.outcome.value,
            files_removed=result.compacted.files_removed,
            files_added=result.compacted.files_added,
            bytes_before=result.compacted.bytes_before,
            bytes_after=result.compacted.bytes_after,
            files_deleted=result.files_deleted,
            versions_expired=result.versions_expired,
            seconds=seconds,
            error=error,
            at_ms=time.time_ns() // 1_000_000,
        )
        self._reporter.report_maintenance(report)

    # Merges

    def _run_merges(self, merges: Sequence[MergeTask]) -> list[tuple[WrittenFile, ...]]:
        """Run merges on a part of Spark's cores if it is running, else in this thread."""
        spark = self._spark()
        parallelism = 0 if spark is None else spark.parallelism()
        if spark is None or parallelism < 2:
            return self._merge_in_thread(merges)
        written: list[tuple[WrittenFile, ...]] = []
        step = max(1, parallelism // SPARK_TASKS_DIVISOR)
        with _discarding_files(merges, written):
            for first in range(0, len(merges), step):
                self._raise_if_stopping()
                written += spark.run(merge_table_files, merges[first : first + step])
        return written

    def _merge_in_thread(self, merges: Sequence[MergeTask]) -> list[tuple[WrittenFile, ...]]:
        written: list[tuple[WrittenFile, ...]] = []
        with _discarding_files(merges, written):
            for merge in merges:
                written.append(merge_table_files(merge, self._raise_if_stopping))
        return written

    def _raise_if_stopping(self) -> None:
        if self._is_stopping:
            raise MaintenanceStoppedError("the pipeline stops")


@contextmanager
def _discarding_files(merges: Sequence[MergeTask], written: list[tuple[WrittenFile, ...]]) -> Iterator[None]:
    """Delete the files of completed merges if another merge fails."""
    try:
        yield
    except BaseException:
        if written:
            merges[0].table.storage.discard_files(file.path for files in written for file in files)
        raise


def _get_priority(table: _TrackedTable) -> tuple[bool, float]:
    assert table.plan is not None
    return table.plan.priority

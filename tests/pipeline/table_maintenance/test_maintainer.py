"""Tests of the maintainer of a running pipeline's tables, with real tables and reports as a driver sends them."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from chronik.client.errors import RequestTimedOut
from chronik.errors import ConfigError
from chronik.pipeline import failpoints
from chronik.pipeline.journal.reports import DriverRole, MaintenanceReport, ProgressReporter, TopicReport
from chronik.pipeline.table_maintenance.maintainer import TableMaintainer
from chronik.pipeline.table_maintenance.policy import FILES_PER_MERGE, MaintenanceSettings
from chronik.pipeline.table_maintenance.settings import (
    FILE_BYTES_CONFIG,
    MAINTENANCE_CONFIG,
    RETENTION_CONFIG,
    MaintenanceOptions,
)
from chronik.pipeline.tables.commit_plan import PartitionRange
from chronik.pipeline.tables.layout import TableKind
from chronik.pipeline.tables.table_statistics import MaintenanceKind, MaintenanceRecord
from chronik.pipeline_journal import LandingState
from tests.pipeline.table_fixtures import (
    TOPIC,
    build_record_columns,
    commit_rows,
    create_empty_table,
    expected_offsets,
    read_offsets,
)

WAIT_SECONDS = 600.0


class RecordingReporter(ProgressReporter):
    """A reporter that records maintenance reports."""

    def __init__(self) -> None:
        self.reports: list[MaintenanceReport] = []
        self.topics: list[TopicReport] = []
        self.roles: list[DriverRole] = []
        self.is_closed = False
        self._changed = threading.Condition()

    def report(self, report: TopicReport) -> None:
        self.topics.append(report)

    def report_role(self, role: DriverRole) -> None:
        self.roles.append(role)

    def report_maintenance(self, report: MaintenanceReport) -> None:
        with self._changed:
            self.reports.append(report)
            self._changed.notify_all()

    def close(self) -> None:
        self.is_closed = True

    def wait_for(self, condition: Callable[[list[MaintenanceReport]], bool]) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: condition(self.reports), WAIT_SECONDS), self.reports


class ManualTime:
    """A monotonic clock that tests advance."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class PipelineTables:
    """A table and its dead-letter table, whose rounds are reported to a maintainer."""

    def __init__(self, root: Path) -> None:
        self.reporter = RecordingReporter()
        self.table = create_empty_table(root, TableKind.DECODED)
        self.dead_letters = create_empty_table(root, TableKind.DEAD_LETTERS)
        self.clock = ManualTime()
        self.settings = MaintenanceSettings()
        self.stop = threading.Event()

    def read_settings(self, topic: str) -> MaintenanceSettings:
        assert topic == TOPIC
        return self.settings

    def maintainer(self, **options: object) -> TableMaintainer:
        """Return a maintainer without a thread."""
        options = {"once": True, "monotonic": self.clock, "stop": self.stop} | options
        return TableMaintainer("lands", self.reporter, self.read_settings, **options)  # type: ignore[arg-type]

    def land(self, count: int = FILES_PER_MERGE) -> int:
        """Commit rounds of one row each, and return the number of rows."""
        start = self.table.next_offsets().get(0, 0)
        for offset in range(start, start + count):
            commit_rows(self.table, 0, build_record_columns([offset], [b'{"n": 1}']))
        return start + count

    def report(self, maintainer: TableMaintainer, rounds: int = 1, **fields: object) -> None:
        values: dict[str, Any] = {"state": LandingState.WAITING, "round_rows": 1} | fields
        report = TopicReport("lands", TOPIC, self.table.uri, next_offsets={}, high_watermarks={}, **values)
        for _ in range(rounds):
            maintainer.report(report)

    def actions(self) -> list[tuple[str, str]]:
        return [(report.action, report.outcome) for report in self.reporter.reports]

    def count_files(self) -> int:
        return len(self.table.snapshot().file_uris)


@pytest.fixture
def tables(tmp_path: Path) -> PipelineTables:
    return PipelineTables(tmp_path)


def test_maintainer_compacts_in_its_thread_while_rounds_land(tables: PipelineTables) -> None:
    maintainer = TableMaintainer("lands", tables.reporter, tables.read_settings)
    for merges in (1, 2):
        rows = tables.land()
        tables.report(maintainer, FILES_PER_MERGE)
        tables.reporter.wait_for(lambda reports, merges=merges: len(reports) >= merges)  # type: ignore[misc]
    maintainer.close()
    assert tables.reporter.is_closed
    assert len(tables.reporter.topics) == 2 * FILES_PER_MERGE, "reports are passed on"
    assert set(tables.actions()) == {("compaction", "done")}
    assert tables.count_files() <= 2
    assert read_offsets(tables.table.snapshot()) == expected_offsets(PartitionRange(0, 0, rows))


def test_maintenance_with_once_runs_when_everything_has_landed(tables: PipelineTables) -> None:
    tables.land()
    maintainer = tables.maintainer()
    tables.report(maintainer)
    tables.clock.now_s = 1.0
    assert tables.count_files() == FILES_PER_MERGE
    maintainer.close()
    assert (tables.count_files(), tables.actions()) == (1, [("compaction", "done")])
    record = tables.table.statistics().last_compaction
    assert record is not None
    assert record.lease_until_ms == record.at_ms, "another run may continue immediately"


def test_stopped_run_does_not_maintain_tables(tables: PipelineTables) -> None:
    tables.land()
    maintainer = tables.maintainer()
    tables.report(maintainer)
    tables.clock.now_s = 1.0
    tables.stop.set()
    maintainer.close()
    assert (tables.count_files(), tables.actions()) == (FILES_PER_MERGE, [])


def test_maintenance_waits_until_its_share_of_time_is_available(tables: PipelineTables) -> None:
    tables.land()
    maintainer = tables.maintainer(hit_failpoint=lambda name: advance_at_failpoint(tables.clock, name))
    tables.report(maintainer)
    maintainer.maintain_next()
    assert tables.actions() == [], "no time has passed yet"
    tables.clock.now_s = 10.0
    assert maintainer.maintain_next() == 0.0
    assert tables.actions() == [("compaction", "done")]
    tables.land()
    tables.report(maintainer, FILES_PER_MERGE)
    wait_s = maintainer.maintain_next()
    assert wait_s == pytest.approx(440.0, abs=1.0), "50 s of maintenance are 10 % of 500 s, of which 60 s have passed"
    assert tables.count_files() == FILES_PER_MERGE + 1
    tables.clock.now_s += wait_s + 0.1
    maintainer.maintain_next()
    assert tables.count_files() == 1


def advance_at_failpoint(clock: ManualTime, name: str) -> None:
    """Let a compaction take 50 s."""
    if name == failpoints.COMPACTION_FILES:
        clock.now_s += 50.0


def test_largest_benefit_of_all_tables_comes_first(tables: PipelineTables) -> None:
    tables.land()
    for offset in range(FILES_PER_MERGE + 4):
        commit_rows(tables.dead_letters, 0, build_record_columns([offset], [b"bad"]))
    maintainer = tables.maintainer()
    tables.report(maintainer)
    tables.clock.now_s = 1.0
    maintainer.maintain_next()
    assert [report.table for report in tables.reporter.reports] == [tables.dead_letters.uri]
    maintainer.maintain_next()
    assert [report.table for report in tables.reporter.reports] == [tables.dead_letters.uri, tables.table.uri]


def test_paused_stopped_and_excluded_topics_are_not_maintained(tables: PipelineTables) -> None:
    tables.land()
    maintainer = tables.maintainer()
    tables.report(maintainer)
    tables.report(maintainer, state=LandingState.PAUSED, round_rows=0)
    tables.clock.now_s = 1.0
    maintainer.maintain_next()
    tables.settings = MaintenanceSettings(is_enabled=False)
    tables.report(maintainer)
    maintainer.maintain_next()
    assert tables.actions() == []


def test_tables_of_standby_driver_are_not_maintained(tables: PipelineTables) -> None:
    tables.land()
    maintainer = tables.maintainer()
    tables.report(maintainer)
    maintainer.report_role(DriverRole.STANDBY)
    tables.clock.now_s = 1.0
    maintainer.maintain_next()
    assert (tables.actions(), tables.reporter.roles) == ([], [DriverRole.STANDBY])


def test_table_that_another_process_maintains_is_left(tables: PipelineTables) -> None:
    tables.land()
    record = MaintenanceRecord(MaintenanceKind.REBUILD, 0, "elsewhere:1", 2**62)
    tables.table.record_maintenance(record)
    maintainer = tables.maintainer()
    tables.report(maintainer)
    tables.clock.now_s = 1.0
    maintainer.close()
    assert (tables.actions(), tables.count_files()) == ([], FILES_PER_MERGE)


def test_stop_during_merge_deletes_its_file(tables: PipelineTables, tmp_path: Path) -> None:
    tables.land()
    before = set(tmp_path.rglob("*.parquet"))
    maintainer = tables.maintainer()
    tables.report(maintainer)
    tables.clock.now_s = 1.0
    calls = []

    class StopsAtSecondCheck(threading.Event):
        def is_set(self) -> bool:
            calls.append(1)
            return len(calls) > 3

    maintainer._stop = StopsAtSecondCheck()
    maintainer.maintain_next()
    assert len(calls) > 3, "the merge checks whether it should stop"
    assert tables.actions() == []
    assert set(tmp_path.rglob("*.parquet")) == before


def test_failed_merge_is_reported_and_retried_later(tables: PipelineTables) -> None:
    rows = tables.land()
    lost = Path(tables.table.snapshot().file_uris[0].removeprefix("file://"))
    content = lost.read_bytes()
    lost.write_bytes(b"damaged")
    maintainer = tables.maintainer()
    tables.report(maintainer)
    tables.clock.now_s = 1.0
    maintainer.close()
    (report,) = tables.reporter.reports
    assert (report.action, report.outcome, report.topic) == ("compaction", "failed", TOPIC)
    assert report.error
    tables.report(maintainer, FILES_PER_MERGE)
    assert maintainer.maintain_next() > 0.0
    assert len(tables.reporter.reports) == 1, "not before the delay"
    lost.write_bytes(content)
    os.sync()
    tables.clock.now_s += 20.0
    maintainer.maintain_next()
    assert tables.actions()[1:] == [("compaction", "done")]
    assert read_offsets(tables.table.snapshot()) == expected_offsets(PartitionRange(0, 0, rows))


def test_unavailable_settings_are_reported_as_failure(tables: PipelineTables) -> None:
    def fail(topic: str) -> MaintenanceSettings:
        raise RequestTimedOut("no broker responds")

    tables.land()
    maintainer = TableMaintainer("lands", tables.reporter, fail, once=True, monotonic=tables.clock)
    tables.report(maintainer)
    tables.clock.now_s = 1.0
    maintainer.close()
    assert {(report.action, report.error) for report in tables.reporter.reports} == {
        ("examination", "no broker responds")
    }


def test_unexpected_error_of_maintenance_does_not_fail_run(
    tables: PipelineTables, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(topic: str) -> MaintenanceSettings:
        raise ValueError("a bug")

    maintainer = TableMaintainer("lands", tables.reporter, fail, once=True, monotonic=tables.clock)
    tables.report(maintainer)
    tables.clock.now_s = 1.0
    maintainer.close()
    assert tables.reporter.is_closed
    assert "pipeline lands: table maintenance failed unexpectedly" in caplog.text


# Settings


def test_options_precede_topic_configs_and_defaults() -> None:
    configs = {MAINTENANCE_CONFIG: "false", FILE_BYTES_CONFIG: "4096", RETENTION_CONFIG: "3600000"}
    assert MaintenanceOptions().resolve({}) == MaintenanceSettings()
    assert MaintenanceOptions().resolve(configs) == MaintenanceSettings(False, 4096, 3_600_000)
    options = MaintenanceOptions(True, 8192, 2)
    assert options.resolve(configs) == MaintenanceSettings(True, 8192, 7_200_000)


@pytest.mark.parametrize(
    ("name", "value"),
    [(FILE_BYTES_CONFIG, "1023"), (FILE_BYTES_CONFIG, "big"), (RETENTION_CONFIG, "3599999"), (RETENTION_CONFIG, "")],
)
def test_invalid_config_names_key_and_value(name: str, value: str) -> None:
    if not value:
        assert MaintenanceOptions().resolve({name: value}) == MaintenanceSettings(), "empty means the default"
        return
    with pytest.raises(ConfigError, match=f"invalid {name} = '?{value}"):
        MaintenanceOptions().resolve({name: value})


def test_invalid_options_are_rejected() -> None:
    with pytest.raises(ConfigError, match="file_bytes = 1"):
        MaintenanceOptions(file_bytes=1)
    with pytest.raises(ConfigError, match="retention_hours = 0"):
        MaintenanceOptions(retention_hours=0)

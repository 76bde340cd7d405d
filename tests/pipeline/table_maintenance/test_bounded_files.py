"""A table with many small rounds keeps few files: live and unused data files and log entries stay bounded.

The test commits to a real Delta table. Its rounds are an hour apart: log entries and data files get the modification
times of their rounds, and retentions, which delta-rs compares with the real time, are extended accordingly.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from chronik.pipeline.journal.reports import ProgressReporter, TopicReport
from chronik.pipeline.table_maintenance import execution, maintainer, merges
from chronik.pipeline.table_maintenance.maintainer import TableMaintainer
from chronik.pipeline.table_maintenance.policy import (
    FILES_PER_MERGE,
    HOUR_MS,
    TIERS_MAX,
    MaintenanceSettings,
)
from chronik.pipeline.tables.commit_plan import PartitionRange
from chronik.pipeline.tables.delta import table as delta
from chronik.pipeline.tables.delta.table import CHECKPOINT_INTERVAL, DeltaTopicTable
from chronik.pipeline.tables.table_files import ORPHAN_HOURS_MIN
from chronik.pipeline.tables.table_statistics import MaintenanceKind, MaintenanceRecord
from chronik.pipeline_journal import LandingState
from tests.pipeline.table_fixtures import TOPIC, expected_offsets, open_test_table, read_offsets, write_task_output
from tests.run_size import sized

ROUNDS = sized(60, 300)
RETENTION_HOURS = sized(3, 24)
VACUUM_COMMITS = 7
"""Maximum number of log entries of a vacuum: its retention, the start and end of two passes, and its record."""


@dataclass
class SimulatedTime:
    """The time of the current round, used as the module `time`. Rounds are an hour apart, and the last one is now."""

    hours_ago: int = ROUNDS

    def time(self) -> float:
        return time.time() - self.hours_ago * 3600

    def time_ns(self) -> int:
        return int(self.time() * 1e9)

    def monotonic(self) -> float:
        return (ROUNDS - self.hours_ago) * 3600.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimulatedTime:
    clock = SimulatedTime()
    for module in (maintainer, execution, merges):
        monkeypatch.setattr(module, "time", clock)
    monkeypatch.setattr(delta, "time", SimpleNamespace(time=clock.time, sleep=time.sleep))
    vacuum, expire = DeltaTopicTable.vacuum_files, DeltaTopicTable.expire_versions

    def vacuum_files(self: DeltaTopicTable, hours: int, **options: Any) -> list[str]:
        return vacuum(self, hours + clock.hours_ago, **options)

    monkeypatch.setattr(DeltaTopicTable, "vacuum_files", vacuum_files)
    monkeypatch.setattr(DeltaTopicTable, "expire_versions", lambda self, hours: expire(self, hours + clock.hours_ago))
    return clock


def set_times_of_new_files(directory: Path, seen: set[Path], clock: SimulatedTime) -> None:
    for path in set(directory.rglob("*")) - seen:
        if path.is_file():
            os.utime(path, (clock.time(), clock.time()))
            seen.add(path)


def count_unused_files(directory: Path, live: int) -> int:
    return len(list(directory.glob("_date=*/*.parquet"))) - live


def test_small_rounds_leave_bounded_files_and_log_entries(tmp_path: Path, clock: SimulatedTime) -> None:
    table = open_test_table(tmp_path)
    table.record_maintenance(MaintenanceRecord(MaintenanceKind.VACUUM, clock.time_ns() // 1_000_000, "earlier:1"))
    settings = MaintenanceSettings(retention_ms=RETENTION_HOURS * HOUR_MS)
    maintaining = TableMaintainer(
        "lands", ProgressReporter(), lambda topic: settings, once=True, monotonic=clock.monotonic
    )
    seen: set[Path] = set()
    set_times_of_new_files(tmp_path, seen, clock)
    vacuum_hours = settings.vacuum_interval_ms / HOUR_MS
    window_hours = RETENTION_HOURS + vacuum_hours + 1
    commits_per_hour = 1 + 1 / FILES_PER_MERGE + VACUUM_COMMITS / vacuum_hours
    # The log starts at a checkpoint, and each interval between checkpoints adds the entries and one checkpoint.
    entries_max = window_hours * commits_per_hour * 1.1 + 2 * int(CHECKPOINT_INTERVAL) + 5
    unused_max = (max(RETENTION_HOURS, ORPHAN_HOURS_MIN) + vacuum_hours + 1) * 1.5 + FILES_PER_MERGE
    live_max = FILES_PER_MERGE + TIERS_MAX
    for number in range(ROUNDS):
        clock.hours_ago = ROUNDS - number - 1
        table.commit([write_task_output(tmp_path, PartitionRange(0, 5 * number, 5 * number + 5))])
        if number % 10 == 0:
            write_task_output(tmp_path, PartitionRange(0, 10**6, 10**6 + 1))  # an orphan of a killed task
        set_times_of_new_files(tmp_path, seen, clock)
        report = TopicReport("lands", TOPIC, table.uri, LandingState.WAITING, {}, {}, round_rows=5)
        maintaining.report(report)
        while maintaining.maintain_next() <= 0:
            set_times_of_new_files(tmp_path, seen, clock)
        live = len(table.files().files)
        entries = len([path for path in (tmp_path / "_delta_log").iterdir() if path.is_file()])
        assert live <= live_max, f"round {number}"
        assert entries <= entries_max, f"round {number}"
        assert count_unused_files(tmp_path, live) <= unused_max, f"round {number}"
    assert 2 * live_max < ROUNDS, "without maintenance, the limits are exceeded"
    assert ROUNDS * commits_per_hour > 1.5 * entries_max
    statistics = table.statistics()
    assert statistics.last_vacuum is not None
    assert statistics.last_vacuum.at_ms > clock.time_ns() // 1_000_000 - settings.vacuum_interval_ms - HOUR_MS
    assert read_offsets(table.snapshot()) == expected_offsets(PartitionRange(0, 0, 5 * ROUNDS))

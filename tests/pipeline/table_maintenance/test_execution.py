"""Tests of planned maintenance on Delta tables: rows never change, also if it is killed or conflicts."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from chronik.pipeline import failpoints
from chronik.pipeline.table_maintenance.execution import MaintenanceExecutor, MaintenanceOutcome
from chronik.pipeline.table_maintenance.merges import merge_table_files
from chronik.pipeline.table_maintenance.policy import (
    HOUR_MS,
    MaintenanceAction,
    MaintenanceSettings,
    PlannedMaintenance,
    plan_maintenance,
)
from chronik.pipeline.tables.catalog import open_table
from chronik.pipeline.tables.commit_plan import PartitionRange
from chronik.pipeline.tables.delta import table as delta
from chronik.pipeline.tables.table_files import ORPHAN_HOURS_MIN
from chronik.pipeline.tables.table_statistics import MaintenanceKind
from chronik.pipeline.tables.topic_table import TopicTable
from tests.pipeline.table_fixtures import (
    compact_table,
    expected_offsets,
    open_test_table,
    read_offsets,
    write_task_output,
)

ME = "here:1"
SETTINGS = MaintenanceSettings(retention_ms=HOUR_MS)
VACUUM = PlannedMaintenance(MaintenanceAction.VACUUM, 1.0, 0)
HOUR_SECONDS = 3600


class SimulatedKillError(BaseException):
    """Ends a maintenance at a failpoint, as if its process was killed."""


def build_executor(hit_failpoint: Callable[[str], None] = lambda name: None) -> MaintenanceExecutor:
    return MaintenanceExecutor(ME, lambda merges: [merge_table_files(each) for each in merges], 60_000, hit_failpoint)


def plan_next(table: TopicTable, maintainer: str = ME) -> PlannedMaintenance:
    return plan_maintenance(table.statistics(), SETTINGS, maintainer=maintainer, now_ms=time.time_ns() // 1_000_000)[0]


def commit_ranges(directory: Path, table: TopicTable, count: int = 8, first: int = 0) -> None:
    for number in range(first, first + count):
        table.commit([write_task_output(directory, PartitionRange(0, 10 * number, 10 * number + 10))])


def data_files(directory: Path) -> set[Path]:
    return set(directory.glob("_date=*/*.parquet"))


def set_age(path: Path, hours: float) -> None:
    then = time.time() - hours * HOUR_SECONDS
    os.utime(path, (then, then))


def test_compaction_merges_all_groups_in_one_commit_with_record(tmp_path: Path) -> None:
    table = open_test_table(tmp_path)
    commit_ranges(tmp_path, table)
    before = table.snapshot()
    result = build_executor().execute(table, plan_next(table), SETTINGS)
    assert result.outcome is MaintenanceOutcome.DONE
    assert (result.compacted.files_removed, result.compacted.files_added) == (8, 1)
    after, found = table.snapshot(), open_table(str(tmp_path)).statistics()
    assert (after.version, len(after.file_uris)) == (before.version + 1, 1)
    assert read_offsets(after) == expected_offsets(PartitionRange(0, 0, 80))
    assert found.last_compaction is not None
    assert (found.last_compaction.maintainer, found.last_compaction.files_removed) == (ME, 8)
    assert found.last_compaction.lease_until_ms == found.last_compaction.at_ms + 60_000
    assert plan_maintenance(found, SETTINGS, maintainer=ME, now_ms=found.last_compaction.at_ms) == []


def test_compaction_is_abandoned_if_a_file_was_replaced(tmp_path: Path) -> None:
    table = open_test_table(tmp_path)
    commit_ranges(tmp_path, table)
    plan = plan_next(table)
    executor = build_executor(lambda name: compact_other(name, tmp_path))
    result = executor.execute(table, plan, SETTINGS)
    assert result.outcome is MaintenanceOutcome.ABANDONED
    snapshot = table.snapshot()
    assert read_offsets(snapshot) == expected_offsets(PartitionRange(0, 0, 80))
    assert len(data_files(tmp_path)) == 8 + len(snapshot.file_uris) == 9, "the abandoned file is deleted"
    record = table.statistics().last_compaction
    assert record is not None
    assert record.maintainer != ME, "only the other compaction is recorded"


def compact_other(name: str, directory: Path) -> None:
    if name == failpoints.COMPACTION_FILES:
        assert compact_table(str(directory)).files_removed == 8


def test_rows_that_land_during_compaction_are_kept(tmp_path: Path) -> None:
    table = open_test_table(tmp_path)
    commit_ranges(tmp_path, table)
    landing = open_test_table(tmp_path)
    executor = build_executor(
        lambda name: commit_ranges(tmp_path, landing, 2, first=8) if name == failpoints.COMPACTION_FILES else None
    )
    assert executor.execute(table, plan_next(table), SETTINGS).outcome is MaintenanceOutcome.DONE
    snapshot = table.snapshot()
    assert (len(snapshot.file_uris), snapshot.next_offsets) == (3, {0: 100})
    assert read_offsets(snapshot) == expected_offsets(PartitionRange(0, 0, 100))


def test_vacuum_expires_versions_and_deletes_replaced_files_and_orphans(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = open_test_table(tmp_path)
    commit_ranges(tmp_path, table, 24)
    two_hours_ago = SimpleNamespace(time=lambda: time.time() - 2 * HOUR_SECONDS, sleep=time.sleep)
    with monkeypatch.context() as patch:
        patch.setattr(delta, "time", two_hours_ago)
        build_executor().execute(table, plan_next(table), SETTINGS)
    for orphans_age in (ORPHAN_HOURS_MIN - 1, ORPHAN_HOURS_MIN + 1):
        orphan = tmp_path / write_task_output(tmp_path, PartitionRange(0, 500, 501)).files[0].path
        set_age(orphan, orphans_age)
    for entry in (tmp_path / "_delta_log").iterdir():
        if entry.is_file():
            set_age(entry, 2)
    commit_ranges(tmp_path, table, 1, first=24)
    result = build_executor().execute(table, VACUUM, SETTINGS)
    assert (result.outcome, result.files_deleted) == (MaintenanceOutcome.DONE, 24 + 1)
    assert result.versions_expired > 10
    record = table.statistics().last_vacuum
    assert record is not None
    assert (record.kind, record.files_deleted) == (MaintenanceKind.VACUUM, 25)
    assert record.versions_expired == result.versions_expired
    snapshot = table.snapshot()
    assert read_offsets(snapshot) == expected_offsets(PartitionRange(0, 0, 250))
    assert len(data_files(tmp_path)) == len(snapshot.file_uris) + 1, "a young orphan may yet be committed"


def test_vacuum_within_retention_deletes_nothing(tmp_path: Path) -> None:
    table = open_test_table(tmp_path)
    commit_ranges(tmp_path, table)
    build_executor().execute(table, plan_next(table), SETTINGS)
    result = build_executor().execute(table, VACUUM, SETTINGS)
    assert (result.files_deleted, result.versions_expired) == (0, 0)
    assert len(data_files(tmp_path)) == 9


@pytest.mark.parametrize("failpoint", failpoints.MAINTENANCE_FAILPOINTS)
def test_killed_maintenance_keeps_rows_and_is_completed_later(tmp_path: Path, failpoint: str) -> None:
    table = open_test_table(tmp_path)
    commit_ranges(tmp_path, table)

    def kill(name: str) -> None:
        if name == failpoint:
            raise SimulatedKillError

    plan = VACUUM if failpoint in (failpoints.VERSION_EXPIRY, failpoints.VACUUM_FILES) else plan_next(table)
    with pytest.raises(SimulatedKillError):
        build_executor(kill).execute(table, plan, SETTINGS)
    assert read_offsets(table.snapshot()) == expected_offsets(PartitionRange(0, 0, 80))
    commit_ranges(tmp_path, open_test_table(tmp_path), 8, first=8)
    restarted = open_test_table(tmp_path)
    while plans := plan_maintenance(
        restarted.statistics(), SETTINGS, maintainer=ME, now_ms=time.time_ns() // 1_000_000
    ):
        assert build_executor().execute(restarted, plans[0], SETTINGS).outcome is MaintenanceOutcome.DONE
    assert build_executor().execute(restarted, VACUUM, SETTINGS).outcome is MaintenanceOutcome.DONE
    snapshot = restarted.snapshot()
    assert read_offsets(snapshot) == expected_offsets(PartitionRange(0, 0, 160))
    assert len(snapshot.file_uris) <= 2


def test_metadata_compaction_writes_checkpoint(tmp_path: Path) -> None:
    table = open_test_table(tmp_path)
    commit_ranges(tmp_path, table, 5)
    plan = PlannedMaintenance(MaintenanceAction.METADATA, 1.0, 0)
    assert build_executor().execute(table, plan, SETTINGS).outcome is MaintenanceOutcome.DONE
    assert table.statistics().metadata_files == 0

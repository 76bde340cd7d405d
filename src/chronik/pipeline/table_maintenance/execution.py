"""Execution of a planned maintenance on a table. Concurrent commits are safe: the maintenance is then abandoned.

A killed process leaves the table unchanged or completely maintained. Files that it has written but not committed are
orphans, which a later vacuum deletes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from chronik.pipeline.failpoints import COMPACTION_COMMIT, COMPACTION_FILES, VACUUM_FILES, VERSION_EXPIRY
from chronik.pipeline.table_maintenance.merges import (
    NOTHING_COMPACTED,
    CompactionStats,
    MergeTask,
    build_compaction_record,
    vacuum_table,
)
from chronik.pipeline.table_maintenance.policy import (
    MaintenanceAction,
    MaintenanceSettings,
    PlannedMaintenance,
)
from chronik.pipeline.tables.commit_plan import WrittenFile
from chronik.pipeline.tables.table_statistics import MaintenanceKind, MaintenanceRecord
from chronik.pipeline.tables.topic_table import TopicTable


class MergeRunner(Protocol):
    """A function that runs merges and returns the files that each has written."""

    def __call__(self, merges: Sequence[MergeTask]) -> list[tuple[WrittenFile, ...]]: ...


class MaintenanceOutcome(StrEnum):
    """The outcome of a maintenance."""

    DONE = "done"
    ABANDONED = "abandoned"
    """A concurrent commit has replaced some of the files. Nothing was changed."""
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class MaintenanceResult:
    """The result of a maintenance that did not fail."""

    outcome: MaintenanceOutcome
    compacted: CompactionStats = NOTHING_COMPACTED
    files_deleted: int = 0
    versions_expired: int = 0


@dataclass(frozen=True, slots=True)
class MaintenanceExecutor:
    """Executes planned maintenance in the name of one process."""

    maintainer: str
    """The process that is recorded in the tables."""
    run_merges: MergeRunner
    lease_ms: int
    """Time for which other processes then leave the table to this one."""
    hit_failpoint: Callable[[str], None] = lambda name: None

    def execute(self, table: TopicTable, plan: PlannedMaintenance, settings: MaintenanceSettings) -> MaintenanceResult:
        """Execute a planned maintenance.

        Raises:
            TableError, TableCommitError, OSError: The table cannot be used or changed.
            TaskFailedError: A merge failed.
        """
        match plan.action:
            case MaintenanceAction.COMPACTION:
                return self._compact(table, plan, settings)
            case MaintenanceAction.METADATA:
                table.compact_metadata()
                return MaintenanceResult(MaintenanceOutcome.DONE)
            case MaintenanceAction.VACUUM:
                return self._vacuum(table, settings)

    def _compact(self, table: TopicTable, plan: PlannedMaintenance, settings: MaintenanceSettings) -> MaintenanceResult:
        descriptor = table.descriptor()
        merges = [MergeTask(descriptor.with_files(*group), settings.file_bytes) for group in plan.groups]
        written = [file for files in self.run_merges(merges) for file in files]
        removed = [file for group in plan.groups for file in group]
        self.hit_failpoint(COMPACTION_FILES)
        stats = CompactionStats(
            len(removed),
            len(written),
            sum(file.size_bytes for file in removed),
            sum(file.size_bytes for file in written),
        )
        record = build_compaction_record(self.maintainer, stats, self.lease_ms)
        if not table.replace_files(removed, written, data_change=False, record=record):
            return MaintenanceResult(MaintenanceOutcome.ABANDONED)
        self.hit_failpoint(COMPACTION_COMMIT)
        return MaintenanceResult(MaintenanceOutcome.DONE, stats)

    def _vacuum(self, table: TopicTable, settings: MaintenanceSettings) -> MaintenanceResult:
        expired = table.expire_versions(settings.retention_hours)
        self.hit_failpoint(VERSION_EXPIRY)
        deleted = len(vacuum_table(table, keep_hours=settings.retention_hours))
        self.hit_failpoint(VACUUM_FILES)
        now_ms = time.time_ns() // 1_000_000
        table.record_maintenance(
            MaintenanceRecord(
                MaintenanceKind.VACUUM,
                now_ms,
                self.maintainer,
                now_ms + self.lease_ms,
                files_deleted=deleted,
                versions_expired=expired,
            )
        )
        return MaintenanceResult(MaintenanceOutcome.DONE, files_deleted=deleted, versions_expired=expired)

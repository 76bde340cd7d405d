"""Decisions of automatic table maintenance: what a table needs next, and how much time it may take. Pure functions.

    plan = plan_maintenance(table.statistics(), MaintenanceSettings(), maintainer="host:7", now_ms=now_ms)

Small files of a table partition are merged in size tiers: a merge takes at least `FILES_PER_MERGE` files of similar
size. Each merge therefore moves rows to files that are several times larger, and a row is rewritten only a few times
until its file has the target size. A partition that receives no rows any more is merged completely.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from chronik.limits import MIB
from chronik.pipeline.tables.parquet import FILE_BYTES_TARGET
from chronik.pipeline.tables.table_files import LiveFile
from chronik.pipeline.tables.table_statistics import TableStatistics

HOUR_MS: Final = 3_600_000
DAY_MS: Final = 24 * HOUR_MS

RETENTION_MS_DEFAULT: Final = 7 * DAY_MS
RETENTION_MS_MIN: Final = HOUR_MS
"""Minimum retention of replaced files, because running queries and jobs may still read them."""

FILES_PER_MERGE: Final = 8
"""Minimum number of files of similar size in a merge of a partition that still receives rows."""

TIERS_MAX: Final = 5
"""Maximum number of size tiers below the target size. All smaller files are in the last one."""

QUIET_MS: Final = HOUR_MS
"""Time without new files after which all small files of a partition are merged, although they may be few."""

STEP_BYTES_MAX: Final = 256 * MIB
"""Maximum total size of the files that one compaction merges, unless a single merge is larger. It limits the work that
is lost if a concurrent commit replaces one of the files."""
STEP_FILES_MAX: Final = 1024
"""Maximum number of files that one compaction merges."""

VACUUMS_PER_RETENTION: Final = 7
"""Number of vacuums within the retention time, which limits the unused files to slightly more than the retained."""
VACUUM_INTERVAL_MS_MAX: Final = DAY_MS

METADATA_FILES_MAX: Final = 200
"""Number of metadata files to open a table at which they are compacted. Commits usually keep them far below that."""

LEASE_MS: Final = 5 * 60_000
"""Time for which other processes leave a table to the process that has maintained it last."""

SHARE: Final = 0.1
"""Maximum part of the time in which a pipeline maintains its tables."""
CREDIT_SECONDS_MAX: Final = 30.0
"""Maximum unused maintenance time that accumulates, which limits the length of a burst after an idle time."""


class MaintenanceAction(StrEnum):
    """What a maintenance does."""

    COMPACTION = "compaction"
    """Merge small files."""
    METADATA = "metadata"
    """Compact the metadata that readers need to open the table."""
    VACUUM = "vacuum"
    """Expire old versions, and delete unused files."""


@dataclass(frozen=True, slots=True)
class MaintenanceSettings:
    """The maintenance settings of one table."""

    is_enabled: bool = True
    file_bytes: int = FILE_BYTES_TARGET
    """Target size of data files in bytes."""
    retention_ms: int = RETENTION_MS_DEFAULT
    """Time for which versions and replaced files are kept."""

    @property
    def retention_hours(self) -> int:
        """The retention in hours, rounded up, as tables expect it."""
        return -(-self.retention_ms // HOUR_MS)

    @property
    def vacuum_interval_ms(self) -> int:
        interval_ms = self.retention_ms // VACUUMS_PER_RETENTION
        return min(max(interval_ms, RETENTION_MS_MIN), VACUUM_INTERVAL_MS_MAX)


@dataclass(frozen=True, slots=True)
class PlannedMaintenance:
    """A maintenance that a table needs."""

    action: MaintenanceAction
    benefit: float
    """Estimated number of files that it removes."""
    due_ms: int
    """Time since which it is due, in milliseconds since the epoch."""
    is_urgent: bool = False
    """Whether it has been due for so long that it precedes larger benefits."""
    groups: tuple[tuple[LiveFile, ...], ...] = ()
    """The files to merge, each group into one file."""

    @property
    def priority(self) -> tuple[bool, float]:
        """The sort key by which the maintenance with the highest value runs first."""
        return self.is_urgent, self.benefit


def plan_maintenance(
    statistics: TableStatistics, settings: MaintenanceSettings, *, maintainer: str, now_ms: int
) -> list[PlannedMaintenance]:
    """Return what a table needs now, in descending priority; nothing if another process maintains the table."""
    if not settings.is_enabled or find_other_maintainer(statistics, maintainer, now_ms) is not None:
        return []
    planned = [*_plan_compaction(statistics, settings, now_ms), *_plan_metadata(statistics, now_ms)]
    vacuum_due_ms = compute_next_vacuum_ms(statistics, settings)
    if vacuum_due_ms <= now_ms:
        planned.append(_plan_vacuum(statistics, settings, vacuum_due_ms, now_ms))
    return sorted(planned, key=lambda each: each.priority, reverse=True)


def find_other_maintainer(statistics: TableStatistics, maintainer: str, now_ms: int) -> str | None:
    """Return the other process to which the table is left, or None."""
    for record in statistics.maintenance_records:
        if record.maintainer != maintainer and record.lease_until_ms > now_ms:
            return record.maintainer
    return None


def compute_next_vacuum_ms(statistics: TableStatistics, settings: MaintenanceSettings) -> int:
    """Return the time at which the next vacuum is due; nothing expires before the table is as old as the retention."""
    if statistics.last_vacuum is not None:
        return statistics.last_vacuum.at_ms + settings.vacuum_interval_ms
    return statistics.created_ms + settings.retention_ms


def _plan_vacuum(
    statistics: TableStatistics, settings: MaintenanceSettings, due_ms: int, now_ms: int
) -> PlannedMaintenance:
    last = statistics.last_vacuum
    oldest_ms = statistics.created_ms if last is None else last.at_ms - settings.retention_ms
    age_ms = max(1, now_ms - oldest_ms)
    expired = statistics.versions_kept * max(0, age_ms - settings.retention_ms) / age_ms
    is_urgent = now_ms - due_ms >= settings.vacuum_interval_ms
    return PlannedMaintenance(MaintenanceAction.VACUUM, max(1.0, expired), due_ms, is_urgent)


def _plan_metadata(statistics: TableStatistics, now_ms: int) -> Iterator[PlannedMaintenance]:
    if statistics.metadata_files >= METADATA_FILES_MAX:
        is_urgent = statistics.metadata_files >= 2 * METADATA_FILES_MAX
        yield PlannedMaintenance(MaintenanceAction.METADATA, statistics.metadata_files, now_ms, is_urgent)


# Compaction


def _plan_compaction(
    statistics: TableStatistics, settings: MaintenanceSettings, now_ms: int
) -> Iterator[PlannedMaintenance]:
    groups = list(group_files_to_merge(statistics.files, settings.file_bytes, now_ms))
    # Most files first, and of equally many files the smaller ones.
    groups.sort(key=lambda group: (-len(group), sum(file.size_bytes for file in group)))
    chosen = tuple(_limit_step(groups))
    if chosen:
        benefit = sum(len(group) - 1 for group in chosen)
        due_ms = min(max(file.written_ms for file in group) for group in chosen)
        yield PlannedMaintenance(MaintenanceAction.COMPACTION, benefit, due_ms, groups=chosen)


def _limit_step(groups: Iterable[tuple[LiveFile, ...]]) -> Iterator[tuple[LiveFile, ...]]:
    """Yield the first groups up to the maximum size of a step, but at least one."""
    step_bytes = files = 0
    for group in groups:
        step_bytes += sum(file.size_bytes for file in group)
        files += len(group)
        if files > len(group) and (step_bytes > STEP_BYTES_MAX or files > STEP_FILES_MAX):
            return
        yield group


def group_files_to_merge(files: Iterable[LiveFile], file_bytes: int, now_ms: int) -> Iterator[tuple[LiveFile, ...]]:
    """Group the small files of each partition into merges that are worth their cost. Files near the target are left.

    Files with adjacent offsets are in one group, so that a range of offsets remains in few row groups.
    """
    partitions: dict[tuple[Any, ...], list[LiveFile]] = {}
    quiet: dict[tuple[Any, ...], bool] = {}
    for file in files:
        is_quiet = file.written_ms <= now_ms - QUIET_MS
        quiet[file.partition_values] = quiet.get(file.partition_values, True) and is_quiet
        if is_small(file, file_bytes):
            partitions.setdefault(file.partition_values, []).append(file)
    for values, small in partitions.items():
        if quiet[values]:
            yield from _split_groups(small, file_bytes, files_min=2)
            continue
        tiers: dict[int, list[LiveFile]] = {}
        for file in small:
            tiers.setdefault(compute_tier(file.size_bytes, file_bytes), []).append(file)
        for tier in tiers.values():
            yield from _split_groups(tier, file_bytes, files_min=FILES_PER_MERGE)


def is_small(file: LiveFile, file_bytes: int) -> bool:
    """Return whether a file is so small that merging it is worthwhile."""
    return file.size_bytes < file_bytes * 3 // 4


def compute_tier(size_bytes: int, file_bytes: int) -> int:
    """Return how many merges of `FILES_PER_MERGE` files take a file to the target size, at most `TIERS_MAX`."""
    tier = 0
    while size_bytes * FILES_PER_MERGE <= file_bytes and tier < TIERS_MAX:
        size_bytes *= FILES_PER_MERGE
        tier += 1
    return tier


def _split_groups(files: Sequence[LiveFile], file_bytes: int, *, files_min: int) -> Iterator[tuple[LiveFile, ...]]:
    """Split files, in the order of their offsets, into groups of about the target size.

    A group that reaches the target size may have fewer than `files_min` files, because its file is not merged again.
    """
    group: list[LiveFile] = []
    group_bytes = 0
    for file in sorted(files, key=lambda file: (file.partitions[0], file.offsets[0], file.path)):
        group.append(file)
        group_bytes += file.size_bytes
        if len(group) > 1 and (group_bytes >= file_bytes or len(group) >= STEP_FILES_MAX):
            yield tuple(group)
            group, group_bytes = [], 0
    if len(group) >= files_min:
        yield tuple(group)


# Throttling


class MaintenanceBudget:
    """The time that maintenance may take: a part of the elapsed time.

    Unused time accumulates up to a limit. A maintenance may start while time is left, and the next one waits until the
    time that it took has accumulated again.
    """

    def __init__(self, now_s: float, share: float = SHARE) -> None:
        self._share = share
        self._credit_s = 0.0
        self._updated_s = now_s

    def is_available(self, now_s: float) -> bool:
        """Return whether a maintenance may start now."""
        self._accumulate(now_s)
        return self._credit_s > 0

    def compute_wait(self, now_s: float) -> float:
        """Return the number of seconds until a maintenance may start."""
        self._accumulate(now_s)
        return max(0.0, -self._credit_s / self._share)

    def charge(self, seconds: float) -> None:
        """Subtract the time that a maintenance took."""
        self._credit_s -= seconds

    def _accumulate(self, now_s: float) -> None:
        elapsed_s = max(0.0, now_s - self._updated_s)
        self._credit_s = min(CREDIT_SECONDS_MAX, self._credit_s + self._share * elapsed_s)
        self._updated_s = now_s

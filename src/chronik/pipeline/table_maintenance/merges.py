"""Merges of a table's small files, and vacuum: tasks write merged files, and one commit replaces the old ones.

Rows and offsets do not change, also while a landing runs: a table accepts new files only as a replacement for all of
the old ones. Delta-rs's own `optimize.compact` is not used, because it misses that a concurrent compaction has removed
the same files, and both then keep a copy of every row.

A vacuum deletes files that no table version needs, except those that a pipeline may still commit.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any, Final

import pyarrow as pa

from chronik.errors import ChronikError, ConfigError, check_invariant
from chronik.limits import MIB
from chronik.pipeline.table_maintenance.row_order import RowOrder
from chronik.pipeline.tables.commit_plan import WrittenFile
from chronik.pipeline.tables.layout import DATE
from chronik.pipeline.tables.parquet import FILE_BYTES_TARGET
from chronik.pipeline.tables.storage_errors import TableStorageError
from chronik.pipeline.tables.table_files import (
    ORPHAN_HOURS_MIN,
    ROWS_PER_BATCH,
    LiveFile,
    TableFiles,
    open_dataset,
    scan,
)
from chronik.pipeline.tables.table_statistics import MaintenanceKind, MaintenanceRecord
from chronik.pipeline.tables.topic_table import TopicTable

logger = logging.getLogger("chronik.pipeline")

DEFAULT_KEEP_HOURS = 7 * 24
"""Default number of hours for which replaced files are kept for running queries and time travel, as in Delta Lake."""

KEEP_HOURS_MIN = 1
"""Minimum number of hours for which replaced files are kept, because running queries and jobs may still read them."""

SORT_BYTES_MAX = 256 * MIB
"""Maximum total size in bytes of the files that one task sorts by row order. In memory, rows are several times
larger."""


class VacuumRejectedError(ChronikError):
    """A vacuum was rejected because a running pipeline or query may still need the files."""


def vacuum_table(
    table: TopicTable, *, keep_hours: int = DEFAULT_KEEP_HOURS, pipeline_stopped: bool = False, dry_run: bool = False
) -> list[str]:
    """Delete files that no version of the last `keep_hours` contains, and return their paths.

    Unfinished uploads to S3 count as files, and are aborted at the age of orphans. If the store does not allow that,
    they remain, with a warning.

    Uncommitted files (orphans of killed tasks, and files that a pipeline is about to commit) are kept for at least
    `ORPHAN_HOURS_MIN`, unless `pipeline_stopped` guarantees that no pipeline writes to the table.

    Raises:
        VacuumRejectedError: `keep_hours` is below the minimum, without `pipeline_stopped`.
    """
    check_retention_hours(keep_hours, pipeline_stopped)
    removed = table.vacuum_files(keep_hours, orphans=False, dry_run=dry_run)
    orphan_hours = keep_hours if pipeline_stopped else max(keep_hours, ORPHAN_HOURS_MIN)
    removed += table.vacuum_files(orphan_hours, orphans=True, dry_run=dry_run)
    return [*dict.fromkeys(removed), *_abort_uploads(table, orphan_hours, dry_run)]


def _abort_uploads(table: TopicTable, hours: int, dry_run: bool) -> list[str]:
    try:
        aborted = table.abort_uploads(hours, dry_run=dry_run)
    except (ConfigError, TableStorageError) as error:
        logger.warning("table %s: unfinished uploads not aborted: %s", table.uri, error)
        return []
    if aborted:
        logger.info("table %s: unfinished uploads aborted: count=%d", table.uri, len(aborted))
    return [f"{path} (unfinished upload)" for path in aborted]


def check_retention_hours(keep_hours: int, pipeline_stopped: bool) -> None:
    """Raise VacuumRejectedError if the retention is below the minimum while a pipeline may be running."""
    if keep_hours < KEEP_HOURS_MIN and not pipeline_stopped:
        raise VacuumRejectedError(
            f"files replaced within the last {KEEP_HOURS_MIN} h may still be read or written: stop the pipeline first"
        )


@dataclass(frozen=True, slots=True)
class MergeTask:
    """Files of one table partition that a task merges into one file."""

    table: TableFiles
    file_bytes: int
    order: RowOrder | None = None

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.table.files)


@dataclass(frozen=True, slots=True)
class CompactionStats:
    """The number and size of files before and after a compaction."""

    files_removed: int = 0
    files_added: int = 0
    bytes_before: int = 0
    bytes_after: int = 0

    def __add__(self, other: CompactionStats) -> CompactionStats:
        return CompactionStats(
            self.files_removed + other.files_removed,
            self.files_added + other.files_added,
            self.bytes_before + other.bytes_before,
            self.bytes_after + other.bytes_after,
        )


NOTHING_COMPACTED: Final = CompactionStats()


def plan_merges(
    table: TopicTable,
    *,
    file_bytes: int = FILE_BYTES_TARGET,
    since: date | None = None,
    order: RowOrder | None = None,
) -> list[MergeTask]:
    """Return tasks that merge the small files of the days from `since` on, or of all days.

    Raises:
        ConfigError: The table does not have the columns of `order`.
        TableMissingError, TableMismatchError: The table does not exist or cannot be used.
    """
    current = table.files()
    files = [file for file in current.files if since is None or _is_on_or_after(file, current.partition_by, since)]
    if order is None:
        return [MergeTask(current.with_files(*group), file_bytes) for group in group_small_files(files, file_bytes)]
    order.check(current.schema)
    return [MergeTask(current.with_files(*group), file_bytes, order) for group in group_files_to_sort(files)]


def group_small_files(files: Iterable[LiveFile], file_bytes: int) -> Iterator[list[LiveFile]]:
    """Group small files of the same partition up to about the target size; files near that size are skipped.

    Files with adjacent offsets are merged in order, so that a range of offsets is in few row groups.
    """
    groups: dict[tuple[Any, ...], list[LiveFile]] = {}
    for file in sorted(files, key=lambda file: (file.partitions[0], file.offsets[0], file.path)):
        if file.size_bytes >= file_bytes * 3 // 4:
            continue
        group = groups.setdefault(file.partition_values, [])
        group.append(file)
        if sum(each.size_bytes for each in group) >= file_bytes:
            yield groups.pop(file.partition_values)
    yield from (group for group in groups.values() if len(group) > 1)


def group_files_to_sort(files: Iterable[LiveFile], sort_bytes: int = SORT_BYTES_MAX) -> Iterator[list[LiveFile]]:
    """Group all files of the same partition up to the size that a task can sort."""
    groups: dict[tuple[Any, ...], list[LiveFile]] = {}
    for file in sorted(files, key=lambda file: (file.partitions[0], file.offsets[0], file.path)):
        group = groups.setdefault(file.partition_values, [])
        if group and sum(each.size_bytes for each in group) + file.size_bytes > sort_bytes:
            yield groups.pop(file.partition_values)
            group = groups.setdefault(file.partition_values, [])
        group.append(file)
    yield from groups.values()


def _is_on_or_after(file: LiveFile, columns: tuple[str, ...], since: date) -> bool:
    day = dict(zip(columns, file.partition_values, strict=True)).get(DATE)
    return day is None or day >= since


def merge_table_files(join: MergeTask, before_batch: Callable[[], None] = lambda: None) -> tuple[WrittenFile, ...]:
    """Write the rows of all files to a new file, which `commit_merged_file` adds to the table.

    `before_batch` may raise an exception to stop the merge, whose files are then deleted.
    """
    table = join.table
    # A group may be slightly larger than the target; two files would have to be merged again.
    with table.writer(file_bytes=(4 if join.order is None else 1) * join.file_bytes) as writer:
        batches = scan(table)
        if join.order is not None:
            sorted_rows = join.order.sort(pa.Table.from_batches(list(batches), table.schema))
            batches = iter(sorted_rows.to_batches(max_chunksize=ROWS_PER_BATCH))
        for batch in batches:
            before_batch()
            writer.write(batch)
    rows, expected = sum(file.rows for file in writer.files), open_dataset(table).count_rows()
    check_invariant(rows == expected, f"{table.uri}: compaction wrote {rows} rows of {expected}")
    return writer.files


def commit_merged_file(
    table: TopicTable,
    join: MergeTask,
    written: Sequence[WrittenFile],
    done: CompactionStats = NOTHING_COMPACTED,
) -> CompactionStats:
    """Replace the old files with the merged ones. Commit nothing if an old file was replaced concurrently.

    The commit's maintenance record includes what the same compaction has `done` before.

    Raises:
        TableCommitError: The commit did not succeed within its attempts.
    """
    stats = CompactionStats(
        len(join.table.files), len(written), join.size_bytes, sum(file.size_bytes for file in written)
    )
    record = build_compaction_record(get_maintainer(), done + stats)
    return (
        stats if table.replace_files(join.table.files, written, data_change=False, record=record) else NOTHING_COMPACTED
    )


def get_maintainer() -> str:
    """Return the name of this process in maintenance records."""
    return f"{socket.gethostname()}:{os.getpid()}"


def build_compaction_record(maintainer: str, stats: CompactionStats, lease_ms: int = 0) -> MaintenanceRecord:
    """Return the record of a compaction that is committed now."""
    now_ms = time.time_ns() // 1_000_000
    return MaintenanceRecord(
        MaintenanceKind.COMPACTION,
        now_ms,
        maintainer,
        now_ms + lease_ms,
        stats.files_removed,
        stats.files_added,
        stats.bytes_before,
        stats.bytes_after,
    )

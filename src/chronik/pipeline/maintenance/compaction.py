"""Compaction and vacuum of tables: tasks merge small files, and unused files are deleted.

Rows and offsets do not change, also while a landing runs: a table accepts new files only as a replacement for all of
the old ones. Delta-rs's own `optimize.compact` is not used, because it misses that a concurrent compaction has removed
the same files, and both then keep a copy of every row.

A vacuum deletes files that no table version needs, except those that a pipeline may still commit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Any

import pyarrow as pa

from chronik.errors import ChronikError, check_invariant
from chronik.limits import MIB
from chronik.pipeline.maintenance.row_order import RowOrder
from chronik.pipeline.spark.tasks import TaskFailedError, TaskRunner, run_locally
from chronik.pipeline.tables.catalog import list_existing_tables, list_table_names, open_table
from chronik.pipeline.tables.commit_plan import WrittenFile
from chronik.pipeline.tables.layout import DATE
from chronik.pipeline.tables.parquet import FILE_BYTES_TARGET
from chronik.pipeline.tables.storage import DEAD_LETTERS_SUFFIX, table_uri
from chronik.pipeline.tables.table_files import (
    ORPHAN_HOURS_MIN,
    ROWS_PER_BATCH,
    LiveFile,
    TableFiles,
    open_dataset,
    scan,
)
from chronik.pipeline.tables.topic_table import TableMissingError, TopicTable
from chronik.wording import pluralize

DEFAULT_KEEP_HOURS = 7 * 24
"""Default number of hours for which replaced files are kept for running queries and time travel, as in Delta Lake."""

KEEP_HOURS_MIN = 1
"""Minimum number of hours for which replaced files are kept, because running queries and jobs may still read them."""

MERGES_PER_ROUND = 32
"""Number of file merges per round. A round's merged files are committed together; a killed driver loses only one round.
The number suffices for the tasks of a small cluster."""


class VacuumRejectedError(ChronikError):
    """A vacuum was rejected because a running pipeline or query may still need the files."""


def vacuum_table(
    table: TopicTable, *, keep_hours: int = DEFAULT_KEEP_HOURS, pipeline_stopped: bool = False, dry_run: bool = False
) -> list[str]:
    """Delete files that no version of the last `keep_hours` contains, and return their paths.

    Uncommitted files (orphans of killed tasks, and files that a pipeline is about to commit) are kept for at least
    `ORPHAN_HOURS_MIN`, unless `pipeline_stopped` guarantees that no pipeline writes to the table.

    Raises:
        VacuumRejectedError: `keep_hours` is below the minimum, without `pipeline_stopped`.
    """
    check_retention_hours(keep_hours, pipeline_stopped)
    removed = table.vacuum_files(keep_hours, orphans=False, dry_run=dry_run)
    orphan_hours = keep_hours if pipeline_stopped else max(keep_hours, ORPHAN_HOURS_MIN)
    removed += table.vacuum_files(orphan_hours, orphans=True, dry_run=dry_run)
    return list(dict.fromkeys(removed))


def check_retention_hours(keep_hours: int, pipeline_stopped: bool) -> None:
    """Raise VacuumRejectedError if the retention is below the minimum while a pipeline may be running."""
    if keep_hours < KEEP_HOURS_MIN and not pipeline_stopped:
        raise VacuumRejectedError(
            f"files replaced within the last {KEEP_HOURS_MIN} h may still be read or written: stop the pipeline first"
        )


SORT_BYTES_MAX = 256 * MIB
"""Maximum total size in bytes of the files that one task sorts by row order. In memory, rows are several times
larger."""


class CompactionFailedError(ChronikError):
    """Some files of tables could not be merged. The message contains the tables and their errors."""


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


@dataclass(frozen=True, slots=True)
class TableCompaction:
    """The result of compacting one table."""

    name: str
    """Name of the table: the topic, or its dead-letter table."""
    compacted: CompactionStats
    vacuumed: int = 0
    """Number of files that the vacuum deleted."""


@dataclass(frozen=True, slots=True)
class VacuumOptions:
    """The settings of a vacuum after a compaction."""

    keep_hours: int = DEFAULT_KEEP_HOURS
    pipeline_stopped: bool = False
    """Whether the caller guarantees that no pipeline writes to the tables."""


@dataclass(slots=True)
class _CompactedTable:
    """A table that is being compacted, with the current statistics."""

    name: str
    table: TopicTable
    done: CompactionStats = field(default_factory=CompactionStats)


def compact_tables(
    table_root: str,
    topics: Sequence[str] | None = None,
    *,
    tasks: TaskRunner = run_locally,
    file_bytes: int = FILE_BYTES_TARGET,
    since: date | None = None,
    order: RowOrder | None = None,
    vacuum_options: VacuumOptions | None = None,
    progress: Callable[[int, int], None] = lambda done_bytes, all_bytes: None,
    storage_options: Mapping[str, str] | None = None,
) -> list[TableCompaction]:
    """Compact the tables of these topics with their dead-letter tables, or all tables under the root.

    With `order`, all files of the topics' own tables are written again, with their rows in this order.

        compact_tables("tables", tasks=spark_task_runner(spark), vacuum_options=VacuumOptions())

    Raises:
        TableMissingError, TableMismatchError, TableCommitError, VacuumRejectedError: A table does not exist, or cannot
            be used or changed.
        CompactionFailedError: A merge failed in all attempts; the others are committed.
        SparkUnavailableError: Spark does not respond.
    """
    if vacuum_options is not None:
        check_retention_hours(vacuum_options.keep_hours, vacuum_options.pipeline_stopped)
    tables = _open_tables(table_root, topics, storage_options)
    joins = [
        (table, join)
        for table in tables
        for join in plan_merges(
            table.table,
            file_bytes=file_bytes,
            since=since,
            order=None if table.name.endswith(DEAD_LETTERS_SUFFIX) else order,
        )
    ]
    _run_merges(joins, tasks, progress)
    return [TableCompaction(table.name, table.done, _vacuum_table(table.table, vacuum_options)) for table in tables]


def _open_tables(
    root: str, topics: Sequence[str] | None, storage_options: Mapping[str, str] | None
) -> list[_CompactedTable]:
    names = (list_existing_tables if topics is None else list_table_names)(root, storage_options)
    if topics is not None:
        missing = [topic for topic in topics if topic not in names]
        if missing:
            raise TableMissingError(f"no table of {', '.join(missing)} under {root}")
        selected = {name for topic in topics for name in (topic, topic + DEAD_LETTERS_SUFFIX)}
        names = [name for name in names if name in selected]
    return [_CompactedTable(name, open_table(table_uri(root, name), storage_options)) for name in names]


def _run_merges(
    joins: list[tuple[_CompactedTable, MergeTask]], tasks: TaskRunner, progress: Callable[[int, int], None]
) -> None:
    """Run the merges in rounds. If a round fails, repeat each of its merges in a Spark job of its own.

    One merge may crash its workers, for lack of memory for example, and Spark then fails the whole job.

    Raises:
        CompactionFailedError: A merge failed in its own job, too.
    """
    all_bytes, done_bytes = sum(join.size_bytes for _, join in joins), 0
    failures: list[str] = []
    for first in range(0, len(joins), MERGES_PER_ROUND):
        for (table, join), files in _run_round(joins[first : first + MERGES_PER_ROUND], tasks, failures):
            table.done += commit_merged_file(table.table, join, files)
            done_bytes += join.size_bytes
            progress(done_bytes, all_bytes)
    if failures:
        raise CompactionFailedError(
            f"{len(failures)} of {pluralize(len(joins), 'merge')} failed: {'; '.join(dict.fromkeys(failures))}; the "
            "other files are merged, and nothing was vacuumed"
        )


def _run_round(
    joins: list[tuple[_CompactedTable, MergeTask]], tasks: TaskRunner, failures: list[str]
) -> Iterator[tuple[tuple[_CompactedTable, MergeTask], tuple[WrittenFile, ...]]]:
    """Run the merges of one round; yield each successful merge with its files, and add the others to `failures`."""
    try:
        yield from zip(joins, tasks(merge_table_files, [join for _, join in joins]), strict=True)
    except TaskFailedError as error:
        if len(joins) == 1:
            failures.append(f"{joins[0][0].name}: {error}")
            return
        for each in joins:
            yield from _run_round([each], tasks, failures)


def _vacuum_table(table: TopicTable, vacuuming: VacuumOptions | None) -> int:
    if vacuuming is None:
        return 0
    return len(vacuum_table(table, keep_hours=vacuuming.keep_hours, pipeline_stopped=vacuuming.pipeline_stopped))


# One table


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


def merge_table_files(join: MergeTask) -> tuple[WrittenFile, ...]:
    """Write the rows of all files to a new file, which `commit_merged_file` adds to the table."""
    table = join.table
    # A group may be slightly larger than the target; two files would have to be merged again.
    with table.writer(file_bytes=(4 if join.order is None else 1) * join.file_bytes) as writer:
        batches = scan(table)
        if join.order is not None:
            sorted_rows = join.order.sort(pa.Table.from_batches(list(batches), table.schema))
            batches = iter(sorted_rows.to_batches(max_chunksize=ROWS_PER_BATCH))
        for batch in batches:
            writer.write(batch)
    rows, expected = sum(file.rows for file in writer.files), open_dataset(table).count_rows()
    check_invariant(rows == expected, f"{table.uri}: compaction wrote {rows} rows of {expected}")
    return writer.files


def commit_merged_file(table: TopicTable, join: MergeTask, written: Sequence[WrittenFile]) -> CompactionStats:
    """Replace the old files with the merged ones. Commit nothing if an old file was replaced concurrently.

    Raises:
        TableCommitError: The commit did not succeed within its attempts.
    """
    if not table.replace_files(join.table.files, written, data_change=False):
        return CompactionStats()
    size_after = sum(file.size_bytes for file in written)
    return CompactionStats(len(join.table.files), len(written), join.size_bytes, size_after)

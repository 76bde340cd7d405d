"""Compaction of tables on request: small files of any number of tables are merged in Spark tasks.

`chronik.pipeline.table_maintenance.merges` has the merges of one table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date

from chronik.errors import ChronikError
from chronik.pipeline.spark.tasks import TaskFailedError, TaskRunner, run_locally
from chronik.pipeline.table_maintenance.merges import (
    DEFAULT_KEEP_HOURS,
    CompactionStats,
    MergeTask,
    check_retention_hours,
    commit_merged_file,
    merge_table_files,
    plan_merges,
    vacuum_table,
)
from chronik.pipeline.table_maintenance.row_order import RowOrder
from chronik.pipeline.tables.catalog import list_existing_tables, list_table_names, open_table
from chronik.pipeline.tables.commit_plan import WrittenFile
from chronik.pipeline.tables.parquet import FILE_BYTES_TARGET
from chronik.pipeline.tables.storage import DEAD_LETTERS_SUFFIX, table_uri
from chronik.pipeline.tables.topic_table import TableMissingError, TopicTable
from chronik.wording import pluralize

MERGES_PER_ROUND = 32
"""Number of file merges per round. A round's merged files are committed together; a killed driver loses only one round.
The number suffices for the tasks of a small cluster."""


class CompactionFailedError(ChronikError):
    """Some files of tables could not be merged. The message contains the tables and their errors."""


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
            table.done += commit_merged_file(table.table, join, files, table.done)
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

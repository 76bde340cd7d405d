"""Tables kept tidy: small files joined in tasks, and files that nothing needs any more taken away.

May run beside a landing: neither loses nor doubles a row (`tables.replacing` says why).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date

from chronik.pipeline.spark.tasks import Tasks, in_this_process
from chronik.pipeline.tables.delta.vacuuming import KEEP_HOURS, check_keep_hours, vacuum
from chronik.pipeline.tables.opening import table_names
from chronik.pipeline.tables.parquet import FILE_BYTES_TARGET
from chronik.pipeline.tables.storage import DEAD_LETTERS_SUFFIX, table_uri
from chronik.pipeline.tables.topic_table import TableMissing
from chronik.pipeline.upkeep.joining import Compacted, Join, commit_join, join_files, plan_joins

JOINS_AT_ONCE = 32
"""Files that are written before the first of them is committed: enough for the tasks of a small cluster, and what a
driver that is killed leaves to be done again."""


@dataclass(frozen=True, slots=True)
class Tidied:
    """What was done to one table."""

    name: str
    """The topic's, or that of its dead letters."""
    compacted: Compacted
    vacuumed: int = 0
    """Files."""


@dataclass(frozen=True, slots=True)
class Vacuuming:
    keep_hours: int = KEEP_HOURS
    pipeline_stopped: bool = False
    """The caller knows that no pipeline writes to these tables."""


@dataclass(slots=True)
class _Table:
    name: str
    uri: str
    done: Compacted = field(default_factory=Compacted)


def compact_tables(
    table_root: str,
    topics: Sequence[str] | None = None,
    *,
    tasks: Tasks = in_this_process,
    file_bytes: int = FILE_BYTES_TARGET,
    since: date | None = None,
    vacuuming: Vacuuming | None = None,
    progress: Callable[[int, int], None] = lambda done_bytes, all_bytes: None,
    storage_options: Mapping[str, str] | None = None,
) -> list[Tidied]:
    """Tables of these topics and their dead letters, or all under the root, by name.

        compact_tables("tables", tasks=on_spark(spark), vacuuming=Vacuuming())

    Raises TableMissing, TableDiffers, CommitFailed, VacuumRefused, TaskFailed.
    """
    if vacuuming is not None:
        check_keep_hours(vacuuming.keep_hours, vacuuming.pipeline_stopped)
    tables = _tables(table_root, topics, storage_options)
    joins = [
        (table, join)
        for table in tables
        for join in plan_joins(table.uri, file_bytes=file_bytes, since=since, storage_options=storage_options)
    ]
    _join_all(joins, tasks, progress)
    return [
        Tidied(table.name, table.done, _vacuumed(table.uri, vacuuming, storage_options)) for table in tables
    ]


def _tables(root: str, topics: Sequence[str] | None, storage_options: Mapping[str, str] | None) -> list[_Table]:
    names = table_names(root, storage_options)
    if topics is not None:
        missing = [topic for topic in topics if topic not in names]
        if missing:
            raise TableMissing(f"there is no table of {', '.join(missing)} under {root}")
        wanted = {name for topic in topics for name in (topic, topic + DEAD_LETTERS_SUFFIX)}
        names = [name for name in names if name in wanted]
    return [_Table(name, table_uri(root, name)) for name in names]


def _join_all(joins: list[tuple[_Table, Join]], tasks: Tasks, progress: Callable[[int, int], None]) -> None:
    all_bytes, done_bytes = sum(join.size_bytes for _, join in joins), 0
    for first in range(0, len(joins), JOINS_AT_ONCE):
        some = joins[first : first + JOINS_AT_ONCE]
        written = tasks(join_files, [join for _, join in some])
        for (table, join), files in zip(some, written, strict=True):
            table.done += commit_join(join, files)
            done_bytes += join.size_bytes
            progress(done_bytes, all_bytes)


def _vacuumed(uri: str, vacuuming: Vacuuming | None, storage_options: Mapping[str, str] | None) -> int:
    if vacuuming is None:
        return 0
    hours, stopped = vacuuming.keep_hours, vacuuming.pipeline_stopped
    return len(vacuum(uri, keep_hours=hours, pipeline_stopped=stopped, storage_options=storage_options))

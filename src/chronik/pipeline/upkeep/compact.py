"""Keeps tables tidy: joins small files in tasks, and removes files that nothing needs any more.

Rows and offsets stay as they are, also beside a landing: a table takes new files only in the place of all the old ones.
Not so delta-rs's own `optimize.compact`: it overlooks that another compaction has removed the same files in between,
and then both keep their copy of every row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Any

from chronik.errors import invariant
from chronik.pipeline.spark.tasks import Tasks, in_this_process
from chronik.pipeline.tables.files import LiveFile, TableFiles, dataset_of, whole_rows
from chronik.pipeline.tables.layout import DATE
from chronik.pipeline.tables.opening import open_table, table_names
from chronik.pipeline.tables.parquet import FILE_BYTES_TARGET
from chronik.pipeline.tables.spans import WrittenFile
from chronik.pipeline.tables.storage import DEAD_LETTERS_SUFFIX, table_uri
from chronik.pipeline.tables.topic_table import TableMissing, TopicTable
from chronik.pipeline.upkeep.vacuum import KEEP_HOURS, check_keep_hours, vacuum

JOINS_AT_ONCE = 32
"""Files that are written before the first of them is committed: enough for the tasks of a small cluster, and what a
driver that is killed leaves to be done again."""


@dataclass(frozen=True, slots=True)
class Join:
    """Files of one partition of a table that are to be one. Small: it is joined in a task."""

    table: TableFiles
    file_bytes: int

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.table.files)


@dataclass(frozen=True, slots=True)
class Compacted:
    files_removed: int = 0
    files_added: int = 0
    bytes_before: int = 0
    bytes_after: int = 0

    def __add__(self, other: Compacted) -> Compacted:
        return Compacted(
            self.files_removed + other.files_removed,
            self.files_added + other.files_added,
            self.bytes_before + other.bytes_before,
            self.bytes_after + other.bytes_after,
        )


@dataclass(frozen=True, slots=True)
class Tidied:
    """What was done to one table."""

    name: str
    """The topic's, or that of its dead letters."""
    compacted: Compacted
    vacuumed: int = 0
    """Files that were removed."""


@dataclass(frozen=True, slots=True)
class Vacuuming:
    keep_hours: int = KEEP_HOURS
    pipeline_stopped: bool = False
    """The caller knows that no pipeline writes to these tables."""


@dataclass(slots=True)
class _Table:
    name: str
    table: TopicTable
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
    """Compacts tables of these topics and their dead letters, or all under the root, by name.

        compact_tables("tables", tasks=on_spark(spark), vacuuming=Vacuuming())

    Raises TableMissing, TableDiffers, CommitFailed, VacuumRefused, TaskFailed.
    """
    if vacuuming is not None:
        check_keep_hours(vacuuming.keep_hours, vacuuming.pipeline_stopped)
    tables = _tables(table_root, topics, storage_options)
    joins = [(table, join) for table in tables for join in plan_joins(table.table, file_bytes=file_bytes, since=since)]
    _join_all(joins, tasks, progress)
    return [Tidied(table.name, table.done, _vacuumed(table.table, vacuuming)) for table in tables]


def _tables(root: str, topics: Sequence[str] | None, storage_options: Mapping[str, str] | None) -> list[_Table]:
    names = table_names(root, storage_options)
    if topics is not None:
        missing = [topic for topic in topics if topic not in names]
        if missing:
            raise TableMissing(f"there is no table of {', '.join(missing)} under {root}")
        wanted = {name for topic in topics for name in (topic, topic + DEAD_LETTERS_SUFFIX)}
        names = [name for name in names if name in wanted]
    return [_Table(name, open_table(table_uri(root, name), storage_options)) for name in names]


def _join_all(joins: list[tuple[_Table, Join]], tasks: Tasks, progress: Callable[[int, int], None]) -> None:
    all_bytes, done_bytes = sum(join.size_bytes for _, join in joins), 0
    for first in range(0, len(joins), JOINS_AT_ONCE):
        some = joins[first : first + JOINS_AT_ONCE]
        written = tasks(join_files, [join for _, join in some])
        for (table, join), files in zip(some, written, strict=True):
            table.done += commit_join(table.table, join, files)
            done_bytes += join.size_bytes
            progress(done_bytes, all_bytes)


def _vacuumed(table: TopicTable, vacuuming: Vacuuming | None) -> int:
    if vacuuming is None:
        return 0
    return len(vacuum(table, keep_hours=vacuuming.keep_hours, pipeline_stopped=vacuuming.pipeline_stopped))


# One table


def plan_joins(table: TopicTable, *, file_bytes: int = FILE_BYTES_TARGET, since: date | None = None) -> list[Join]:
    """Plans those of the days from `since` on, or of all. Raises TableMissing, TableDiffers."""
    now = table.files()
    files = [file for file in now.files if since is None or _is_since(file, now.partition_by, since)]
    return [Join(now.with_files(*group), file_bytes) for group in groups_to_join(files, file_bytes)]


def groups_to_join(files: Iterable[LiveFile], file_bytes: int) -> Iterator[list[LiveFile]]:
    """Groups small files of one partition, about as large together as a file should be; those that are nearly so stay.
    Neighbours in the topic are joined, in order: so whoever looks for some offsets finds them in few row groups."""
    groups: dict[tuple[Any, ...], list[LiveFile]] = {}
    for file in sorted(files, key=lambda file: (file.partitions[0], file.offsets[0], file.path)):
        if file.size_bytes >= file_bytes * 3 // 4:
            continue
        group = groups.setdefault(file.values, [])
        group.append(file)
        if sum(each.size_bytes for each in group) >= file_bytes:
            yield groups.pop(file.values)
    yield from (group for group in groups.values() if len(group) > 1)


def _is_since(file: LiveFile, columns: tuple[str, ...], since: date) -> bool:
    day = dict(zip(columns, file.values, strict=True)).get(DATE)
    return day is None or day >= since


def join_files(join: Join) -> tuple[WrittenFile, ...]:
    """Writes the rows of all these files anew. They are in the table after `commit_join`."""
    table = join.table
    # A group may come out a little larger than a file should be; two files of it would be there to join again.
    with table.writer(file_bytes=4 * join.file_bytes) as writer:
        for batch in whole_rows(table):
            writer.write(batch)
    rows, expected = sum(file.rows for file in writer.files), dataset_of(table).count_rows()
    invariant(rows == expected, f"{table.uri}: compaction wrote {rows} rows of {expected}")
    return writer.files


def commit_join(table: TopicTable, join: Join, written: Sequence[WrittenFile]) -> Compacted:
    """Commits nothing when another has taken one of the old files away. Raises CommitFailed."""
    if not table.replace(join.table.files, written, rows_change=False):
        return Compacted()
    size_after = sum(file.size_bytes for file in written)
    return Compacted(len(join.table.files), len(written), join.size_bytes, size_after)

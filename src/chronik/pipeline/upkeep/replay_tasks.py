"""One task of a replay, on an executor: a range of one partition, from the table's files to a topic, in order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from chronik.client.cluster import Cluster
from chronik.errors import ChronikError, invariant
from chronik.limits import MIB
from chronik.pipeline import CLIENT_ID
from chronik.pipeline.tables.files import TableFiles, scan
from chronik.pipeline.tables.layout import OFFSET, PARTITION, TIMESTAMP, TIMESTAMP_MS, TIMESTAMP_TYPE
from chronik.pipeline.tables.values.rebuilding import columns_needed, outgoing_rows, with_names_replaced
from chronik.pipeline.writing.publishing import Publisher, PublishSettings

WINDOW_BYTES = 64 * MIB
"""Row groups that are read and sorted at once: the memory of a task, however long its range."""

ROWS_AT_ONCE = 8192
"""How many are sent before a task can say that they are there."""


class RowGroup(NamedTuple):
    """Offsets [low, high] that it may hold."""

    low: int
    high: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class ReplayTask:
    table: TableFiles
    """Those that may hold the range."""
    partition: int
    start: int
    end: int
    publish: PublishSettings
    keep_partition: bool
    """Otherwise it is chosen by the key, as all clients do."""


@dataclass(frozen=True, slots=True)
class RangeReplayed:
    partition: int
    records: int
    next_offset: int
    """All below it is in the topic."""
    names_replaced: int = 0
    """Records with a header whose name is not as it was: see `rebuilding`."""
    error: str | None = None
    """Then some records from `next_offset` on may be in the topic, too."""


def replay_range(task: ReplayTask) -> RangeReplayed:
    """Returns errors rather than raising them: how far it came is worth more than an attempt that begins anew."""
    records, names_replaced, position = 0, 0, task.start
    try:
        with Cluster(task.publish.bootstrap, client_id=CLIENT_ID) as cluster:
            publisher = Publisher(cluster, task.publish)
            for rows in ordered_rows(task.table, task.partition, task.start, task.end):
                outgoing = outgoing_rows(rows)
                records += publisher.publish(outgoing if task.keep_partition else outgoing.drop_columns(["partition"]))
                names_replaced += with_names_replaced(rows)
                position = rows[OFFSET][-1].as_py() + 1
    except (ChronikError, OSError, pa.ArrowException) as error:
        return RangeReplayed(task.partition, records, position, names_replaced, str(error) or type(error).__name__)
    return RangeReplayed(task.partition, records, task.end, names_replaced)


def ordered_rows(table: TableFiles, partition: int, start: int, end: int) -> Iterator[pa.Table]:
    """Yields rows of [start, end) by offset, some at a time, whatever their order in the files."""
    columns = columns_needed(table.schema)
    for low, high in windows(row_groups(table, partition), start, end):
        offset = ds.field(OFFSET)
        where = (ds.field(PARTITION) == partition) & (offset >= low) & (offset < high)
        batches = list(scan(table, columns, where))
        rows = pa.Table.from_batches(batches).sort_by(OFFSET) if batches else None
        if rows is None or not rows.num_rows:
            continue
        offsets = rows[OFFSET].to_numpy()
        invariant(bool(np.all(np.diff(offsets) > 0)), f"{table.uri}: partition {partition} has an offset twice")
        for first in range(0, rows.num_rows, ROWS_AT_ONCE):
            yield rows.slice(first, ROWS_AT_ONCE)


def windows(
    groups: Iterable[RowGroup], start: int, end: int, bytes_max: int = WINDOW_BYTES
) -> Iterator[tuple[int, int]]:
    """Cuts [start, end) into pieces that lie in row groups of about so many bytes. Row groups that overlap are read
    again with each piece that they reach into."""
    waiting = sorted(group for group in groups if group.low < end and group.high >= start)
    while start < end:
        waiting = [group for group in waiting if group.high >= start]
        size_bytes, cut = 0, end
        for group in waiting:
            if size_bytes + group.size_bytes > bytes_max and group.low > start:
                cut = group.low
                break
            size_bytes += group.size_bytes
        if size_bytes:
            yield start, cut
        start = cut


def row_groups(table: TableFiles, partition: int) -> list[RowGroup]:
    """Returns those that may hold records of a partition."""
    storage = table.storage
    found: list[RowGroup] = []
    for file in table.files:
        metadata = pq.read_metadata(storage.full_path(file.path), filesystem=storage.filesystem)
        paths = [metadata.schema.column(index).path for index in range(metadata.num_columns)]
        for number in range(metadata.num_row_groups):
            group = metadata.row_group(number)
            lowest, highest = _ends(group, paths.index(PARTITION), file.partitions)
            if lowest <= partition <= highest:
                found.append(RowGroup(*_ends(group, paths.index(OFFSET), file.offsets), group.total_byte_size))
    return found


def _ends(group: Any, column: int, of_the_file: tuple[int, int]) -> tuple[int, int]:
    statistics = group.column(column).statistics
    if statistics is None or not statistics.has_min_max:
        return of_the_file
    return statistics.min, statistics.max


# Where a moment is


@dataclass(frozen=True, slots=True)
class TimeTask:
    table: TableFiles
    time_ms: int


def first_offsets(task: TimeTask) -> dict[int, int]:
    """Returns by partition the first offset in these files whose record is not older."""
    moment = pa.scalar(task.time_ms * 1000, pa.int64()).cast(TIMESTAMP_TYPE)
    # What is no time between 1970 and 9999 stands in a column of its own.
    where = (ds.field(TIMESTAMP) >= moment) | (ds.field(TIMESTAMP_MS) >= task.time_ms)
    return lowest(
        dict(zip(found[PARTITION].to_pylist(), found[f"{OFFSET}_min"].to_pylist(), strict=True))
        for batch in scan(task.table, [PARTITION, OFFSET, TIMESTAMP, TIMESTAMP_MS], where)
        if batch.num_rows
        for found in [pa.Table.from_batches([batch]).group_by(PARTITION).aggregate([(OFFSET, "min")])]
    )


def lowest(several: Iterable[dict[int, int]]) -> dict[int, int]:
    found: dict[int, int] = {}
    for each in several:
        for partition, offset in each.items():
            found[partition] = min(offset, found.get(partition, offset))
    return found

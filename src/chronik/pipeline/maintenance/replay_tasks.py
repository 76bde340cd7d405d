"""Tasks that replay an offset range of a partition from a table's files to a topic, in order, on executors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from chronik.client.cluster import ClusterClient
from chronik.errors import ChronikError, check_invariant
from chronik.limits import MIB
from chronik.pipeline import CLIENT_ID
from chronik.pipeline.sink.publisher import Publisher, PublishSettings
from chronik.pipeline.tables.layout import ICEBERG_PARTITION, OFFSET, PARTITION, TIMESTAMP, TIMESTAMP_MS, TIMESTAMP_TYPE
from chronik.pipeline.tables.table_files import TableFiles, scan
from chronik.pipeline.tables.values.record_rebuild import (
    build_outgoing_rows,
    count_replaced_header_names,
    list_source_columns,
)

WINDOW_BYTES = 64 * MIB
"""Target size in bytes of the row groups that a task reads and sorts at once, which limits its memory use."""

PUBLISH_BATCH_ROWS = 8192
"""Number of rows published per call. A task's progress advances after each call."""


class RowGroup(NamedTuple):
    """The lowest and highest offset that a Parquet row group may contain, and its size."""

    low: int
    high: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class ReplayTask:
    """An offset range of one partition to replay."""

    table: TableFiles
    """The files that may contain the range."""
    partition: int
    start: int
    end: int
    publish: PublishSettings
    keep_partition: bool
    """Whether to preserve each record's partition; otherwise its key determines the partition."""


@dataclass(frozen=True, slots=True)
class RangeReplayResult:
    """The result of a replay task."""

    partition: int
    records: int
    next_offset: int
    """The offset below which all records have been published."""
    names_replaced: int = 0
    """Number of records with a header name in which invalid bytes were replaced."""
    error: str | None = None
    """The task's error, if any. Records at or after `next_offset` may also have been published."""


def replay_range(task: ReplayTask) -> RangeReplayResult:
    """Publish the records of a task's range and return the progress; errors are returned, not raised.

    A Spark retry would start over, and the progress would be lost.
    """
    records, names_replaced, position = 0, 0, task.start
    try:
        with ClusterClient(task.publish.bootstrap, client_id=CLIENT_ID) as cluster:
            publisher = Publisher(cluster, task.publish)
            for rows in read_ordered_rows(task.table, task.partition, task.start, task.end):
                table = task.table
                outgoing = build_outgoing_rows(rows, table.value_schema, table.format, table.registry)
                records += publisher.publish(outgoing if task.keep_partition else outgoing.drop_columns(["partition"]))
                names_replaced += count_replaced_header_names(rows)
                position = rows[OFFSET][-1].as_py() + 1
    except (ChronikError, OSError, pa.ArrowException) as error:
        return RangeReplayResult(task.partition, records, position, names_replaced, str(error) or type(error).__name__)
    return RangeReplayResult(task.partition, records, task.end, names_replaced)


def read_ordered_rows(table: TableFiles, partition: int, start: int, end: int) -> Iterator[pa.Table]:
    """Yield the rows of the offset range in chunks, sorted by offset regardless of their order in the files."""
    columns = list_source_columns(table.schema)
    for low, high in split_into_windows(list_row_groups(table, partition), start, end):
        offset = ds.field(OFFSET)
        where = (ds.field(PARTITION) == partition) & (offset >= low) & (offset < high)
        batches = list(scan(table, columns, where))
        rows = pa.Table.from_batches(batches).sort_by(OFFSET) if batches else None
        if rows is None or not rows.num_rows:
            continue
        offsets = rows[OFFSET].to_numpy()
        check_invariant(bool(np.all(np.diff(offsets) > 0)), f"{table.uri}: partition {partition} has an offset twice")
        for first in range(0, rows.num_rows, PUBLISH_BATCH_ROWS):
            yield rows.slice(first, PUBLISH_BATCH_ROWS)


def split_into_windows(
    groups: Iterable[RowGroup], start: int, end: int, bytes_max: int = WINDOW_BYTES
) -> Iterator[tuple[int, int]]:
    """Split an offset range into windows whose row groups have about `bytes_max` bytes.

    A row group that overlaps several windows is read again for each of them.
    """
    pending = sorted(group for group in groups if group.low < end and group.high >= start)
    while start < end:
        pending = [group for group in pending if group.high >= start]
        size_bytes, window_end = 0, end
        for group in pending:
            if size_bytes + group.size_bytes > bytes_max and group.low > start:
                window_end = group.low
                break
            size_bytes += group.size_bytes
        if size_bytes:
            yield start, window_end
        start = window_end


def list_row_groups(table: TableFiles, partition: int) -> list[RowGroup]:
    """Return the row groups that may contain records of the partition."""
    storage = table.storage
    found: list[RowGroup] = []
    for file in table.files:
        metadata = pq.read_metadata(storage.full_path(file.path), filesystem=storage.filesystem)
        paths = [metadata.schema.column(index).path for index in range(metadata.num_columns)]
        partition_column = paths.index(PARTITION if PARTITION in paths else ICEBERG_PARTITION)
        for number in range(metadata.num_row_groups):
            group = metadata.row_group(number)
            lowest, highest = _read_column_bounds(group, partition_column, file.partitions)
            if lowest <= partition <= highest:
                found.append(
                    RowGroup(*_read_column_bounds(group, paths.index(OFFSET), file.offsets), group.total_byte_size)
                )
    return found


def _read_column_bounds(group: Any, column: int, file_bounds: tuple[int, int]) -> tuple[int, int]:
    statistics = group.column(column).statistics
    if statistics is None or not statistics.has_min_max:
        return file_bounds
    return statistics.min, statistics.max


# Offset lookup by timestamp


@dataclass(frozen=True, slots=True)
class TimestampLookupTask:
    """The files in which to look up the first offset at or after a timestamp."""

    table: TableFiles
    time_ms: int


def find_first_offsets(task: TimestampLookupTask) -> dict[int, int]:
    """Return the first offset in the files at or after the timestamp, by partition."""
    timestamp = pa.scalar(task.time_ms * 1000, pa.int64()).cast(TIMESTAMP_TYPE)
    # Timestamps before 1970 or after 9999 are in a separate column.
    where = (ds.field(TIMESTAMP) >= timestamp) | (ds.field(TIMESTAMP_MS) >= task.time_ms)
    return merge_lowest_offsets(
        dict(zip(found[PARTITION].to_pylist(), found[f"{OFFSET}_min"].to_pylist(), strict=True))
        for batch in scan(task.table, [PARTITION, OFFSET, TIMESTAMP, TIMESTAMP_MS], where)
        if batch.num_rows
        for found in [pa.Table.from_batches([batch]).group_by(PARTITION).aggregate([(OFFSET, "min")])]
    )


def merge_lowest_offsets(mappings: Iterable[dict[int, int]]) -> dict[int, int]:
    """Merge mappings from partition to offset, keeping the lowest offset of each partition."""
    found: dict[int, int] = {}
    for each in mappings:
        for partition, offset in each.items():
            found[partition] = min(offset, found.get(partition, offset))
    return found

"""A sample of a topic's records, from which the columns of a new table are inferred."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from chronik.pipeline.records.columns import ColumnSelection, RecordColumns
from chronik.pipeline.source.offset_ranges import OffsetRange
from chronik.pipeline.source.options import ReadSettings
from chronik.pipeline.source.range_reader import read_skipping_deleted
from chronik.pipeline.tables.commit_plan import PartitionRange

SAMPLE_RECORDS_MAX: Final = 10_000


def sample_records(
    topic: str, ranges: Sequence[PartitionRange], read: ReadSettings, records_max: int = SAMPLE_RECORDS_MAX
) -> Iterator[RecordColumns]:
    """Read up to `records_max` records of a topic: the first and the last ones of each range.

    Raises:
        CorruptRecords, ClientError, KafkaError: A range cannot be read.
    """
    for part in plan_sample_ranges(ranges, records_max):
        yield from read_skipping_deleted(
            OffsetRange(topic, part.partition, part.start, part.end), read, ColumnSelection()
        )


def plan_sample_ranges(ranges: Sequence[PartitionRange], records_max: int) -> Iterator[PartitionRange]:
    """Yield the parts of the ranges to read: at most `records_max` offsets in total, but at least one per range."""
    for index, each in enumerate(ranges):
        count = max(1, records_max // len(ranges) + (index < records_max % len(ranges)))
        if each.end - each.start <= count:
            yield each
            continue
        first = (count + 1) // 2
        yield PartitionRange(each.partition, each.start, each.start + first)
        if count > first:
            yield PartitionRange(each.partition, each.end - (count - first), each.end)

"""Offset ranges of partitions: explicit at both ends, so that a repeated read returns the same records.

Pure functions. JSON offsets have the format of Spark's Kafka source, `{"topic": {"0": 23}}`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from chronik.client.records import TopicPartition

Offsets = dict[TopicPartition, int]
OffsetsJson = dict[str, Any]


class OffsetRange(NamedTuple):
    """The records of a partition from offset `start` (inclusive) to `end` (exclusive); offsets may have gaps."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def size(self) -> int:
        return self.end - self.start

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} [{self.start}, {self.end})"


def build_ranges(starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> list[OffsetRange]:
    """Return the non-empty ranges, ordered by partition. Every partition in `ends` must be in `starts`."""
    return [
        OffsetRange(*partition, starts[partition], ends[partition])
        for partition in sorted(ends)
        if starts[partition] < ends[partition]
    ]


def split_ranges_evenly(
    ranges: Iterable[OffsetRange], *, partitions_min: int | None = None, records_max: int | None = None
) -> list[OffsetRange]:
    """Split ranges into about `partitions_min` parts of at most `records_max` records each.

    Each range is split into a number of parts proportional to its size, and into at least one.
    """
    whole = list(ranges)
    total = sum(each.size for each in whole)
    split_ranges: list[OffsetRange] = []
    for each in whole:
        parts = 1
        if partitions_min is not None and partitions_min > len(whole):
            parts = max(1, round(partitions_min * each.size / total))
        if records_max is not None:
            parts = max(parts, -(-each.size // records_max))
        split_ranges += _split_range(each, min(parts, each.size))
    return split_ranges


def _split_range(whole: OffsetRange, parts: int) -> list[OffsetRange]:
    bounds = [whole.start + whole.size * number // parts for number in range(parts + 1)]
    return [whole._replace(start=bounds[number], end=bounds[number + 1]) for number in range(parts)]


def limit_end_offsets(
    starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], records_max: int
) -> Offsets:
    """Limit the end offsets so that about `records_max` records are read, in proportion to each partition's size.

    Every non-empty partition gets at least one record, as in Spark's Kafka source: a limit below the number of
    partitions is exceeded so that no partition starves.
    """
    total = sum(max(0, ends[each] - starts[each]) for each in ends)
    if total <= records_max:
        return dict(ends)
    limited_ends: Offsets = {}
    for partition, end in ends.items():
        size = max(0, end - starts[partition])
        record_count = max(min(size, 1), records_max * size // total)
        limited_ends[partition] = starts[partition] + record_count if size else end
    return limited_ends


def offsets_to_json(offsets: Mapping[TopicPartition, int]) -> OffsetsJson:
    json: OffsetsJson = {}
    for partition in sorted(offsets):
        json.setdefault(partition.topic, {})[str(partition.partition)] = offsets[partition]
    return json


def offsets_from_json(json: Mapping[str, Any]) -> Offsets:
    """Parse `{"topic": {"partition": offset}}`.

    Raises:
        ValueError: The value has another structure.
    """
    offsets: Offsets = {}
    for topic, partitions in json.items():
        if not isinstance(partitions, Mapping):
            raise ValueError(f'topic {topic!r}: expected {{"partition": offset}}, not {partitions!r}')
        for index, offset in partitions.items():
            if not str(index).isdecimal() or isinstance(offset, bool) or not isinstance(offset, int):
                raise ValueError(f"topic {topic!r}: {index!r}: {offset!r} is not a partition with its offset")
            offsets[TopicPartition(topic, int(index))] = offset
    return offsets

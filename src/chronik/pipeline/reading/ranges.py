"""Stretches of partitions to read: planned once, explicit at both ends, so that reading one again gives the same rows.

Pure. Offsets travel as Spark's Kafka source writes them, `{"topic": {"0": 23}}`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from chronik.client.records import TopicPartition

Offsets = dict[TopicPartition, int]
OffsetsJson = dict[str, Any]


class OffsetRange(NamedTuple):
    """The records of a partition from `start` to before `end`; there may be fewer offsets than that in it."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def source(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def size(self) -> int:
        return self.end - self.start

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} [{self.start}, {self.end})"


def ranges_between(starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> list[OffsetRange]:
    """Returns those that hold something, in the order of their partitions. `starts` has every partition of `ends`."""
    return [
        OffsetRange(*partition, starts[partition], ends[partition])
        for partition in sorted(ends)
        if starts[partition] < ends[partition]
    ]


def split(
    ranges: Iterable[OffsetRange], *, partitions_min: int | None = None, records_max: int | None = None
) -> list[OffsetRange]:
    """Cuts them so that there are about `partitions_min`, and none is longer than `records_max`.

    Large ranges are cut first: each gets its share of the parts, but at least one.
    """
    whole = list(ranges)
    total = sum(each.size for each in whole)
    pieces: list[OffsetRange] = []
    for each in whole:
        parts = 1
        if partitions_min is not None and partitions_min > len(whole):
            parts = max(1, round(partitions_min * each.size / total))
        if records_max is not None:
            parts = max(parts, -(-each.size // records_max))
        pieces += _cut(each, min(parts, each.size))
    return pieces


def _cut(whole: OffsetRange, parts: int) -> list[OffsetRange]:
    bounds = [whole.start + whole.size * number // parts for number in range(parts + 1)]
    return [whole._replace(start=bounds[number], end=bounds[number + 1]) for number in range(parts)]


def limited(starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], records_max: int) -> Offsets:
    """Returns ends that bring about `records_max` records, shared out by how much each partition has.

    Every partition that has something gets at least one record, as in Spark's own source: a limit below the number of
    partitions is exceeded rather than letting one of them starve.
    """
    total = sum(max(0, ends[each] - starts[each]) for each in ends)
    if total <= records_max:
        return dict(ends)
    reached: Offsets = {}
    for partition, end in ends.items():
        size = max(0, end - starts[partition])
        share = max(min(size, 1), records_max * size // total)
        reached[partition] = starts[partition] + share if size else end
    return reached


def offsets_to_json(offsets: Mapping[TopicPartition, int]) -> OffsetsJson:
    json: OffsetsJson = {}
    for partition in sorted(offsets):
        json.setdefault(partition.topic, {})[str(partition.partition)] = offsets[partition]
    return json


def offsets_from_json(json: Mapping[str, Any]) -> Offsets:
    """Raises ValueError unless it is topics of partitions of whole numbers."""
    offsets: Offsets = {}
    for topic, partitions in json.items():
        if not isinstance(partitions, Mapping):
            raise ValueError(f'topic {topic!r}: expected {{"partition": offset}}, not {partitions!r}')
        for index, offset in partitions.items():
            if not str(index).isdecimal() or isinstance(offset, bool) or not isinstance(offset, int):
                raise ValueError(f"topic {topic!r}: {index!r}: {offset!r} is not a partition and its offset")
            offsets[TopicPartition(topic, int(index))] = offset
    return offsets

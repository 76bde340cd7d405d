"""Restriction of a live tail to the offsets that may have records for which conditions are true.

Conditions on `_partition` and `_offset` apply to offset ranges directly. For a lower bound of `_timestamp` or `_date`,
the brokers return the first offset at or after it (ListOffsets); all records before that offset are older. There is no
such offset for an upper bound, because timestamps need not ascend.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final, NamedTuple

from chronik.client.records import TopicPartition
from chronik.pipeline.query.conditions import ColumnCondition, Conjunction, Operator
from chronik.pipeline.source.offset_ranges import OffsetRange
from chronik.pipeline.source.offset_resolver import NO_MATCHING_OFFSET
from chronik.pipeline.tables.layout import DATE, MS_PER_DAY, OFFSET, PARTITION, TIMESTAMP

FindOffsets = Callable[[Mapping[TopicPartition, int]], Mapping[TopicPartition, int]]
"""Returns the first offset of each partition at or after a timestamp in milliseconds, or NO_MATCHING_OFFSET."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

_LOWER_BOUNDS: Final = (Operator.EQUAL, Operator.IN, Operator.GREATER, Operator.GREATER_OR_EQUAL)
"""Operators with a smallest value for which the condition may be true."""


class _Needed(NamedTuple):
    """The part of an offset range that one reference needs, without regard to timestamps."""

    range: OffsetRange
    timestamp_ms: int | None


def restrict_tail(
    ranges: Iterable[OffsetRange], references: Sequence[Conjunction], find_offsets: FindOffsets
) -> tuple[OffsetRange, ...]:
    """Return the parts of offset ranges that any of the references to a topic may need, as one range per partition.

    Raises:
        ClientError, KafkaError: The brokers cannot find the offsets of timestamps.
    """
    found = []
    first_offsets: dict[int, Mapping[TopicPartition, int]] = {}
    needed = [(whole, list(_list_needed_parts(whole, references))) for whole in ranges]
    for timestamp in {part.timestamp_ms for _, parts in needed for part in parts if part.timestamp_ms is not None}:
        partitions = [
            whole.topic_partition for whole, parts in needed for part in parts if part.timestamp_ms == timestamp
        ]
        first_offsets[timestamp] = find_offsets(dict.fromkeys(partitions, timestamp))
    for whole, parts in needed:
        restricted = [_start_at_timestamp(part, first_offsets) for part in parts]
        remaining = [each for each in restricted if each.size > 0]
        if remaining:
            start, end = min(each.start for each in remaining), max(each.end for each in remaining)
            found.append(whole._replace(start=start, end=end))
    return tuple(found)


def _start_at_timestamp(part: _Needed, first_offsets: Mapping[int, Mapping[TopicPartition, int]]) -> OffsetRange:
    if part.timestamp_ms is None:
        return part.range
    first = first_offsets[part.timestamp_ms][part.range.topic_partition]
    return part.range._replace(start=part.range.end if first == NO_MATCHING_OFFSET else max(part.range.start, first))


def _list_needed_parts(whole: OffsetRange, references: Sequence[Conjunction]) -> Iterable[_Needed]:
    for conditions in references:
        if any(each.column == PARTITION and not _may_be(each, whole.partition) for each in conditions):
            continue
        start, end = whole.start, whole.end
        for each in conditions:
            if each.column == OFFSET:
                low, high = _list_bounds(each)
                start, end = max(start, low if low is not None else start), min(end, high if high is not None else end)
        if start < end:
            times = [time for each in conditions if (time := _find_first_timestamp_ms(each)) is not None]
            yield _Needed(whole._replace(start=start, end=end), max(times, default=None))


def _may_be(condition: ColumnCondition, number: int) -> bool:
    """Return whether a condition may be true for a number that is not null."""
    if condition.operator is Operator.IS_NULL:
        return False
    if any(type(value) is not int for value in condition.values):
        return True
    if condition.operator in (Operator.NOT_EQUAL, Operator.NOT_IN):
        return number not in condition.values
    if condition.operator is Operator.IN:
        return number in condition.values
    low, high = _list_bounds(condition)
    return (low is None or number >= low) and (high is None or number < high)


def _list_bounds(condition: ColumnCondition) -> tuple[int | None, int | None]:
    """Return the first number for which a condition may be true, and the one after the last; None if unbounded."""
    values = condition.values
    if condition.operator is Operator.IS_NULL:
        return 0, 0  # partitions and offsets are never null
    if not values or any(type(value) is not int for value in values):
        return None, None
    bounds: dict[Operator, tuple[int | None, int | None]] = {
        Operator.EQUAL: (values[0], values[0] + 1),
        Operator.IN: (min(values), max(values) + 1),
        Operator.GREATER: (values[0] + 1, None),
        Operator.GREATER_OR_EQUAL: (values[0], None),
        Operator.LESS: (None, values[0]),
        Operator.LESS_OR_EQUAL: (None, values[0] + 1),
    }
    return bounds.get(condition.operator, (None, None))


def _find_first_timestamp_ms(condition: ColumnCondition) -> int | None:
    """Return a timestamp before which the condition is true for no record; None if there is none.

    Records with other timestamps than those from 1970 to 9999 have no `_timestamp` and no `_date`.
    """
    if condition.operator not in _LOWER_BOUNDS or condition.column not in (TIMESTAMP, DATE):
        return None
    convert = _convert_timestamp if condition.column == TIMESTAMP else _convert_date
    times = [convert(value) for value in condition.values]
    known = [time for time in times if time is not None]
    return max(0, min(known)) if len(known) == len(times) else None


def _convert_timestamp(value: Any) -> int | None:
    if not isinstance(value, datetime) or value.tzinfo is None:
        return None
    return (value - _EPOCH) // timedelta(milliseconds=1)


def _convert_date(value: Any) -> int | None:
    return (value - _EPOCH.date()).days * MS_PER_DAY if type(value) is date else None

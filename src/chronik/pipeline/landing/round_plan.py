"""Planning of a landing round: the shares of the topics, the ranges of a topic, and their division into tasks.

Pure functions. A round lands all topics together, so its size bounds how long a small topic waits for a large one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from chronik.errors import ChronikError
from chronik.pipeline.source.offset_ranges import Offsets, limit_end_offsets
from chronik.pipeline.tables.commit_plan import PartitionRange

TASK_RECORDS_MIN = 20_000
"""Minimum number of records per landing task. A smaller task takes longer to start than to run, and writes a small
file."""

TASK_OVERHEAD_RECORDS = 2_000
"""Number of records that take about as long to land as the start of a task and its files do."""

TASK_GROUPS_PER_CORE = 4
"""Number of groups of small tasks per core. Several groups even out tasks that take longer than others."""

RECORD_BYTES_ASSUMED = 1024
"""Size of a record that is assumed until records of the topic have been read."""

RangeBundle = tuple[PartitionRange, ...]
"""The offset ranges that one task reads and writes."""


class RecordsDeletedError(ChronikError):
    """Retention has deleted records before they were written to the table."""


class PartitionTruncatedError(ChronikError):
    """A partition ends before the table's next offset: a new leader may not know the end yet, or records were lost."""


@dataclass(frozen=True, slots=True)
class RoundPlan:
    """The offset ranges of a topic to write to its table in one round."""

    ranges: tuple[PartitionRange, ...]
    """At most one range per partition, starting at the table's next offset."""
    empty_ranges: tuple[PartitionRange, ...]
    """Empty ranges that set a new table's next offset for partitions that have no record to land."""
    missing_offsets: tuple[str, ...]
    """Descriptions of offset gaps between the table and the topic."""
    is_complete: bool
    """Whether the table contains all remaining records of the topic after this round."""


def plan_round(
    next_offsets: Mapping[int, int],
    earliest: Offsets,
    ends: Offsets,
    *,
    first: Offsets | None = None,
    up_to: Offsets | None = None,
    records_max: int,
    allow_data_loss: bool,
) -> RoundPlan:
    """Plan the offset ranges of a round, given the table's next offsets and the topic's start and end offsets.

    A new table starts at the offsets `first`, or with the earliest records. With `up_to`, only its partitions are read,
    up to its offsets. With `allow_data_loss`, ranges include deleted offsets, which the reader skips.

    Raises:
        RecordsDeletedError: The topic no longer has the records that the table needs next.
        PartitionTruncatedError: A partition ends before the table's next offset.
    """
    limits = dict(ends) if up_to is None else {each: min(ends[each], up_to[each]) for each in ends if each in up_to}
    # An existing table without a next offset for a partition had no records to land there, so records missing before
    # the partition's first one were lost. (0 is a valid offset.)
    is_new = not next_offsets
    new_starts = earliest if first is None else {each: max(earliest[each], first.get(each, 0)) for each in earliest}
    starts = {each: next_offsets.get(each.partition, new_starts[each] if is_new else 0) for each in limits}
    gone = [
        f"{each}: offsets {start} to {earliest[each] - 1} were deleted before they landed: the log start offset is"
        f" {earliest[each]}"
        for each, start in starts.items()
        if start < min(earliest[each], limits[each])
    ]
    truncated = [
        f"{each}: the table has landed up to offset {start}, but the partition ends at {ends[each]}"
        for each, start in starts.items()
        if ends[each] < start
    ]
    if not allow_data_loss:
        if gone:
            raise RecordsDeletedError(f"{'; '.join(gone)} (use --allow-data-loss to skip them)")
        if truncated:
            raise PartitionTruncatedError("; ".join(truncated))
    reached = limit_end_offsets(starts, limits, records_max)
    spans = tuple(
        PartitionRange(each.partition, starts[each], reached[each])
        for each in sorted(limits)
        if starts[each] < reached[each]
    )
    empty = tuple(
        PartitionRange(each.partition, 0, new_starts[each])
        for each in sorted(limits)
        if new_starts[each] > 0 and starts[each] >= reached[each]
    )
    return RoundPlan(spans, empty if is_new else (), (*gone, *truncated), is_complete=reached == limits)


@dataclass(frozen=True, slots=True)
class TopicDemand:
    """The records that a topic could land in a round."""

    records: int
    """Number of records, at most the topic's own limit."""
    record_bytes: float = RECORD_BYTES_ASSUMED
    """Estimated size of a record."""
    waited_rounds: int = 0
    """Number of consecutive rounds in which the topic had records but no share."""

    @property
    def bytes(self) -> float:
        return self.records * self.record_bytes


def share_round(demands: Sequence[TopicDemand], bytes_max: float) -> list[int]:
    """Divide a round of `bytes_max` bytes fairly among topics, and return each topic's number of records.

    The shares are max-min fair: topics that need less than an equal share get all that they need, and the others share
    the rest equally. The shares exceed `bytes_max` only if it is less than one record. A topic whose equal share is
    less than a record waits, and gets a record first in one of the next rounds.
    """
    shares = [0] * len(demands)
    remaining = bytes_max
    waiting = [index for index, each in enumerate(demands) if each.waited_rounds > 0 and each.records > 0]
    for index in sorted(waiting, key=lambda index: -demands[index].waited_rounds):
        if demands[index].record_bytes <= remaining or remaining == bytes_max:
            shares[index] = 1
            remaining -= demands[index].record_bytes
    level = _find_fair_level([each.bytes for each in demands if each.records > 0], max(0.0, remaining))
    for index, each in enumerate(demands):
        if each.bytes <= level:
            share = each.records
        else:
            share = min(each.records, int(level / each.record_bytes))
        shares[index] = max(shares[index], share)
    if not any(shares):
        for index in [index for index, each in enumerate(demands) if each.records > 0][:1]:
            shares[index] = 1
    return shares


def _find_fair_level(sizes: Sequence[float], total: float) -> float:
    """Return the largest share such that all sizes, limited to the share, add up to at most `total`."""
    remaining = total
    for rank, size in enumerate(sorted(sizes)):
        equal = remaining / (len(sizes) - rank)
        if size > equal:
            return equal
        remaining -= size
    return max(sizes, default=0.0)


def bundle_ranges(spans: Sequence[PartitionRange], tasks_max: int) -> list[RangeBundle]:
    """Divide the ranges into tasks of equal size to use all cores. Small partitions share a task."""
    total = sum(span.end - span.start for span in spans)
    count = max(1, min(tasks_max, total // TASK_RECORDS_MIN))
    limits = [total * number // count for number in range(1, count + 1)]
    found: list[list[PartitionRange]] = [[]]
    assigned = 0
    for span in spans:
        start = span.start
        while start < span.end:
            end = min(span.end, start + limits[len(found) - 1] - assigned)
            found[-1].append(PartitionRange(span.partition, start, end))
            assigned += end - start
            start = end
            if assigned == limits[len(found) - 1] and len(found) < count:
                found.append([])
    return [tuple(bundle) for bundle in found if bundle]


def group_tasks(offset_counts: Sequence[int], parallelism: int) -> list[range]:
    """Group consecutive tasks so that each group is worth a Spark task; return the ranges of their indexes."""
    costs = [count + TASK_OVERHEAD_RECORDS for count in offset_counts]
    limit = max(TASK_RECORDS_MIN, sum(costs) // (TASK_GROUPS_PER_CORE * parallelism))
    groups: list[range] = []
    start = cost = 0
    for index, each in enumerate(costs):
        if index > start and cost + each > limit:
            groups.append(range(start, index))
            start, cost = index, 0
        cost += each
    return [*groups, range(start, len(costs))] if costs else []

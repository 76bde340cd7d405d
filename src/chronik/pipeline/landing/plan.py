"""What a round lands: from where the table ends to where the topic ends, and which task reads what. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from chronik.errors import ChronikError
from chronik.pipeline.reading.ranges import Offsets, limited
from chronik.pipeline.tables.spans import Span

TASK_RECORDS_MIN = 20_000
"""Fewer are not worth another task: they would take less time than starting it, and make another small file."""

Bundle = tuple[Span, ...]
"""What one task reads and writes together."""


class RecordsGone(ChronikError):
    """Records that the table does not have yet are gone from the topic."""


class PartitionShorter(ChronikError):
    """A partition ends before the table does: a new leader may not know yet how far it is, or records were lost."""


@dataclass(frozen=True, slots=True)
class Plan:
    spans: tuple[Span, ...]
    """At most one of each partition, from exactly the table's next offset on."""
    empty: tuple[Span, ...]
    """For a new table: partitions that had records once and have none to land now, which the table is to know of."""
    gone: tuple[str, ...]
    """What is missing between the table and the topic, in words."""
    complete: bool
    """Nothing is left when these have landed."""


def plan_round(
    next_offsets: Mapping[int, int],
    earliest: Offsets,
    ends: Offsets,
    *,
    up_to: Offsets | None = None,
    records_max: int,
    allow_data_loss: bool,
) -> Plan:
    """`earliest` and `ends` are where the partitions begin and end now; with `up_to` only those partitions are read,
    and no further.

    Raises RecordsGone when the topic no longer has what the table needs next, PartitionShorter when it ends before the
    table does; unless that is allowed: then the span covers it, and reading passes over it.
    """
    cuts = dict(ends) if up_to is None else {each: min(ends[each], up_to[each]) for each in ends if each in up_to}
    # A table that has nothing takes what there is. Later, a partition without a next offset had no record yet (or the
    # table would know it), so it has lost what is missing before its first one. (0 is an offset, not "none".)
    is_new = not next_offsets
    starts = {each: next_offsets.get(each.partition, earliest[each] if is_new else 0) for each in cuts}
    gone = [
        f"{each}: offsets {start} to {earliest[each] - 1} are gone: it starts at {earliest[each]} now"
        for each, start in starts.items()
        if start < min(earliest[each], cuts[each])
    ]
    shorter = [
        f"{each}: the table has landed up to {start}, but the partition ends at {ends[each]} now"
        for each, start in starts.items()
        if ends[each] < start
    ]
    if not allow_data_loss:
        if gone:
            raise RecordsGone(f"{'; '.join(gone)} (--allow-data-loss goes on without them)")
        if shorter:
            raise PartitionShorter("; ".join(shorter))
    reached = limited(starts, cuts, records_max)
    spans = tuple(
        Span(each.partition, starts[each], reached[each]) for each in sorted(cuts) if starts[each] < reached[each]
    )
    empty = tuple(
        Span(each.partition, 0, earliest[each])
        for each in sorted(cuts)
        if earliest[each] > 0 and starts[each] >= reached[each]
    )
    return Plan(spans, empty if is_new else (), (*gone, *shorter), complete=reached == cuts)


def bundles(spans: Sequence[Span], tasks_max: int) -> list[Bundle]:
    """Lays the spans one after the other and cuts them into equally long pieces: all cores work, few files are written,
    and partitions with little in them share a task."""
    total = sum(span.end - span.start for span in spans)
    count = max(1, min(tasks_max, total // TASK_RECORDS_MIN))
    cuts = [total * number // count for number in range(1, count + 1)]
    found: list[list[Span]] = [[]]
    passed = 0
    for span in spans:
        start = span.start
        while start < span.end:
            end = min(span.end, start + cuts[len(found) - 1] - passed)
            found[-1].append(Span(span.partition, start, end))
            passed += end - start
            start = end
            if passed == cuts[len(found) - 1] and len(found) < count:
                found.append([])
    return [tuple(bundle) for bundle in found if bundle]

"""Plan of a commit: each offset of a partition is committed once and in order. Pure functions.

The table's next offsets are authoritative. Written ranges are either entirely new (they start where the table ends) or
already committed (after a retry, by a second driver, or because a response was lost). Any others are rejected and must
be planned again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from chronik.errors import ChronikError, check_invariant


class CommitRejectedError(ChronikError):
    """A commit does not continue the table at its next offsets. The landing round must be planned again."""

    is_undecided: bool = False
    """Whether an earlier attempt of the commit may yet succeed, so that its files must not be deleted."""


class OverlappingRangesError(CommitRejectedError):
    """A range to commit overlaps offsets that the table already has, or another range of the commit."""


class OffsetGapError(CommitRejectedError):
    """A range to commit starts after the table's next offset, so the records in between would be missing."""


class SchemaChangedError(CommitRejectedError):
    """The table's schema was changed after the files were written."""


class WrittenFilesLostError(CommitRejectedError):
    """A vacuum has deleted uncommitted files, or may delete them before the commit. They must be written again."""


@dataclass(frozen=True, slots=True)
class PartitionRange:
    """Offsets of a partition from `start` (inclusive) to `end` (exclusive).

    It may contain fewer records than offsets, or none: compaction, aborted transactions and retention leave gaps.
    """

    partition: int
    start: int
    end: int

    def __post_init__(self) -> None:
        check_invariant(self.partition >= 0 and 0 <= self.start < self.end, f"invalid offset range: {self!r}")

    def __str__(self) -> str:
        return f"partition {self.partition} [{self.start}, {self.end})"


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A Parquet data file that a task has written and that is not part of the table until a commit adds it."""

    path: str
    """Path relative to the table."""
    size_bytes: int
    rows: int
    partition_values: Mapping[str, str | None]
    stats: str
    """Statistics as JSON, in the format of Delta's add action."""
    modified_ms: int


@dataclass(frozen=True, slots=True)
class TaskOutput:
    """The output of one task: files with exactly the records of its ranges, committed atomically."""

    ranges: tuple[PartitionRange, ...]
    files: tuple[WrittenFile, ...] = ()

    def __post_init__(self) -> None:
        check_invariant(bool(self.ranges), "a task's output must cover at least one offset range")

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)


@dataclass(frozen=True, slots=True)
class CommitPlan:
    """The task outputs that a commit adds to a table, and the table's next offsets after the commit."""

    new_outputs: tuple[TaskOutput, ...]
    committed_outputs: tuple[TaskOutput, ...]
    """Outputs whose records an earlier commit has already added."""
    next_offsets: dict[int, int]
    """Next offsets of all partitions that advance with this commit."""


def plan_commit(
    landed: Iterable[TaskOutput], next_offsets: Mapping[int, int], *, allow_gaps: bool = False
) -> CommitPlan:
    """Return the plan for committing task outputs to a table with the given next offsets.

    `allow_gaps` allows gaps between ranges, for a table that receives only some of a topic's records.

    Raises:
        CommitRejectedError: An output overlaps the table or leaves a gap.
    """
    fresh: list[TaskOutput] = []
    present: list[TaskOutput] = []
    for each in landed:
        # A partition without a next offset has no rows yet and may start anywhere; 0 is a valid next offset.
        is_committed = [span.end <= next_offsets.get(span.partition, -1) for span in each.ranges]
        (present if all(is_committed) else fresh).append(each)
    return CommitPlan(tuple(fresh), tuple(present), _advance_offsets(fresh, next_offsets, allow_gaps))


def _advance_offsets(fresh: Iterable[TaskOutput], next_offsets: Mapping[int, int], gaps: bool) -> dict[int, int]:
    moved: dict[int, int] = {}
    spans = sorted((span for each in fresh for span in each.ranges), key=lambda span: (span.partition, span.start))
    for span in spans:
        position = moved.get(span.partition, next_offsets.get(span.partition))
        if position is not None and span.start < position:
            raise OverlappingRangesError(f"{span}: the table continues at {position}")
        if position is not None and span.start > position and not gaps:
            raise OffsetGapError(f"{span}: the table continues at {position}")
        moved[span.partition] = span.end
    return moved


def exclude_committed_offsets(spans: Iterable[PartitionRange], next_offsets: Mapping[int, int]) -> list[PartitionRange]:
    """Remove the offsets that the table already has from the ranges, so that a retry writes no duplicates."""
    remaining = []
    for span in spans:
        start = max(span.start, next_offsets.get(span.partition, span.start))
        if start < span.end:
            remaining.append(PartitionRange(span.partition, start, span.end))
    return remaining

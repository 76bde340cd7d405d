"""Plan of a commit: each offset of a partition is committed once and in order. Pure functions.

The table's next offsets are authoritative. Written ranges are either entirely new (they start where the table ends) or
already committed (after a retry, by a second driver, or because a response was lost). Any others are rejected and must
be planned again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from chronik.errors import ChronikError, invariant


class CommitRefused(ChronikError):
    """Written ranges that do not continue the table. They must be planned again from its next offsets."""


class SpansOverlap(CommitRefused):
    """Written ranges of which only a part is committed already."""


class SpansLeaveGap(CommitRefused):
    """Written ranges that start after the table's next offset, so that records in between would never land."""


class FilesGone(CommitRefused):
    """Written files that a vacuum has deleted as orphans, or may delete before the commit. Write them again."""


@dataclass(frozen=True, slots=True)
class Span:
    """Offsets of a partition from `start` (inclusive) to `end` (exclusive).

    It may contain fewer records than offsets, or none: compaction, aborted transactions and retention leave gaps.
    """

    partition: int
    start: int
    end: int

    def __post_init__(self) -> None:
        invariant(self.partition >= 0 and 0 <= self.start < self.end, f"invalid offset range: {self!r}")

    def __str__(self) -> str:
        return f"partition {self.partition} [{self.start}, {self.end})"


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A Parquet data file of a table that is not committed yet."""

    path: str
    """Path relative to the table."""
    size_bytes: int
    rows: int
    partition_values: Mapping[str, str | None]
    stats: str
    """Statistics as JSON, as in Delta's add action."""
    modified_ms: int


@dataclass(frozen=True, slots=True)
class Landed:
    """The output of one task: files with exactly the records of its ranges, to be committed all or none."""

    spans: tuple[Span, ...]
    files: tuple[WrittenFile, ...] = ()

    def __post_init__(self) -> None:
        invariant(bool(self.spans), "a task's output must cover at least one offset range")

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)


@dataclass(frozen=True, slots=True)
class Choice:
    """A plan of a commit: which task outputs are new, and the next offsets after it."""

    fresh: tuple[Landed, ...]
    present: tuple[Landed, ...]
    """Outputs whose records an earlier commit has already added."""
    moved: dict[int, int]
    """Next offsets of all partitions that advance with this commit."""


def choose(landed: Iterable[Landed], next_offsets: Mapping[int, int], *, gaps: bool = False) -> Choice:
    """Return which task outputs to commit to a table with these next offsets.

    `allow_gaps` allows gaps between ranges, for a table that receives only some of a topic's records.

    Raises:
        CommitRejectedError: An output overlaps the table or leaves a gap.
    """
    fresh: list[Landed] = []
    present: list[Landed] = []
    for each in landed:
        # A partition without a next offset has no rows yet and may start anywhere; 0 is a valid next offset.
        is_committed = [span.end <= next_offsets.get(span.partition, -1) for span in each.spans]
        (present if all(is_committed) else fresh).append(each)
    return Choice(tuple(fresh), tuple(present), _advance_offsets(fresh, next_offsets, gaps))


def _advance_offsets(fresh: Iterable[Landed], next_offsets: Mapping[int, int], gaps: bool) -> dict[int, int]:
    moved: dict[int, int] = {}
    spans = sorted((span for each in fresh for span in each.spans), key=lambda span: (span.partition, span.start))
    for span in spans:
        position = moved.get(span.partition, next_offsets.get(span.partition))
        if position is not None and span.start < position:
            raise SpansOverlap(f"{span}: the table continues at {position}")
        if position is not None and span.start > position and not gaps:
            raise SpansLeaveGap(f"{span}: the table continues at {position}")
        moved[span.partition] = span.end
    return moved


def still_to_land(spans: Iterable[Span], next_offsets: Mapping[int, int]) -> list[Span]:
    """Return the ranges without the offsets that the table already has, so that a retry writes nothing twice."""
    remaining = []
    for span in spans:
        start = max(span.start, next_offsets.get(span.partition, span.start))
        if start < span.end:
            remaining.append(Span(span.partition, start, span.end))
    return remaining

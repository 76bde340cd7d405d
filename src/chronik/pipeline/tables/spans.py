"""What a table may take in: each offset of a partition once, in order, and nothing twice. Pure.

The table's own next offsets are the truth. What was written is either all new (it starts exactly where the table ends),
or all there already (a replay, a second driver, an answer that got lost), or it is refused and must be planned again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from chronik.errors import ChronikError, invariant


class CommitRefused(ChronikError):
    """What was written does not continue the table: plan again from its next offsets."""


class SpansOverlap(CommitRefused):
    """Some of these records are in the table already, and others of the same files are not."""


class SpansLeaveGap(CommitRefused):
    """Records between the table's next offset and these would be missing from it for ever."""


class FilesGone(CommitRefused):
    """A vacuum has taken what was written for orphans, before its commit, or may at any moment: write it again."""


@dataclass(frozen=True, slots=True)
class Span:
    """Offsets [start, end) of a partition. It may hold fewer records than offsets, even none: compaction, aborted
    transactions and retention leave gaps, which belong to the span around them."""

    partition: int
    start: int
    end: int

    def __post_init__(self) -> None:
        invariant(self.partition >= 0 and 0 <= self.start < self.end, f"not a span of offsets: {self!r}")

    def __str__(self) -> str:
        return f"partition {self.partition} [{self.start}, {self.end})"


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A Parquet file under the table that no commit names yet."""

    path: str
    """Relative to the table."""
    size_bytes: int
    rows: int
    partition_values: Mapping[str, str | None]
    stats: str
    """JSON text, as Delta's add action takes it."""
    modified_ms: int


@dataclass(frozen=True, slots=True)
class Landed:
    """What one task wrote. Its files hold exactly the records of its spans, so they are taken in or left out as one."""

    spans: tuple[Span, ...]
    files: tuple[WrittenFile, ...] = ()

    def __post_init__(self) -> None:
        invariant(bool(self.spans), "what landed must say which offsets it covers")

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)


@dataclass(frozen=True, slots=True)
class Choice:
    fresh: tuple[Landed, ...]
    present: tuple[Landed, ...]
    """Its records are in the table by an earlier commit."""
    moved: dict[int, int]
    """The next offset of every partition that moves when `fresh` is committed."""


def choose(landed: Iterable[Landed], next_offsets: Mapping[int, int], *, gaps: bool = False) -> Choice:
    """Chooses what of `landed` is to be committed to a table that is at `next_offsets`. `gaps`: for a table that takes
    only some of a topic's records, and so is not told of every span. Raises CommitRefused."""
    fresh: list[Landed] = []
    present: list[Landed] = []
    for each in landed:
        # A partition without a next offset has never landed: it may start anywhere. (0 is an offset, not "none".)
        known = [span.end <= next_offsets.get(span.partition, -1) for span in each.spans]
        (present if all(known) else fresh).append(each)
    return Choice(tuple(fresh), tuple(present), _moved(fresh, next_offsets, gaps))


def _moved(fresh: Iterable[Landed], next_offsets: Mapping[int, int], gaps: bool) -> dict[int, int]:
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
    """Returns spans without what the table has: a replay planned so writes nothing twice, however it was cut before."""
    rest = []
    for span in spans:
        start = max(span.start, next_offsets.get(span.partition, span.start))
        if start < span.end:
            rest.append(Span(span.partition, start, span.end))
    return rest

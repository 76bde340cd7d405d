"""Statistics over interleaved rounds, and targets for them.

Each round measures all servers, and ratios are computed within a round, so that other load on the machine affects
both sides.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from chronik.bench.report import format_number

MISSED_LABEL: Final = "**missed**"


@dataclass(frozen=True, slots=True)
class Spread:
    """Median, minimum and maximum of the values of all rounds."""

    median: float
    least: float
    most: float

    @classmethod
    def from_values(cls, values: Sequence[float]) -> Spread:
        return cls(median(values), min(values), max(values))


def median_ratio(values: Sequence[float], baselines: Sequence[float]) -> float:
    """Return the median of the per-round ratios of a value to its baseline."""
    return median(value / baseline for value, baseline in zip(values, baselines, strict=True))


@dataclass(frozen=True, slots=True)
class BenchmarkTarget:
    """A target value and the measured value."""

    what: str
    wanted: str
    measured: float
    met: bool


def at_least(what: str, measured: float, limit: float) -> BenchmarkTarget:
    return BenchmarkTarget(what, f"at least {format_number(limit)}", measured, measured >= limit)


def below(what: str, measured: float, limit: float) -> BenchmarkTarget:
    return BenchmarkTarget(what, f"below {format_number(limit)}", measured, measured < limit)


def rotate(names: Sequence[str], round_number: int) -> list[str]:
    """Return the servers in a rotated order for each round, so that none always follows the same one."""
    start = round_number % len(names)
    return [*names[start:], *names[:start]]


def format_markdown_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Format a Markdown table with a left-aligned first column and right-aligned numbers."""
    lines = [list(headings), *(list(row) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    separator = [":" + "-" * (widths[0] - 1), *("-" * (width - 1) + ":" for width in widths[1:])]
    lines.insert(1, separator)
    return "\n".join(f"| {' | '.join(_align(line, widths))} |" for line in lines)


def _align(line: Sequence[str], widths: Sequence[int]) -> list[str]:
    return [
        text.rjust(width) if column else text.ljust(width)
        for column, (text, width) in enumerate(zip(line, widths, strict=True))
    ]

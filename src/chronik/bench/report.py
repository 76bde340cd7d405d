"""Results as tables and as JSON, with statistics over interleaved rounds and their targets.

The fields of results end with their unit. Each round measures all servers, and ratios are computed within a round, so
that other load on the machine affects both sides.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields, is_dataclass
from statistics import median
from typing import Any, Final

SIGNIFICANT_DIGITS = 4

MISSED_LABEL: Final = "**missed**"


def format_json(results: list[Any]) -> str:
    values = [asdict(result) for result in results]
    return json.dumps(values[0] if len(values) == 1 else values, indent=2)


def format_table(results: list[Any]) -> str:
    """Format benchmark results as a table with one column per result."""
    columns = [dict(_iter_table_cells(result)) for result in results]
    rows = [[name, *(column[name] for column in columns)] for name in columns[0]]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for name, *texts in rows:
        aligned = (text.rjust(width) for text, width in zip(texts, widths[1:], strict=True))
        lines.append("  ".join([name.ljust(widths[0]), *aligned]))
    return "\n".join(lines)


def _iter_table_cells(result: Any, prefix: str = "") -> Iterator[tuple[str, str]]:
    for field in fields(result):
        value = getattr(result, field.name)
        if is_dataclass(value):
            yield from _iter_table_cells(value, f"{prefix}{field.name} ")
        elif value is not None:
            yield prefix + field.name.replace("_", " "), format_number(value)


def format_number(value: Any) -> str:
    """Format a number with four significant digits, such as 1,234,567, 12.35 or 0.0512."""
    if not isinstance(value, float):
        return f"{value:,}" if isinstance(value, int) else str(value)
    if abs(value) >= 10 ** (SIGNIFICANT_DIGITS - 1):
        return f"{value:,.0f}"
    text = f"{value:.{SIGNIFICANT_DIGITS}g}"
    return text if "e" not in text else f"{value:.6f}"


@dataclass(frozen=True, slots=True)
class Spread:
    """Median, minimum and maximum of a value that each round of a benchmark measures."""

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
    """A performance target of a benchmark, with the measured value and whether it meets the target."""

    what: str
    wanted: str
    measured: float
    met: bool


def build_minimum_target(what: str, measured: float, limit: float) -> BenchmarkTarget:
    return BenchmarkTarget(what, f"at least {format_number(limit)}", measured, measured >= limit)


def below(what: str, measured: float, limit: float) -> BenchmarkTarget:
    return BenchmarkTarget(what, f"below {format_number(limit)}", measured, measured < limit)


def rotate_servers(names: Sequence[str], round_number: int) -> list[str]:
    """Return the server names in an order that rotates by one position per benchmark round.

    This balances effects of the order.
    """
    start = round_number % len(names)
    return [*names[start:], *names[:start]]


def format_markdown_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Format a Markdown table with a left-aligned first column and right-aligned numbers."""
    lines = [list(headings), *(list(row) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    separator = [":" + "-" * (widths[0] - 1), *("-" * (width - 1) + ":" for width in widths[1:])]
    lines.insert(1, separator)
    return "\n".join(f"| {' | '.join(_align_cells(line, widths))} |" for line in lines)


def _align_cells(line: Sequence[str], widths: Sequence[int]) -> list[str]:
    return [
        text.rjust(width) if column else text.ljust(width)
        for column, (text, width) in enumerate(zip(line, widths, strict=True))
    ]

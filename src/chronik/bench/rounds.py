"""Figures of several interleaved rounds: how they are summed up, and whether they meet their targets.

Servers take turns within a round, and a ratio is taken within a round too: whatever else the machine does meanwhile
hits both sides of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from chronik.bench.report import number

MISSED: Final = "**missed**"


@dataclass(frozen=True, slots=True)
class Spread:
    median: float
    least: float
    most: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        return cls(median(values), min(values), max(values))


def median_ratio(values: Sequence[float], floors: Sequence[float]) -> float:
    """Returns the median, over the rounds, of a value divided by the floor's value in the same round."""
    return median(value / floor for value, floor in zip(values, floors, strict=True))


@dataclass(frozen=True, slots=True)
class Target:
    what: str
    wanted: str
    measured: float
    met: bool


def at_least(what: str, measured: float, limit: float) -> Target:
    return Target(what, f"at least {number(limit)}", measured, measured >= limit)


def below(what: str, measured: float, limit: float) -> Target:
    return Target(what, f"below {number(limit)}", measured, measured < limit)


def target_rows(targets: Iterable[Target]) -> list[list[str]]:
    return [
        [target.what, target.wanted, number(target.measured), "met" if target.met else MISSED] for target in targets
    ]


def in_turn(names: Sequence[str], round_number: int) -> list[str]:
    """Returns the servers in another order each round, so that none always follows the same one."""
    start = round_number % len(names)
    return [*names[start:], *names[:start]]


def markdown_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Aligns columns of figures to the right; the first column says what they are."""
    lines = [list(headings), *(list(row) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    rule = [":" + "-" * (widths[0] - 1), *("-" * (width - 1) + ":" for width in widths[1:])]
    lines.insert(1, rule)
    return "\n".join(f"| {' | '.join(_aligned(line, widths))} |" for line in lines)


def _aligned(line: Sequence[str], widths: Sequence[int]) -> list[str]:
    return [
        text.rjust(width) if column else text.ljust(width)
        for column, (text, width) in enumerate(zip(line, widths, strict=True))
    ]

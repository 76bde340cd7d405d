"""What a section of the run tells: named values of several rounds, beside what is wanted of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from chronik.bench.report import number
from chronik.bench.rounds import MISSED, Target, at_least, below, markdown_table


@dataclass(frozen=True, slots=True)
class Plan:
    folder: Path
    """For data, and for what is kept of the run."""
    rounds: int
    seconds: float
    """Of each load."""
    idle_seconds: float
    topics: int
    offsets: int
    megabytes: int
    """Written in one measurement of the standalone broker."""


@dataclass(frozen=True, slots=True)
class Figure:
    """`what` ends in its unit. It is judged by the median; the worst of the rounds is shown beside it."""

    what: str
    rounds: list[float]
    below: float | None = None
    at_least: float | None = None

    @property
    def median(self) -> float:
        return median(self.rounds)

    @property
    def worst(self) -> float:
        return min(self.rounds) if self.at_least is not None else max(self.rounds)

    @property
    def target(self) -> Target | None:
        if self.below is not None:
            return below(self.what, self.median, self.below)
        return None if self.at_least is None else at_least(self.what, self.median, self.at_least)

    def as_json(self) -> dict[str, Any]:
        target = self.target
        return {
            "what": self.what,
            "rounds": self.rounds,
            "median": self.median,
            "worst": self.worst,
            "wanted": target and target.wanted,
            "met": target and target.met,
        }


def figures_table(figures: Sequence[Figure]) -> str:
    return markdown_table(["", "median", "worst", "rounds", "wanted", ""], [_row(figure) for figure in figures])


def _row(figure: Figure) -> list[str]:
    row = [figure.what, number(figure.median), number(figure.worst), str(len(figure.rounds))]
    target = figure.target
    return [*row, "", ""] if target is None else [*row, target.wanted, "met" if target.met else MISSED]

"""Figures of a section: named values of several rounds and their targets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench.results import Cell, ResultTable, format_verdict
from chronik.bench.report import BenchmarkTarget, Spread, below, build_minimum_target


@dataclass(frozen=True)
class ClusterBenchmarkPlan:
    """Parameters of a run."""

    directory: Path
    """Directory for data and results."""
    rounds: int
    seconds: float
    """Duration of each load."""
    idle_seconds: float
    topics: int
    offsets: int
    megabytes: int
    """Written per throughput measurement."""
    sizes: tuple[int, ...] = (3, 7, 15)
    """Cluster sizes to compare."""
    partitions: tuple[int, ...] = (1000, 10_000)
    """Partition counts to compare."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A named value of several rounds, judged by its median. `what` ends with the unit."""

    what: str
    rounds: list[float]
    below: float | None = None
    at_least: float | None = None

    @property
    def spread(self) -> Spread:
        return Spread.from_values(self.rounds)

    @property
    def target(self) -> BenchmarkTarget | None:
        if self.below is not None:
            return below(self.what, self.spread.median, self.below)
        return None if self.at_least is None else build_minimum_target(self.what, self.spread.median, self.at_least)

    def to_json(self) -> dict[str, Any]:
        target = self.target
        return {
            "what": self.what,
            "rounds": self.rounds,
            **asdict(self.spread),
            "wanted": target and target.wanted,
            "met": target and target.met,
        }


def build_table(title: str, figures: Sequence[Figure]) -> ResultTable:
    headings = ["", "median", "min", "max", "rounds", "target", ""]
    return ResultTable(title, headings, [_row(figure) for figure in figures])


def _row(figure: Figure) -> list[Cell]:
    spread, target = figure.spread, figure.target
    row: list[Cell] = [figure.what, spread.median, spread.least, spread.most, len(figure.rounds)]
    return [*row, None, None] if target is None else [*row, target.wanted, format_verdict(target.met)]

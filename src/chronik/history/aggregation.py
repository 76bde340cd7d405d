"""Queries over a time range, and the combination of the answers of several nodes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from math import nan
from typing import Final, NamedTuple

from chronik.history.metrics import METRICS_BY_NAME
from chronik.history.series import RESOLUTIONS, SPAN_S, Resolution, Subject, combine
from chronik.history.store import HistoryAnswer

RANGE_MIN_S: Final = 60
RANGE_MAX_S: Final = SPAN_S
POINTS_MAX: Final = 400
"""Maximum number of values in a series of a response: a whole ring buffer, and some."""


class TimeRange(NamedTuple):
    """The slots of a resolution that a query covers. Each point of the result has `group` of them."""

    resolution: Resolution
    start: int
    points: int
    group: int

    @property
    def step_s(self) -> int:
        """The time between two points in seconds."""
        return self.resolution.step_s * self.group

    @property
    def start_s(self) -> int:
        """The start of the first point in seconds since the epoch."""
        return self.start * self.resolution.step_s

    @property
    def slots(self) -> int:
        """The number of slots."""
        return self.points * self.group


def plan_range(now_s: float, end_s: float, range_s: int, step_s: int | None) -> TimeRange:
    """Return the points from `range_s` before `end_s`, at the highest resolution that goes back that far.

    Without `step_s`, there is a point for each slot. Otherwise, the step is at least `step_s`. There are at most
    `POINTS_MAX` points.
    """
    age_s = now_s - (end_s - range_s)
    resolution = next((each for each in RESOLUTIONS if age_s <= each.slots * each.step_s), RESOLUTIONS[-1])
    wanted_s = max(step_s or 0, resolution.step_s, range_s / POINTS_MAX)
    resolution = max((each for each in RESOLUTIONS if each.step_s <= wanted_s), key=lambda each: each.step_s)
    group = math.ceil(wanted_s / resolution.step_s)
    length_s = group * resolution.step_s
    end = math.ceil(end_s / length_s) * group
    points = min(math.ceil(range_s / length_s), POINTS_MAX)
    return TimeRange(resolution, end - points * group, points, group)


class CombinedSeries(NamedTuple):
    """The values of a metric of a subject, summed over nodes, or their maximum if the metric is a peak."""

    metric: str
    subject: Subject
    values: list[float | None]
    is_partial: bool
    """Whether a node that has the subject keeps no history of it."""


def combine_answers(time_range: TimeRange, answers: Iterable[HistoryAnswer]) -> list[CombinedSeries]:
    """Combine the answers of nodes to the same query. A point is a gap if no node has a value."""
    by_key: dict[tuple[str, Subject], list[Sequence[float]]] = {}
    incomplete: set[Subject] = set()
    for answer in answers:
        incomplete.update(answer.incomplete)
        for each in answer.series:
            by_key.setdefault((each.metric, each.subject), []).append(each.decode())
    return [
        CombinedSeries(metric, subject, _combine_nodes(time_range, metric, rows), subject in incomplete)
        for (metric, subject), rows in by_key.items()
    ]


def _combine_nodes(time_range: TimeRange, metric: str, rows: Sequence[Sequence[float]]) -> list[float | None]:
    is_peak = METRICS_BY_NAME[metric].is_peak
    slots = [_combine_slot(each, is_peak=is_peak) for each in zip(*rows, strict=True)] if len(rows) > 1 else rows[0]
    group = time_range.group
    points = [combine(slots[at : at + group], is_peak=is_peak) for at in range(0, len(slots), group)]
    return [None if math.isnan(each) else _round(each) for each in points]


def _combine_slot(values: Sequence[float], *, is_peak: bool) -> float:
    known = [each for each in values if each == each]
    if not known:
        return nan
    return max(known) if is_peak else sum(known)


def _round(value: float) -> float:
    """Round to the precision of a 32-bit float."""
    return float(f"{value:.7g}")


def rank_subjects(answers: Iterable[HistoryAnswer]) -> list[Subject]:
    """Return the subjects, the busiest first, by the sum of their activity on all nodes."""
    totals: dict[Subject, float] = {}
    for answer in answers:
        for subject, score in answer.subjects:
            totals[subject] = totals.get(subject, 0.0) + score
    return sorted(totals, key=lambda subject: (-totals[subject], subject))


def find_left_out(answers: Iterable[HistoryAnswer]) -> int:
    """Return the largest number of subjects of which a node keeps no history."""
    return max((each.left_out for each in answers), default=0)

"""Time series in ring buffers of decreasing resolution.

Time is divided into slots of ten seconds since the epoch, so that the slots of all nodes are the same. Every sample is
also added to the slots of the lower resolutions. A slot without a sample is a gap: its value is NaN.
"""

from __future__ import annotations

import heapq
import math
from array import array
from collections.abc import Iterator, Mapping, Sequence
from itertools import count, pairwise
from math import nan
from typing import Final, NamedTuple

import msgspec

from chronik.history.metrics import HistoryMetric

STEP_S: Final = 10
"""Length of a slot of the highest resolution in seconds."""


class Resolution(NamedTuple):
    """A ring buffer of each series: the length of its slots, their number, and the position of the first one."""

    step_s: int
    slots: int
    offset: int

    @property
    def ratio(self) -> int:
        """The number of slots of the highest resolution in one slot."""
        return self.step_s // STEP_S

    def position(self, slot: int) -> int:
        """Return the position of a slot in the array of a series."""
        return self.offset + slot % self.slots


RESOLUTIONS: Final = (Resolution(STEP_S, 360, 0), Resolution(60, 360, 360), Resolution(300, 288, 720))
"""Ten seconds for an hour, a minute for six hours, five minutes for a day."""

SLOTS: Final = sum(each.slots for each in RESOLUTIONS)

SPAN_S: Final = RESOLUTIONS[-1].step_s * RESOLUTIONS[-1].slots

CONTINUITY_FACTOR: Final = 3
"""A sample that is late by this multiple of the sampling interval does not continue the previous one."""

SCORE_DECAY: Final = 0.5 ** (STEP_S / 3600)
"""Factor by which the score of a subject decays with each sample: half of it remains after an hour."""

REPLACED_MAX: Final = 16
"""Maximum number of subjects that one sample replaces, because each needs new ring buffers."""

REPLACEMENT_FACTOR: Final = 2.0
"""How many times as busy as a subject with a history another one must be to replace it."""

Subject = tuple[str, ...]
"""The names of a subject; empty for a node."""

_GAPS: Final = array("f", [nan]) * max(each.slots for each in RESOLUTIONS)


class Reading(msgspec.Struct, frozen=True, gc=False):
    """The sampled values of a subject, one for each metric; None is unknown.

    The counters of two readings are comparable only if their `epoch` is the same, for example because the node has led
    the same partitions. The garbage collector does not track readings: there may be many, without cycles.
    """

    values: tuple[float | None, ...]
    epoch: int = 0


class _Row:
    __slots__ = ("arrays", "score")

    def __init__(self, metrics: int, score: float) -> None:
        self.arrays = tuple(array("f", [nan]) * SLOTS for _ in range(metrics))
        self.score = score


class _Candidate(NamedTuple):
    activity: float
    number: int
    subject: Subject
    values: Sequence[float | None]


class SeriesTable:
    """The series of the subjects of one scope. The first metric is the activity by which the busiest are kept."""

    def __init__(self, metrics: Sequence[HistoryMetric], subjects_max: int) -> None:
        self._metrics: Final = tuple(metrics)
        self._subjects_max = subjects_max
        self._rows: dict[Subject, _Row] = {}
        self._previous: Mapping[Subject, Reading] = {}
        self._slot: int | None = None
        self._recorded_s = -math.inf
        self.left_out = 0
        """The number of subjects of the latest sample that have no series."""

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, subject: Subject) -> bool:
        return subject in self._rows

    @property
    def scores(self) -> dict[Subject, float]:
        """The subjects, with their recent maximum activity."""
        return {subject: row.score for subject, row in self._rows.items()}

    def lacks(self, subject: Subject) -> bool:
        """Return whether a subject was in the latest sample, but has no series."""
        return subject in self._previous and subject not in self._rows

    def remove(self, subject: Subject) -> None:
        """Remove the series of a subject that was deleted."""
        self._rows.pop(subject, None)

    # Storage

    @property
    def slot(self) -> int | None:
        """The slot of the latest sample; None without any."""
        return self._slot

    @property
    def metric_names(self) -> tuple[str, ...]:
        """The names of the metrics, in the order of the series of a subject."""
        return tuple(each.name for each in self._metrics)

    def dump(self) -> Iterator[tuple[Subject, float, tuple[bytes, ...]]]:
        """Yield the subjects, their recent maximum activity, and copies of their series."""
        for subject, row in self._rows.items():
            yield subject, row.score, tuple(each.tobytes() for each in row.arrays)

    def restore(self, slot: int, subject: Subject, score: float, series: Mapping[str, bytes]) -> None:
        """Add the series of a subject, by metric, of which `slot` was the latest one. Other metrics have gaps."""
        self._slot = slot
        row = self._rows[subject] = _Row(len(self._metrics), score)
        for metric, values in zip(self._metrics, row.arrays, strict=True):
            if metric.name in series:
                values[:] = array("f", bytes(series[metric.name]))

    # Recording

    def record(
        self, at_s: float, monotonic_s: float, interval_s: float, readings: Mapping[Subject, Reading]
    ) -> Iterator[None]:
        """Record a sample of all subjects, in steps so that the caller can pause.

        `at_s` is the time since the epoch. The sample counts for the whole time since the previous one, unless that is
        much longer than the sampling interval: then the time in between is a gap, and so are the rates of this sample.
        """
        slot = math.floor((at_s - STEP_S / 2) / STEP_S)  # the slot before, for a sample at the end of a slot
        elapsed_s = monotonic_s - self._recorded_s
        previous, first = self._previous, slot
        if not 0 < elapsed_s <= CONTINUITY_FACTOR * interval_s:
            previous = {}
        elif self._slot is not None and 0 < slot - self._slot <= CONTINUITY_FACTOR * interval_s / STEP_S + 1:
            first = self._slot + 1
        self._advance(slot)
        free = self._subjects_max - len(self._rows)
        candidates: list[_Candidate] = []
        numbers = count()
        for subject, reading in readings.items():
            values = self._to_values(reading, previous.get(subject), elapsed_s)
            row = self._rows.get(subject)
            if row is not None:
                row.score = max(row.score * SCORE_DECAY, values[0] or 0.0)
                self._write(row, first, slot, values)
            else:
                candidate = _Candidate(values[0] or 0.0, -next(numbers), subject, values)
                if len(candidates) < free + REPLACED_MAX:
                    heapq.heappush(candidates, candidate)
                else:
                    heapq.heappushpop(candidates, candidate)
            yield
        for subject in self._rows.keys() - readings.keys():
            self._rows[subject].score *= SCORE_DECAY
        for candidate in sorted(candidates, reverse=True):
            if self._admit(candidate):
                self._write(self._rows[candidate.subject], first, slot, candidate.values)
            yield
        self._previous, self._recorded_s = readings, monotonic_s
        self.left_out = len(readings.keys() - self._rows.keys())

    def _to_values(self, reading: Reading, previous: Reading | None, elapsed_s: float) -> list[float | None]:
        """Convert counters to rates. A rate is unknown if the counter was reset or has another epoch."""
        values = list(reading.values)
        is_comparable = previous is not None and previous.epoch == reading.epoch
        for number, metric in enumerate(self._metrics):
            if metric.is_counter:
                now = values[number]
                before = previous.values[number] if previous is not None and is_comparable else None
                values[number] = None if now is None or before is None or now < before else (now - before) / elapsed_s
        return values

    def _admit(self, candidate: _Candidate) -> bool:
        """Create the series of a subject, if there are few or it is busier than another one."""
        if len(self._rows) >= self._subjects_max:
            weakest = min(self._rows, key=lambda subject: self._rows[subject].score)
            if candidate.activity <= REPLACEMENT_FACTOR * self._rows[weakest].score:
                return False
            del self._rows[weakest]
        self._rows[candidate.subject] = _Row(len(self._metrics), candidate.activity)
        return True

    def _advance(self, slot: int) -> None:
        """Turn the slots between the latest one and `slot` into gaps. If the clock was set back, discard later ones."""
        last, self._slot = self._slot, slot
        if last is None:
            return
        for resolution in RESOLUTIONS:
            new, old = slot // resolution.ratio, last // resolution.ratio
            low, high = (old, new) if new > old else (new, old)
            start = max(low + 1, high - resolution.slots + 1)
            first, number = resolution.position(start), high - start + 1
            end = resolution.offset + resolution.slots
            until_end = min(number, end - first)
            for row in self._rows.values() if number > 0 else ():
                for values in row.arrays:
                    values[first : first + until_end] = _GAPS[:until_end]
                    rest = resolution.offset + number - until_end
                    values[resolution.offset : rest] = _GAPS[: number - until_end]

    def _write(self, row: _Row, first: int, slot: int, values: Sequence[float | None]) -> None:
        highest = RESOLUTIONS[0]
        for metric, series, value in zip(self._metrics, row.arrays, values, strict=True):
            if value is None:
                continue
            for each in range(max(first, slot - highest.slots + 1), slot + 1):
                series[highest.position(each)] = value
            for finer, resolution in pairwise(RESOLUTIONS):
                ratio = resolution.step_s // finer.step_s
                latest = slot // finer.ratio  # later slots share positions with old ones
                for each in range(first // resolution.ratio, slot // resolution.ratio + 1):
                    parts = range(each * ratio, min((each + 1) * ratio, latest + 1))
                    known = [series[finer.position(part)] for part in parts]
                    series[resolution.position(each)] = combine(known, is_peak=metric.is_peak)

    # Reading

    def read(self, subject: Subject, metric: str, resolution: Resolution, start: int, number: int) -> array[float]:
        """Return the values of `number` slots of a resolution; NaN where there is none."""
        found = array("f", [nan]) * number
        row = self._rows.get(subject)
        if row is None or self._slot is None:
            return found
        latest = self._slot // resolution.ratio
        series = row.arrays[[each.name for each in self._metrics].index(metric)]
        for slot in range(max(start, latest - resolution.slots + 1), min(start + number, latest + 1)):
            found[slot - start] = series[resolution.position(slot)]
        return found


def combine(values: Sequence[float], *, is_peak: bool) -> float:
    """Return the mean of the values, or their maximum if `is_peak`; NaN if all are gaps."""
    known = [each for each in values if each == each]
    if not known:
        return nan
    return max(known) if is_peak else sum(known) / len(known)

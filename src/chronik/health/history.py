"""Samples of quantities over time, with bounded memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterator, Mapping
from typing import Final, Generic, TypeVar

from chronik.health.facts import Series, TimedValue

K = TypeVar("K", bound=Hashable)

SAMPLES_MAX: Final = 64
"""Maximum number of samples of one quantity."""


class SampleHistory(Generic[K]):
    """The recent samples of quantities, by key. The memory is limited by the number of keys and of samples."""

    def __init__(self, window_s: float, keys_max: int) -> None:
        """Keep the samples of the last `window_s` seconds of at most `keys_max` keys."""
        self._window_s = window_s
        self._spacing_s = window_s / (SAMPLES_MAX - 2)
        self._keys_max = keys_max
        self._series: dict[K, deque[TimedValue]] = {}

    def __len__(self) -> int:
        return len(self._series)

    def record(self, at_s: float, values: Mapping[K, float]) -> None:
        """Record a sample of each quantity. Quantities that are missing are forgotten.

        If there are more than `keys_max`, those with the largest values are kept.
        """
        if len(values) > self._keys_max:
            largest = sorted(values, key=lambda key: -values[key])[: self._keys_max]
            values = {key: values[key] for key in largest}
        self._series = {key: self._append(self._series.get(key), at_s, value) for key, value in values.items()}

    def _append(self, series: deque[TimedValue] | None, at_s: float, value: float) -> deque[TimedValue]:
        sample = TimedValue(at_s, value)
        if series is None or series[-1].at_s > at_s:  # the clock was set back
            return deque((sample,), SAMPLES_MAX)
        if len(series) > 1 and series[-1].at_s - series[-2].at_s < self._spacing_s:
            series[-1] = sample  # the latest value is always kept, but not every one before it
        else:
            series.append(sample)
        while series[0].at_s < at_s - self._window_s:
            series.popleft()
        return series

    def series(self, key: K) -> Series:
        """Return the samples of a quantity; empty if it is unknown."""
        return tuple(self._series.get(key, ()))

    def __iter__(self) -> Iterator[K]:
        """Return an iterator over the keys of all quantities."""
        return iter(self._series)


def measure_growth(series: Series, span_min_s: float) -> float | None:
    """Return by how much a quantity has grown, or None if the samples span less than `span_min_s` seconds.

    The minimum of each half of the samples is compared, so that a quantity that regularly falls back to a low value,
    such as the lag of a consumer that commits once per minute, is not considered to be growing.
    """
    if not series or series[-1].at_s - series[0].at_s < span_min_s:
        return None
    middle_s = (series[0].at_s + series[-1].at_s) / 2
    earlier = min(each.value for each in series if each.at_s <= middle_s)
    return min(each.value for each in series if each.at_s > middle_s) - earlier


def predict_seconds_to_zero(series: Series, span_min_s: float) -> float | None:
    """Return in how many seconds a falling quantity reaches zero at its current rate, or None if it does not fall."""
    if not series or series[-1].at_s - series[0].at_s < span_min_s:
        return None
    first, last = series[0], series[-1]
    fallen = first.value - last.value
    return None if fallen <= 0 else last.value * (last.at_s - first.at_s) / fallen

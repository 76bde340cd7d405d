"""A limit on the number of metric series: only the largest topics and groups get series of their own.

Every series costs memory wherever it is collected, and clients can create any number of topics and groups. The series
of all other topics and groups are aggregated under the label "_other".
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping
from typing import Final, Generic, NamedTuple, TypeVar

from chronik.histogram import LATENCY_SECONDS

K = TypeVar("K")
V = TypeVar("V")

OTHER: Final = "_other"
"""The label of aggregated series. A topic or group with exactly this name is aggregated too."""

NAME_CHARACTERS_MAX: Final = 255
"""Maximum length of a label value. Clients choose group names of up to 32,000 characters; longer ones are
aggregated. Topic names have at most 249."""

HISTOGRAM_SERIES: Final = len(LATENCY_SECONDS) + 3
"""Series of a histogram: its buckets, the +Inf bucket, the sum and the count."""


def is_aggregated(*names: str) -> bool:
    """Return whether a topic or group with one of these names never gets series of its own."""
    return OTHER in names or any(len(name) > NAME_CHARACTERS_MAX for name in names)


class SeriesBudget(NamedTuple):
    """The number of topics and of group lags that get series of their own."""

    topics: int
    lags: int


def divide_series(series: int, topics: int, topic_families: int, lags: int, lag_families: int) -> SeriesBudget:
    """Divide a number of series between topics and group lags. Series that one does not need go to the other."""
    series = max(series, 0)
    topic_series = min(topics * topic_families, max(series // 2, series - lags * lag_families))
    return SeriesBudget(topic_series // topic_families, (series - topic_series) // lag_families)


class LargestRows(Generic[K, V]):
    """The largest rows of a mapping, and the sum of the others. Iterate over `steps` before reading the results."""

    def __init__(
        self,
        rows: Mapping[K, V],
        rows_max: int,
        size: Callable[[V], float],
        add: Callable[[V, V], None],
        rest: V,
        is_aggregated: Callable[[K], bool],
    ) -> None:
        """Create the selection. `rest` must be empty; `add` adds a row to it."""
        self.selected: list[tuple[K, V]] = []
        self.aggregate = rest
        self.aggregated_count = 0
        self._rows = rows
        self._limit = rows_max
        self._size = size
        self._add = add
        self._is_other = is_aggregated

    def select_steps(self) -> Iterator[None]:
        """Select the largest rows and aggregate the others. Yield after each row."""
        heap: list[tuple[float, int]] = []  # A min-heap of (size, -row number): keys may not be comparable.
        limit = self._limit if len(self._rows) <= self._limit else max(self._limit - 1, 0)
        for number, (key, value) in enumerate(self._rows.items()):
            if not self._is_other(key):
                entry = self._size(value), -number
                if len(heap) < limit:
                    heapq.heappush(heap, entry)
                elif limit:
                    heapq.heappushpop(heap, entry)
            yield
        numbers = {-number for _, number in heap}
        for number, (key, value) in enumerate(self._rows.items()):
            if number in numbers:
                self.selected.append((key, value))
            else:
                self._add(self.aggregate, value)
                self.aggregated_count += 1
            yield

"""At most so many series: of topics and groups the largest are told, and the rest is summed up in one of them.

Series cost memory wherever they are collected, and topics and groups are made by clients.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping
from typing import Final, Generic, NamedTuple, TypeVar

from chronik.meters import LATENCY_SECONDS

K = TypeVar("K")
V = TypeVar("V")

OTHER: Final = "_other"
"""The label of what is summed up. What has this very name is summed up, too."""

NAME_CHARACTERS_MAX: Final = 255
"""A group's name may have 32,000 characters, and clients choose it: longer ones are summed up, too. Topics have 249."""

HISTOGRAM_SERIES: Final = len(LATENCY_SECONDS) + 3
"""Each bucket, the last one, the sum and the count."""


def is_summed_up(*names: str) -> bool:
    """Whether what has these names is never told by itself."""
    return OTHER in names or any(len(name) > NAME_CHARACTERS_MAX for name in names)


class Room(NamedTuple):
    """How many rows may be told, where a row has a series in each of several families."""

    topics: int
    lags: int


def shared_out(series: int, topics: int, topic_families: int, lags: int, lag_families: int) -> Room:
    """Shares out `series` among as many topics and lags as there are: what one of them does not need is the other's."""
    series = max(series, 0)
    topic_series = min(topics * topic_families, max(series // 2, series - lags * lag_families))
    return Room(topic_series // topic_families, (series - topic_series) // lag_families)


class Cut(Generic[K, V]):
    """Rows of which the largest are told, and the others added up into `rest`. Go through `steps` first."""

    def __init__(
        self,
        rows: Mapping[K, V],
        room: int,
        size: Callable[[V], float],
        add: Callable[[V, V], None],
        rest: V,
        is_other: Callable[[K], bool],
    ) -> None:
        """`rest` is empty, and `add` adds a row to it."""
        self.told: list[tuple[K, V]] = []
        self.rest = rest
        self.left_out = 0
        self._rows = rows
        self._room = room
        self._size = size
        self._add = add
        self._is_other = is_other

    def steps(self) -> Iterator[None]:
        least: list[tuple[float, int]] = []  # the largest, the least of them first; numbers, as keys may not compare
        room = self._room if len(self._rows) <= self._room else max(self._room - 1, 0)
        for number, (key, value) in enumerate(self._rows.items()):
            if not self._is_other(key):
                ranked = self._size(value), -number
                if len(least) < room:
                    heapq.heappush(least, ranked)
                elif room:
                    heapq.heappushpop(least, ranked)
            yield
        numbers = {-number for _, number in least}
        for number, (key, value) in enumerate(self._rows.items()):
            if number in numbers:
                self.told.append((key, value))
            else:
                self._add(self.rest, value)
                self.left_out += 1
            yield

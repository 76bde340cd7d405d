"""What checkers find, and what they find it with."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator
from itertools import accumulate
from typing import Generic, NamedTuple, TypeAlias, TypeVar

from tests.chaos.evidence import Evidence

K = TypeVar("K", bound=Hashable)


class Finding(NamedTuple):
    kind: str
    what: str
    at: float | None = None
    """When, if it was at one moment."""

    def __str__(self) -> str:
        return f"{self.kind}: {self.what}"


Checker: TypeAlias = Callable[[Evidence], Iterator[Finding]]


class Floors(Generic[K]):
    """How far something was known to reach, by time: an answer that came later may tell more, and never less."""

    def __init__(self, known: Iterable[tuple[K, float, int]], lowest: int = 0) -> None:
        """`lowest`: what can be said when nothing was known yet."""
        self._lowest = lowest
        by_key: dict[K, list[tuple[float, int]]] = defaultdict(list)
        for key, at, end in known:
            by_key[key].append((at, end))
        self._times: dict[K, list[float]] = {}
        self._ends: dict[K, list[int]] = {}
        for key, points in by_key.items():
            points.sort()
            self._times[key] = [at for at, _ in points]
            self._ends[key] = list(accumulate((end for _, end in points), max))

    def before(self, key: K, at: float) -> int:
        """What was learnt at that very moment does not count."""
        count = bisect_left(self._times.get(key, []), at)
        return self._ends[key][count - 1] if count else self._lowest

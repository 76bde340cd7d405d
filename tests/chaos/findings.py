"""Findings of the checkers, and helpers to find them."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator
from itertools import accumulate
from typing import Generic, NamedTuple, TypeAlias, TypeVar

from tests.chaos.evidence import Evidence

K = TypeVar("K", bound=Hashable)


class Finding(NamedTuple):
    """A violation of an invariant."""

    kind: str
    what: str
    at: float | None = None
    """The time of the violation, if it has one."""

    def __str__(self) -> str:
        return f"{self.kind}: {self.what}"


Checker: TypeAlias = Callable[[Evidence], Iterator[Finding]]


class LowerBounds(Generic[K]):
    """Lower bounds of growing values, by time: a later response must not return less."""

    def __init__(self, known: Iterable[tuple[K, float, int]], lowest: int = 0) -> None:
        """`lowest` is the bound before anything is known."""
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

    def bound_before(self, key: K, at: float) -> int:
        """Return the bound before a moment. Values learnt at that very moment do not count."""
        count = bisect_left(self._times.get(key, []), at)
        return self._ends[key][count - 1] if count else self._lowest

"""Slicing of long work on the event loop, so that other work can run in between."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from time import perf_counter
from typing import Final, TypeVar

from chronik.scheduler import SLICE_SECONDS, yield_loop

T = TypeVar("T")

CHUNK_ELEMENTS: Final = 500
"""The maximum number of elements per chunk that `iter_chunks` yields."""


class YieldTimer:
    """A timer that makes a long-running coroutine yield to the event loop once per time slice."""

    __slots__ = ("_began",)

    def __init__(self) -> None:
        self._began = perf_counter()

    async def yield_if_due(self) -> None:
        """Yield to the event loop if the time slice has expired."""
        if perf_counter() - self._began > SLICE_SECONDS:
            await yield_loop()
            self._began = perf_counter()


def iter_chunks(elements: Iterable[T]) -> Iterator[list[T]]:
    """Yield the elements in lists of at most CHUNK_ELEMENTS, so that the caller can yield to the event loop."""
    if isinstance(elements, list) and len(elements) <= CHUNK_ELEMENTS:
        yield elements
        return
    left = iter(elements)
    while some := list(islice(left, CHUNK_ELEMENTS)):
        yield some

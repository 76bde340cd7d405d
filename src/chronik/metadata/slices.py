"""Long work on the event loop, in slices that leave the loop to others in between."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterable, Iterator
from itertools import islice
from time import perf_counter  # uvloop's own time counts whole milliseconds, which is a slice
from typing import Final, TypeVar

T = TypeVar("T")

SLICE_SECONDS: Final = 0.002
"""Long enough that handing over the loop costs little; a read that comes meanwhile hardly notices."""

PIECE_ELEMENTS: Final = 500


async def in_slices(steps: Generator[None, None, T]) -> T:
    """Runs `steps` and returns what it returns. It yields wherever it may be interrupted, every few hundred µs."""
    began = perf_counter()
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
        if perf_counter() - began > SLICE_SECONDS:
            await asyncio.sleep(0)
            began = perf_counter()


class Pace:
    """For a coroutine whose awaits may all be ready at once, so that it would never let others run."""

    __slots__ = ("_began",)

    def __init__(self) -> None:
        self._began = perf_counter()

    async def breathe(self) -> None:
        if perf_counter() - self._began > SLICE_SECONDS:
            await asyncio.sleep(0)
            self._began = perf_counter()


def in_pieces(elements: Iterable[T]) -> Iterator[list[T]]:
    """Yields pieces, after each of which the caller may let others run."""
    if isinstance(elements, list) and len(elements) <= PIECE_ELEMENTS:
        yield elements
        return
    left = iter(elements)
    while some := list(islice(left, PIECE_ELEMENTS)):
        yield some

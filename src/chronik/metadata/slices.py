"""Long work on the event loop, in slices that let other work run in between."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from time import perf_counter
from typing import Final, TypeVar

from chronik.scheduler import SLICE_SECONDS, yield_loop

T = TypeVar("T")

PIECE_ELEMENTS: Final = 500


class Pace:
    """Interrupts a coroutine that would otherwise never let other work run, because all its awaits are ready."""

    __slots__ = ("_began",)

    def __init__(self) -> None:
        self._began = perf_counter()

    async def yield_if_due(self) -> None:
        """Let other work run if the coroutine has had the loop for a slice."""
        if perf_counter() - self._began > SLICE_SECONDS:
            await yield_loop()
            self._began = perf_counter()


def in_pieces(elements: Iterable[T]) -> Iterator[list[T]]:
    """Yield chunks, after each of which the caller can let other work run."""
    if isinstance(elements, list) and len(elements) <= PIECE_ELEMENTS:
        yield elements
        return
    left = iter(elements)
    while some := list(islice(left, PIECE_ELEMENTS)):
        yield some

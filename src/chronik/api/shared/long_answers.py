"""Answers that may be long: built in slices that leave the loop to others, counted while they grow, encoded aside.

One request may name a quarter of a million things, and a few bytes may ask for all that a node knows. Handlers walk
over such lists as generators that yield between two elements. What is done soon is answered at once, as nearly
everything is; the rest goes on as a task, in slices, and its response is encoded in a thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator, Hashable, Iterable
from time import perf_counter
from typing import Final, NamedTuple, TypeVar, cast

from chronik.limits import ANSWER_BYTES_MAX
from chronik.metadata import slices
from chronik.protocol.codec import encode_element
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.protocol.schema import Response, Struct

R = TypeVar("R", bound=Response)
T = TypeVar("T")
E = TypeVar("E", bound=Struct)


AT_ONCE_SECONDS: Final = 0.005
"""What is answered at once may hold the loop so long: nearly all that clients ask is done in a fraction of it, and need
not wait for a task's turn."""


class Long(NamedTuple):
    """A response that took more than a slice to build: to encode it would hold the loop, too."""

    response: Response


def at_once_or_in_slices(steps: Generator[None, None, R]) -> R | Coroutine[None, None, Long]:
    """Returns what `steps` returns, which yields wherever it may be interrupted."""
    began = perf_counter()
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return cast(R, end.value)
        if perf_counter() - began > AT_ONCE_SECONDS:
            return _in_slices(steps)


async def _in_slices(steps: Generator[None, None, R]) -> Long:
    await asyncio.sleep(0)
    return Long(await slices.in_slices(steps))


class Elements:
    """Elements of one of a response's own arrays, encoded one by one, as long as there is room for them."""

    def __init__(self, message: type[Response], version: int, bytes_max: int = ANSWER_BYTES_MAX) -> None:
        self._message = message
        self._version = version
        self._room = bytes_max
        self._found: list[Struct | bytes] = []

    def add(self, element: Struct | bytes) -> None:
        """Raises KafkaError when the answer would become too long; what it has stays."""
        encoded = element if isinstance(element, bytes) else encode_element(self._message, element, self._version)
        if len(encoded) > self._room:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "The answer would be too long: ask for less at a time")
        self._room -= len(encoded)
        self._found.append(encoded)

    def refuse(self, element: Struct) -> None:
        """Adds an error, which says little more than the request. It is encoded later, so that the log can show it."""
        self._found.append(element)

    def as_array_of(self, kind: type[E]) -> list[E]:
        """Returns them for the response: the codec takes what was encoded before as well."""
        return cast(list[E], self._found)


def once(named: Iterable[T], key: Callable[[T], Hashable]) -> list[T]:
    """Returns each thing once, in the place of its first naming and as last named, as most of Kafka's handlers do."""
    return list({key(each): each for each in named}.values())

"""Responses that may be long.

One request may name a quarter of a million things, and a few bytes may ask for all that a node knows. Handlers of such
requests return `Reply.of_steps`: a generator that yields after each element that it examines.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from functools import partial
from typing import TypeVar, cast

from chronik.limits import ANSWER_BYTES_MAX
from chronik.protocol.codec import encode_element
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.protocol.schema import Response, Struct
from chronik.scheduler import response_grew

T = TypeVar("T")
E = TypeVar("E", bound=Struct)


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
        response_grew(len(encoded))
        self._found.append(encoded)

    def encoder(self, element: Struct) -> Callable[[], bytes]:
        """Return a function that encodes an element, for a thread. Add its result."""
        return partial(encode_element, self._message, element, self._version)

    def refuse(self, element: Struct) -> None:
        """Adds an error, which says little more than the request. It is encoded later, so that the log can show it."""
        self._found.append(element)

    def as_array_of(self, kind: type[E]) -> list[E]:
        """Returns them for the response: the codec takes what was encoded before as well."""
        return cast(list[E], self._found)


def once(named: Iterable[T], key: Callable[[T], Hashable]) -> list[T]:
    """Returns each thing once, in the place of its first naming and as last named, as most of Kafka's handlers do."""
    return list({key(each): each for each in named}.values())

"""Responses that may be long: bounded, encoded element by element.

One request may name a quarter of a million objects, and a request of a few bytes may ask for the whole image. Handlers
of such requests return `Reply.from_steps`: a generator that yields after each element that it examines.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from functools import partial
from typing import TypeVar, cast

from chronik.limits import LISTING_RESPONSE_BYTES_MAX
from chronik.protocol.codec import encode_element
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.protocol.schema import Response, Struct
from chronik.scheduler import count_response_bytes

T = TypeVar("T")
E = TypeVar("E", bound=Struct)


class ResponseElements:
    """A builder of a long response array, which encodes each element and limits the total size."""

    def __init__(self, message: type[Response], version: int, bytes_max: int = LISTING_RESPONSE_BYTES_MAX) -> None:
        self._message = message
        self._version = version
        self._bytes_left = bytes_max
        self._elements: list[Struct | bytes] = []

    def add(self, element: Struct | bytes) -> None:
        """Encode an element and append it to the response's array.

        Raises:
            KafkaError: The response would exceed the limit. The previous elements are retained.
        """
        encoded = element if isinstance(element, bytes) else encode_element(self._message, element, self._version)
        if len(encoded) > self._bytes_left:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, "The response would be too large: request fewer items at a time"
            )
        self._bytes_left -= len(encoded)
        count_response_bytes(len(encoded))
        self._elements.append(encoded)

    def create_encoder(self, element: Struct) -> Callable[[], bytes]:
        """Return a function that encodes an element of the response, for use in a thread.

        Pass its result to `add`.
        """
        return partial(encode_element, self._message, element, self._version)

    def add_error(self, element: Struct) -> None:
        """Append an error element, which does not count against the limit.

        It is hardly larger than the request itself, and is encoded later, so that the debug log can show its error.
        """
        self._elements.append(element)

    def to_list(self, kind: type[E]) -> list[E]:
        """Return the response's elements as a list.

        The codec also accepts encoded elements.
        """
        return cast(list[E], self._elements)


def deduplicate(elements: Iterable[T], key: Callable[[T], Hashable]) -> list[T]:
    """Remove elements with duplicate keys from a request's list, as Kafka does in most handlers.

    Each key keeps the position of its first and the value of its last occurrence.
    """
    return list({key(each): each for each in elements}.values())

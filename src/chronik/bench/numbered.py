"""A request that is encoded once and sent many times, with another number each time, and whose good answer is known
beforehand.

To make messages and to read them is most of what a client does. Without it one process of Python sends and times ten
thousand requests per second, and leaves the processors to the brokers.
"""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from collections.abc import Callable
from time import perf_counter
from typing import Final, cast

from chronik.bench.arguments import CLIENT_ID
from chronik.bench.errors import BenchFailed
from chronik.protocol.codec import RequestHeader, decode_response, encode_request, encode_response
from chronik.protocol.schema import Request, Response

NUMBER: Final = 0x4E75_6D62_6572_6564
"""Stands in a request for the number that is sent in its place: an int64 that nothing else has."""

_INT32: Final = struct.Struct(">i")
_INT64: Final = struct.Struct(">q")
_CORRELATION_ID_IN_REQUEST: Final = 8
_CORRELATION_ID_IN_ANSWER: Final = 4


class NumberedRequest:
    def __init__(self, request: Request, version: int, good_answer: Response) -> None:
        self._key, self._version = request.__schema__.api_key, version
        self._frame = bytearray(encode_request(RequestHeader(self._key, version, 0, CLIENT_ID), request))
        self._places = _places_of(_INT64.pack(NUMBER), self._frame)
        self._good_answer = bytearray(b"".join(encode_response(0, version, good_answer)))

    def frame(self, number: int) -> bytes:
        frame = self._frame
        _INT32.pack_into(frame, _CORRELATION_ID_IN_REQUEST, number)
        for place in self._places:
            _INT64.pack_into(frame, place, number)
        return bytes(frame)

    def is_answered_well(self, number: int, frame: bytearray) -> bool:
        _INT32.pack_into(self._good_answer, _CORRELATION_ID_IN_ANSWER, number)
        return frame == self._good_answer

    def decoded(self, number: int, frame: bytearray) -> Response:
        """Returns an answer that is not the good one. Raises BenchFailed when it is another request's."""
        correlation_id, response = decode_response(self._key, self._version, memoryview(frame)[_INT32.size :])
        if correlation_id != number:
            raise BenchFailed(f"request {number} was answered as {correlation_id}")
        return response


class NumberedPipe(asyncio.Protocol):
    """A connection for one request, any number of them under way. `answered` is told when a number was sent that is
    answered well, `refused` has the other answers too, `lost` is told of a connection that ends with numbers under
    way."""

    def __init__(
        self,
        request: NumberedRequest,
        answered: Callable[[float], None],
        refused: Callable[[int, float, Response], None],
        lost: Callable[[BenchFailed], None],
    ) -> None:
        self._request = request
        self._answered = answered
        self._refused = refused
        self._lost = lost
        self._under_way: deque[tuple[int, float]] = deque()
        self._received = bytearray()
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is not a subclass

    def connection_lost(self, error: Exception | None) -> None:
        if self._under_way:
            self._lost(BenchFailed(f"the broker closed the connection: {error or 'without a reason'}"))

    def send(self, number: int, sent: float | None = None) -> None:
        """`sent` is when the number was sent first, if it was sent before."""
        if self._transport.is_closing():
            self._lost(BenchFailed("the broker closed the connection"))
            return
        self._under_way.append((number, perf_counter() if sent is None else sent))
        self._transport.write(self._request.frame(number))

    def data_received(self, data: bytes) -> None:
        received = self._received
        received += data
        while len(received) >= _INT32.size:
            end = _INT32.size + _INT32.unpack_from(received)[0]
            if end > len(received):
                return
            frame = received[:end]
            del received[:end]
            self._take(frame)

    def _take(self, frame: bytearray) -> None:
        number, sent = self._under_way.popleft()
        if self._request.is_answered_well(number, frame):
            self._answered(sent)
            return
        try:
            self._refused(number, sent, self._request.decoded(number, frame))
        except BenchFailed as error:
            self._lost(error)

    def close(self) -> None:
        self._under_way.clear()
        self._transport.close()


def _places_of(wanted: bytes, frame: bytearray) -> list[int]:
    places = []
    place = frame.find(wanted)
    while place >= 0:
        places.append(place)
        place = frame.find(wanted, place + len(wanted))
    return places

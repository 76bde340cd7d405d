"""Pre-encoded requests: encoded once, sent many times with different numbers, and compared with an expected response.

Encoding and decoding dominate the cost of a client. Without them, one Python process sends and times ten thousand
requests per second and leaves the CPU to the brokers.
"""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from collections.abc import Callable
from time import perf_counter
from typing import Final, cast

from chronik.bench.arguments import CLIENT_ID
from chronik.bench.errors import BenchmarkError
from chronik.protocol.codec import RequestHeader, decode_response, encode_request, encode_response
from chronik.protocol.schema import Request, Response

PLACEHOLDER: Final = 0x4E75_6D62_6572_6564
"""Placeholder (int64) for the request number in an encoded request.

No other field has this value.
"""

_INT32: Final = struct.Struct(">i")
_INT64: Final = struct.Struct(">q")
_CORRELATION_ID_IN_REQUEST: Final = 8
_CORRELATION_ID_IN_RESPONSE: Final = 4


class RequestTemplate:
    """An encoded request with a placeholder for the request number, and the expected response."""

    def __init__(self, request: Request, version: int, expected_response: Response) -> None:
        self._key, self._version = request.__schema__.api_key, version
        self._frame = bytearray(encode_request(RequestHeader(self._key, version, 0, CLIENT_ID), request))
        self._number_positions = _find_placeholder_positions(_INT64.pack(PLACEHOLDER), self._frame)
        self._expected_response = bytearray(b"".join(encode_response(0, version, expected_response)))

    def build_frame(self, number: int) -> bytes:
        frame = self._frame
        _INT32.pack_into(frame, _CORRELATION_ID_IN_REQUEST, number)
        for position in self._number_positions:
            _INT64.pack_into(frame, position, number)
        return bytes(frame)

    def is_expected_response(self, number: int, frame: bytearray) -> bool:
        _INT32.pack_into(self._expected_response, _CORRELATION_ID_IN_RESPONSE, number)
        return frame == self._expected_response

    def decode_unexpected_response(self, number: int, frame: bytearray) -> Response:
        """Decode a response that differs from the expected one, to report its error.

        Raises BenchmarkError if it belongs to another request.
        """
        correlation_id, response = decode_response(self._key, self._version, memoryview(frame)[_INT32.size :])
        if correlation_id != number:
            raise BenchmarkError(f"request {number}: response has correlation id {correlation_id}")
        return response


class TemplateConnection(asyncio.Protocol):
    """A pipelined connection that sends instances of one request template.

    `answered` is called with the send time of a request after its expected response, `refused` with any other response,
    and `lost` when the connection closes with requests in flight.
    """

    def __init__(
        self,
        request: RequestTemplate,
        answered: Callable[[float], None],
        refused: Callable[[int, float, Response], None],
        lost: Callable[[BenchmarkError], None],
    ) -> None:
        self._request = request
        self._answered = answered
        self._refused = refused
        self._lost = lost
        self._in_flight: deque[tuple[int, float]] = deque()
        self._received = bytearray()
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is not a subclass

    def connection_lost(self, error: Exception | None) -> None:
        if self._in_flight:
            self._lost(BenchmarkError(f"the broker closed the connection: {error or 'no reason given'}"))

    def send(self, number: int, sent: float | None = None) -> None:
        """Send the request with this number; for a retry, `sent` is the time of the first attempt."""
        if self._transport.is_closing():
            self._lost(BenchmarkError("the broker closed the connection"))
            return
        self._in_flight.append((number, perf_counter() if sent is None else sent))
        self._transport.write(self._request.build_frame(number))

    def data_received(self, data: bytes) -> None:
        received = self._received
        received += data
        while len(received) >= _INT32.size:
            end = _INT32.size + _INT32.unpack_from(received)[0]
            if end > len(received):
                return
            frame = received[:end]
            del received[:end]
            self._on_response(frame)

    def _on_response(self, frame: bytearray) -> None:
        number, sent = self._in_flight.popleft()
        if self._request.is_expected_response(number, frame):
            self._answered(sent)
            return
        try:
            self._refused(number, sent, self._request.decode_unexpected_response(number, frame))
        except BenchmarkError as error:
            self._lost(error)

    def close(self) -> None:
        self._in_flight.clear()
        self._transport.abort()  # a TLS shutdown may outlast the event loop


def _find_placeholder_positions(needle: bytes, frame: bytearray) -> list[int]:
    positions = []
    position = frame.find(needle)
    while position >= 0:
        positions.append(position)
        position = frame.find(needle, position + len(needle))
    return positions

"""A low-level Kafka client for tests, which sends any request version or arbitrary bytes."""

from __future__ import annotations

import socket
import struct
from types import TracebackType
from typing import TypeVar

from chronik.protocol.codec import RequestHeader, decode_response, encode_request
from chronik.protocol.schema import Request, Response

R = TypeVar("R", bound=Response)

TIMEOUT_SECONDS = 30.0


class ConnectionClosed(AssertionError):
    """The broker has closed the connection instead of sending a response."""


class RawClient:
    """A synchronous Kafka client that sends requests of any version, or arbitrary bytes."""

    def __init__(self, bootstrap: str) -> None:
        host, _, port = bootstrap.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), TIMEOUT_SECONDS)
        self.client_id = "raw"
        self._correlation_id = 0

    def __enter__(self) -> RawClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    def request(self, request: Request, version: int, response_type: type[R]) -> R:
        self.send(request, version)
        return self.receive(request, version, response_type)

    def send(self, request: Request, version: int) -> None:
        self._correlation_id += 1
        header = RequestHeader(request.__schema__.api_key, version, self._correlation_id, self.client_id)
        self.send_bytes(encode_request(header, request))

    def receive(self, request: Request, version: int, response_type: type[R]) -> R:
        frame = self.read_frame()
        if frame is None:
            raise ConnectionClosed("the broker closed the connection")
        correlation_id, response = decode_response(request.__schema__.api_key, version, memoryview(frame))
        assert correlation_id <= self._correlation_id
        assert isinstance(response, response_type)
        return response

    def send_frame(self, payload: bytes) -> None:
        self.send_bytes(struct.pack(">i", len(payload)) + payload)

    def send_bytes(self, data: bytes) -> None:
        self.socket.sendall(data)

    def read_frame(self) -> bytes | None:
        """Return the next frame, or None if the broker has closed the connection."""
        size = self._read(4)
        return None if size is None else self._read(struct.unpack(">i", size)[0])

    def wait_for_close(self) -> bool:
        """Wait until the broker closes the connection; fail if it sends a response instead."""
        return self.read_frame() is None

    def _read(self, count: int) -> bytes | None:
        data = bytearray()
        while len(data) < count:
            try:
                piece = self.socket.recv(count - len(data))
            except ConnectionResetError:
                return None
            if not piece:
                return None
            data += piece
        return bytes(data)

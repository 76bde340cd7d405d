"""A scripted broker that returns the bytes a test specifies, to simulate faults of a broker."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from chronik.config import Address
from chronik.protocol.apis import API_VERSIONS_KEY, APIS
from chronik.protocol.codec import RequestHeader, decode_request_header, encode_response
from chronik.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse

ResponseScript = Callable[[RequestHeader], bytes | None]
"""Returns the bytes to send, or None to close the connection."""


def build_api_versions(**max_versions: int) -> ApiVersionsResponse:
    """Return all of Chronik's APIs, some of them limited to a maximum version."""
    return ApiVersionsResponse(
        api_keys=[
            ApiVersion(
                api_key=api.key, min_version=api.min_version, max_version=max_versions.get(api.name, api.max_version)
            )
            for api in APIS.values()
        ]
    )


def encode_frame(header: RequestHeader, response: ApiVersionsResponse, version: int | None = None) -> bytes:
    return b"".join(
        encode_response(header.correlation_id, header.api_version if version is None else version, response)
    )


def respond_with_all_versions(header: RequestHeader) -> bytes:
    return encode_frame(header, build_api_versions())


@contextmanager
def scripted_broker(answer: ResponseScript, versions: ResponseScript = respond_with_all_versions) -> Iterator[Address]:
    """Serve ApiVersions with `versions` and all other requests with `answer`, one connection at a time."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            with connection, suppress(ConnectionError):  # the client may disconnect during a response
                _serve_connection(connection, answer, versions)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield Address(*server.getsockname())
    finally:
        server.shutdown(socket.SHUT_RDWR)
        server.close()
        thread.join()


def _serve_connection(connection: socket.socket, answer: ResponseScript, versions: ResponseScript) -> None:
    with connection.makefile("rb") as stream:
        while len(size := stream.read(4)) == 4:
            header, _ = decode_request_header(memoryview(stream.read(*struct.unpack(">i", size))))
            response_bytes = (versions if header.api_key == API_VERSIONS_KEY else answer)(header)
            if response_bytes is None:
                return
            connection.sendall(response_bytes)

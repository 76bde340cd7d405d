"""HTTP download with a limit on the total time and size.

A socket timeout applies to each read only, so a server that sends one byte at a time could stall the caller forever.
"""

from __future__ import annotations

import socket
import threading
import urllib.request
from contextlib import suppress
from functools import partial
from http.client import HTTPConnection, HTTPResponse, HTTPSConnection
from types import TracebackType
from typing import Any


def download(url: str, seconds: float, bytes_max: int) -> bytes:
    """Return the body of a URL.

    Raises:
        OSError: The connection failed or took too long.
        HTTPException: The response is invalid.
        ValueError: The body is larger than `bytes_max`.
    """
    with _FetchDeadline(seconds) as deadline:
        opener = urllib.request.build_opener(_HttpHandler(deadline), _HttpsHandler(deadline))
        return read_bounded(opener.open(url, timeout=seconds), bytes_max)


def read_bounded(source: Any, bytes_max: int) -> bytes:
    """Read the whole file or response; raise ValueError if it is larger than `bytes_max`."""
    with source:
        data: bytes = source.read(bytes_max + 1)
    if len(data) > bytes_max:
        raise ValueError(f"more than {bytes_max} bytes")
    return data


class _FetchDeadline:
    """A total time limit on outbound connections: they are shut down when it expires."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._timer = threading.Timer(seconds, self._expire)
        self._timer.daemon = True
        self._lock = threading.Lock()
        self._sockets: list[socket.socket] = []
        self._is_expired = False

    def __enter__(self) -> _FetchDeadline:
        self._timer.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._timer.cancel()
        with self._lock:
            for each in self._sockets:
                each.close()
            self._sockets.clear()
        if self._is_expired:
            raise TimeoutError(f"no complete response within {self._seconds:g} s") from None

    def add_socket(self, connected: socket.socket) -> None:
        """Register a socket to shut down at the deadline, by a duplicate descriptor because TLS detaches the socket."""
        with self._lock:
            self._sockets.append(connected.dup())
        if self._is_expired:
            self._expire()

    def _expire(self) -> None:
        self._is_expired = True
        with self._lock:
            for each in self._sockets:
                with suppress(OSError):  # already closed
                    each.shutdown(socket.SHUT_RDWR)


class _Connection(HTTPConnection):
    deadline: _FetchDeadline

    def connect(self) -> None:
        super().connect()
        self.deadline.add_socket(self.sock)


class _SecureConnection(HTTPSConnection, _Connection):
    """An HTTPS connection; `connect` of the base class runs before the TLS handshake."""


def _new_connection(kind: type[_Connection], deadline: _FetchDeadline, host: str, **options: Any) -> _Connection:
    connection = kind(host, **options)
    connection.deadline = deadline
    return connection


class _HttpHandler(urllib.request.HTTPHandler):
    def __init__(self, deadline: _FetchDeadline) -> None:
        super().__init__()
        self._deadline = deadline

    def http_open(self, req: urllib.request.Request) -> HTTPResponse:
        return self.do_open(partial(_new_connection, _Connection, self._deadline), req)


class _HttpsHandler(urllib.request.HTTPSHandler):
    def __init__(self, deadline: _FetchDeadline) -> None:
        super().__init__()
        self._deadline = deadline

    def https_open(self, req: urllib.request.Request) -> HTTPResponse:
        return self.do_open(partial(_new_connection, _SecureConnection, self._deadline), req)

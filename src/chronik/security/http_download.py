"""HTTP requests to servers of an identity provider, with limits on the total time and the size of the response.

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


def download_url(url: str, seconds: float, bytes_max: int) -> bytes:
    """Download a URL and return the body.

    Raises:
        OSError: The connection failed or took too long.
        HTTPException: The response is invalid.
        ValueError: The body is larger than `bytes_max`.
    """
    with _FetchDeadline(seconds) as deadline:
        opener = urllib.request.build_opener(_HttpHandler(deadline), _HttpsHandler(deadline))
        return read_with_size_limit(opener.open(url, timeout=seconds), bytes_max)


def post_form(url: str, form: bytes, headers: dict[str, str], seconds: float, bytes_max: int) -> tuple[int, bytes]:
    """Send a form and return the status and the body. Redirects are not followed, because the form contains secrets.

    Raises:
        OSError: The connection failed or took too long.
        HTTPException: The response is invalid.
        ValueError: The body is larger than `bytes_max`.
    """
    request = urllib.request.Request(url, form, headers, method="POST")
    with _FetchDeadline(seconds) as deadline:
        opener = urllib.request.OpenerDirector()
        for handler in (_HttpHandler(deadline), _HttpsHandler(deadline)):
            opener.add_handler(handler)
        response = opener.open(request, timeout=seconds)
        assert isinstance(response, HTTPResponse)
        return response.status, read_with_size_limit(response, bytes_max)


def read_with_size_limit(source: Any, bytes_max: int) -> bytes:
    """Read the whole file or response; raise ValueError if it is larger than `bytes_max`."""
    with source:
        data: bytes = source.read(bytes_max + 1)
    if len(data) > bytes_max:
        raise ValueError(f"more than {bytes_max} bytes")
    return data


class _FetchDeadline:
    """A time limit for an HTTP download. When it expires, the registered connections are shut down."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._timer = threading.Timer(seconds, self._on_deadline_expired)
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
        """Register a socket to shut down at the deadline. A duplicate is stored, since TLS detaches the socket."""
        with self._lock:
            self._sockets.append(connected.dup())
        if self._is_expired:
            self._on_deadline_expired()

    def _on_deadline_expired(self) -> None:
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
    """An HTTPS connection whose socket is registered with the deadline before the TLS handshake."""


def _create_connection(kind: type[_Connection], deadline: _FetchDeadline, host: str, **options: Any) -> _Connection:
    connection = kind(host, **options)
    connection.deadline = deadline
    return connection


class _HttpHandler(urllib.request.HTTPHandler):
    def __init__(self, deadline: _FetchDeadline) -> None:
        super().__init__()
        self._deadline = deadline

    def http_open(self, req: urllib.request.Request) -> HTTPResponse:
        return self.do_open(partial(_create_connection, _Connection, self._deadline), req)


class _HttpsHandler(urllib.request.HTTPSHandler):
    def __init__(self, deadline: _FetchDeadline) -> None:
        super().__init__()
        self._deadline = deadline

    def https_open(self, req: urllib.request.Request) -> HTTPResponse:
        return self.do_open(partial(_create_connection, _SecureConnection, self._deadline), req)

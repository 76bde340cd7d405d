"""HTTP requests to servers of an identity provider, with limits on the total time and the size of the response.

A socket timeout applies to each read and to each address only, so a server that sends one byte at a time, or has many
addresses that do not respond, could stall the caller. The limit includes everything except the resolution of the name.
"""

from __future__ import annotations

import socket
import threading
import time
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
        for handler in (urllib.request.ProxyHandler(), _HttpHandler(deadline), _HttpsHandler(deadline)):
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
    """A time limit for an HTTP request. When it expires, the registered connections are shut down."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._ends_at = time.monotonic() + seconds
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

    def connect(self, address: tuple[str, int], *_: object) -> socket.socket:
        """Connect to the first address of a host that responds in the time that is left.

        The signature is that of `socket.create_connection`.
        """
        error: OSError = TimeoutError(f"no connection within {self._seconds:g} s")
        for family, kind, protocol, _name, found in socket.getaddrinfo(*address, type=socket.SOCK_STREAM):
            seconds_left = self._ends_at - time.monotonic()
            if seconds_left <= 0:
                break
            connection = socket.socket(family, kind, protocol)
            try:
                connection.settimeout(seconds_left)
                connection.connect(found)
            except OSError as failure:
                connection.close()
                error = failure
            else:
                # TLS detaches the socket, so a duplicate is shut down at the deadline.
                self._add_socket(connection.dup())
                return connection
        raise error

    def _add_socket(self, connected: socket.socket) -> None:
        with self._lock:
            self._sockets.append(connected)
        if self._is_expired:
            self._on_deadline_expired()

    def _on_deadline_expired(self) -> None:
        self._is_expired = True
        with self._lock:
            for each in self._sockets:
                with suppress(OSError):  # already closed
                    each.shutdown(socket.SHUT_RDWR)


def _create_connection(
    kind: type[HTTPConnection], deadline: _FetchDeadline, host: str, **options: Any
) -> HTTPConnection:
    connection = kind(host, **options)
    connection._create_connection = deadline.connect  # type: ignore[attr-defined]
    return connection


class _HttpHandler(urllib.request.HTTPHandler):
    def __init__(self, deadline: _FetchDeadline) -> None:
        super().__init__()
        self._deadline = deadline

    def http_open(self, req: urllib.request.Request) -> HTTPResponse:
        return self.do_open(partial(_create_connection, HTTPConnection, self._deadline), req)


class _HttpsHandler(urllib.request.HTTPSHandler):
    def __init__(self, deadline: _FetchDeadline) -> None:
        super().__init__()
        self._deadline = deadline

    def https_open(self, req: urllib.request.Request) -> HTTPResponse:
        return self.do_open(partial(_create_connection, HTTPSConnection, self._deadline), req)

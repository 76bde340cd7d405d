"""What an address tells, within a time and a size: a socket's own timeout holds for each read of it, so that whoever
says a byte at a time could go on forever."""

from __future__ import annotations

import socket
import threading
import urllib.request
from contextlib import suppress
from functools import partial
from http.client import HTTPConnection, HTTPResponse, HTTPSConnection
from types import TracebackType
from typing import Any


def fetched(url: str, seconds: float, bytes_max: int) -> bytes:
    """Raises OSError, http.client.HTTPException or ValueError."""
    with _Watch(seconds) as watch:
        opener = urllib.request.build_opener(_Plainly(watch), _Securely(watch))
        return bounded(opener.open(url, timeout=seconds), bytes_max)


def bounded(source: Any, bytes_max: int) -> bytes:
    """Raises ValueError if it has more."""
    with source:
        data: bytes = source.read(bytes_max + 1)
    if len(data) > bytes_max:
        raise ValueError(f"more than {bytes_max} bytes")
    return data


class _Watch:
    """Ends connections when their time is over, whatever they are at."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._timer = threading.Timer(seconds, self._end)
        self._timer.daemon = True
        self._lock = threading.Lock()
        self._seen: list[socket.socket] = []
        self._is_over = False

    def __enter__(self) -> _Watch:
        self._timer.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._timer.cancel()
        with self._lock:
            for each in self._seen:
                each.close()
            self._seen.clear()
        if self._is_over:
            raise TimeoutError(f"it took more than {self._seconds:g} s") from None

    def see(self, connected: socket.socket) -> None:
        """Has a descriptor of its own: TLS takes the other over."""
        with self._lock:
            self._seen.append(connected.dup())
        if self._is_over:
            self._end()

    def _end(self) -> None:
        self._is_over = True
        with self._lock:
            for each in self._seen:
                with suppress(OSError):  # it is over already
                    each.shutdown(socket.SHUT_RDWR)


class _Connection(HTTPConnection):
    watch: _Watch

    def connect(self) -> None:
        super().connect()
        self.watch.see(self.sock)


class _SecureConnection(HTTPSConnection, _Connection):
    """Calls `connect` of the other before its TLS handshake."""


def _watched(kind: type[_Connection], watch: _Watch, host: str, **options: Any) -> _Connection:
    connection = kind(host, **options)
    connection.watch = watch
    return connection


class _Plainly(urllib.request.HTTPHandler):
    def __init__(self, watch: _Watch) -> None:
        super().__init__()
        self._watch = watch

    def http_open(self, req: urllib.request.Request) -> HTTPResponse:
        return self.do_open(partial(_watched, _Connection, self._watch), req)


class _Securely(urllib.request.HTTPSHandler):
    def __init__(self, watch: _Watch) -> None:
        super().__init__()
        self._watch = watch

    def https_open(self, req: urllib.request.Request) -> HTTPResponse:
        return self.do_open(partial(_watched, _SecureConnection, self._watch), req)

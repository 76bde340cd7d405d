"""The command `write_and_read`, which tests TLS and SASL for any client that implements `SecuredClient`."""

from __future__ import annotations

import json
import logging
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from .command_loop import CommandRejected

LOGIN_REJECTED = "LOGIN_REJECTED"
"""The error name of a rejected login; the message comes from the client."""

COUNT = 20
"""The minimum number of records written."""
BURST = 10
PAUSE_S = 0.02
VALUE_CHARACTERS = 1000
FLUSH_TIMEOUT_S = 30.0
READ_TIMEOUT_S = 30.0

_opener_without_proxy = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@dataclass(frozen=True)
class AccessSettings:
    """Access settings of a client: no encryption without `ca`, no authentication without `mechanism`."""

    bootstrap: str
    topic: str
    ca: str | None = None
    """File with the trusted CA certificate."""
    pem: str | None = None
    """File with the client's key and certificate."""
    mechanism: str | None = None
    user: str = ""
    secret: str = ""
    """Password, or the token URL for OAUTHBEARER."""

    @property
    def protocol(self) -> str:
        return ("SASL_" if self.mechanism else "") + ("SSL" if self.ca else "PLAINTEXT")

    @property
    def has_token(self) -> bool:
        return self.mechanism == "OAUTHBEARER"


class SecuredClient(Protocol):
    """A client's producer and consumer. The first `flush` raises `CommandRejected` if login fails."""

    def send(self, number: int) -> None: ...

    def flush(self) -> None:
        """Wait until all records are acknowledged."""

    def open_consumer(self) -> None: ...

    def poll(self, timeout_s: float) -> list[int]: ...

    def close(self) -> None: ...


class WriteAndReadCommand:
    """The command `write_and_read` of a driver."""

    def __init__(self, open_client: Callable[[AccessSettings], SecuredClient]) -> None:
        self._open_client = open_client

    def write_and_read(self, until: str | None, **access: Any) -> dict[str, Any]:
        """Write numbers and read them back; with `until`, continue until that file exists."""
        client = self._open_client(AccessSettings(**access))
        try:
            return _write_and_read(client, until)
        finally:
            client.close()


def _write_and_read(client: SecuredClient, until: str | None) -> dict[str, Any]:
    written, read = 0, list[int]()

    def write(count: int) -> None:
        nonlocal written
        for _ in range(count):
            client.send(written)
            written += 1

    write(COUNT)
    client.flush()
    client.open_consumer()
    while until is not None and not Path(until).exists():
        write(BURST)
        read += client.poll(PAUSE_S)
        time.sleep(PAUSE_S)
    client.flush()
    deadline = time.monotonic() + READ_TIMEOUT_S
    while len(read) < written and time.monotonic() < deadline:
        read += client.poll(0.2)
    return {"written": written, "read": read}


def encode_number(number: int) -> bytes:
    return str(number).rjust(VALUE_CHARACTERS).encode()


def fetch_token(url: str) -> tuple[str, float]:
    """Return a token and its expiry in seconds since the Unix epoch."""
    with _opener_without_proxy.open(urllib.request.Request(url, data=b"grant_type=client_credentials")) as connection:
        response = json.load(connection)
    return response["access_token"], time.time() + response["expires_in"]


class LogCapture(logging.Handler):
    """Captures a client's log. Python clients report the reason of a rejected login only there."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._logger = logging.getLogger(name)
        self._lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self._lines.append(record.getMessage())

    def __enter__(self) -> LogCapture:
        self._logger.addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        self._logger.removeHandler(self)

    def to_rejection(self, error: Exception) -> CommandRejected:
        reason = next((line for line in self._lines if "AuthenticationFailed" in line), repr(error))
        return CommandRejected(LOGIN_REJECTED, reason)

"""Writing and reading as somebody: over the line and with the login that a test names, for any client of which there is
a `Secured`."""

from __future__ import annotations

import json
import logging
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from .serving import Refused

NOT_LET_IN = "NOT_LET_IN"
"""The name of the error; its message is what the client says about it."""

COUNT = 20
"""Records that are always written."""
BURST = 10
PAUSE_S = 0.02
VALUE_CHARACTERS = 1000
FLUSH_TIMEOUT_S = 30.0
READ_TIMEOUT_S = 30.0

_without_proxies = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@dataclass(frozen=True)
class Way:
    """How a client comes in: without `ca` nothing is encrypted, and without a mechanism it does not say who it is."""

    bootstrap: str
    topic: str
    ca: str | None = None
    """The file with the certificate that it trusts."""
    pem: str | None = None
    """The file with its own key and certificate."""
    mechanism: str | None = None
    user: str = ""
    secret: str = ""
    """The password; or where tokens are had, for OAUTHBEARER."""

    @property
    def protocol(self) -> str:
        return ("SASL_" if self.mechanism else "") + ("SSL" if self.ca else "PLAINTEXT")

    @property
    def has_token(self) -> bool:
        return self.mechanism == "OAUTHBEARER"


class Secured(Protocol):
    """What the command needs of a client, which is let in by the end of the first `flush` or raises `Refused`."""

    def send(self, number: int) -> None: ...

    def flush(self) -> None:
        """Returns when all are acknowledged."""

    def open_consumer(self) -> None: ...

    def poll(self, timeout_s: float) -> list[int]: ...

    def close(self) -> None: ...


class Ways:
    """The command `write_and_read`."""

    def __init__(self, open_client: Callable[[Way], Secured]) -> None:
        self._open_client = open_client

    def write_and_read(self, until: str | None, **way: Any) -> dict[str, Any]:
        """Writes some numbers and reads them back; on and on, until that file is there, if one is named."""
        client = self._open_client(Way(**way))
        try:
            return _write_and_read(client, until)
        finally:
            client.close()


def _write_and_read(client: Secured, until: str | None) -> dict[str, Any]:
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


def as_value(number: int) -> bytes:
    return str(number).rjust(VALUE_CHARACTERS).encode()


def fetched_token(url: str) -> tuple[str, float]:
    """A token, and when it expires, in seconds since 1970."""
    with _without_proxies.open(urllib.request.Request(url, data=b"grant_type=client_credentials")) as answer:
        told = json.load(answer)
    return told["access_token"], time.time() + told["expires_in"]


class Said(logging.Handler):
    """What a client says in its log while it tries: those of Python tell nobody else why they were refused."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._logger = logging.getLogger(name)
        self._lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self._lines.append(record.getMessage())

    def __enter__(self) -> Said:
        self._logger.addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        self._logger.removeHandler(self)

    def refused(self, error: Exception) -> Refused:
        why = next((line for line in self._lines if "AuthenticationFailed" in line), repr(error))
        return Refused(NOT_LET_IN, why)

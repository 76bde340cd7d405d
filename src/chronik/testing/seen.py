"""The requests a broker has answered, as a failing test shows them."""

from __future__ import annotations

import logging
import time
from collections import deque
from typing import NamedTuple

from chronik.shown import escaped, shortened

SEEN_REQUESTS_MAX = 1000
"""How many a broker remembers: more than anyone reads below a failed test, less than a megabyte."""


CLIENT_ID_CHARACTERS_MAX = 200
"""How much is kept of a client's name, which may have 32,767."""


class SeenRequest(NamedTuple):
    answered_at: float
    """Seconds since 1970."""
    connection: int
    client_id: str | None
    api: str
    version: int
    milliseconds: float
    outcome: str
    """"ok", or the names of the error codes in the answer."""

    def __str__(self) -> str:
        clock = time.strftime("%H:%M:%S", time.localtime(self.answered_at))
        fraction = int(self.answered_at % 1 * 1000)
        return (
            f"{clock}.{fraction:03d}  connection {self.connection} ({escaped(self.client_id or 'no client id')})  "
            f"{self.api} v{self.version}  {self.milliseconds:.1f} ms  {self.outcome}"
        )


class SeenRequests(logging.Filter):
    """Takes the router's debug line about each request out of the log and into a ring."""

    def __init__(self, also_logged: bool) -> None:
        super().__init__()
        self._also_logged = also_logged
        self._ring: deque[SeenRequest] = deque(maxlen=SEEN_REQUESTS_MAX)

    def watch(self, logger: logging.Logger) -> None:
        logger.setLevel(logging.DEBUG)
        logger.addFilter(self)

    def last(self, count: int) -> list[SeenRequest]:
        return list(self._ring)[-count:] if count > 0 else []

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno != logging.DEBUG:
            return True
        if isinstance(record.args, tuple) and len(record.args) == 7:
            self._ring.append(_seen(record))
        return self._also_logged


def _seen(record: logging.LogRecord) -> SeenRequest:
    assert isinstance(record.args, tuple)
    connection, client_id, api, version, _, milliseconds, outcome = record.args
    return SeenRequest(
        record.created,
        connection,  # type: ignore[arg-type]
        shortened(str(client_id), CLIENT_ID_CHARACTERS_MAX) if client_id is not None else None,
        api,  # type: ignore[arg-type]
        version,  # type: ignore[arg-type]
        round(milliseconds, 3),  # type: ignore[call-overload]
        outcome,  # type: ignore[arg-type]
    )

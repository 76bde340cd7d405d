"""Recording of the requests that a broker has answered, shown for failed tests."""

from __future__ import annotations

import logging
import time
from collections import deque
from typing import NamedTuple

from chronik.escaping import escape, truncate_text

RECORDED_REQUESTS_MAX = 1000
"""Maximum number of requests recorded per broker. They use less than 1 MB of memory."""


CLIENT_ID_CHARACTERS_MAX = 200
"""Number of characters to which a recorded client id is truncated. A client id may have up to 32,767."""


class SeenRequest(NamedTuple):
    """A request to which a broker has responded."""

    answered_at: float
    """Time of the response in seconds since the epoch."""
    connection: int
    """Number by which the broker identifies the client's connection."""
    client_id: str | None
    api: str
    """Name of the API, such as "Produce"."""
    version: int
    """Version of the API."""
    milliseconds: float
    """Time from the request to the response in milliseconds."""
    outcome: str
    """"ok", or the names of the error codes in the response."""

    def __str__(self) -> str:
        clock = time.strftime("%H:%M:%S", time.localtime(self.answered_at))
        fraction = int(self.answered_at % 1 * 1000)
        return (
            f"{clock}.{fraction:03d}  connection {self.connection} ({escape(self.client_id or 'no client id')})  "
            f"{self.api} v{self.version}  {self.milliseconds:.1f} ms  {self.outcome}"
        )


class RequestRecorder(logging.Filter):
    """A log filter that records requests in a ring buffer, taken from the debug messages of the request router."""

    def __init__(self, also_logged: bool) -> None:
        super().__init__()
        self._also_logged = also_logged
        self._ring: deque[SeenRequest] = deque(maxlen=RECORDED_REQUESTS_MAX)

    def attach_to(self, logger: logging.Logger) -> None:
        """Start recording the requests that the logger reports."""
        logger.setLevel(logging.DEBUG)
        logger.addFilter(self)

    def last(self, count: int) -> list[SeenRequest]:
        """Return the last requests, oldest first."""
        return list(self._ring)[-count:] if count > 0 else []

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno != logging.DEBUG:
            return True
        if isinstance(record.args, tuple) and len(record.args) == 7:
            self._ring.append(_from_log_record(record))
        return self._also_logged


def _from_log_record(record: logging.LogRecord) -> SeenRequest:
    assert isinstance(record.args, tuple)
    connection, client_id, api, version, _, milliseconds, outcome = record.args
    return SeenRequest(
        record.created,
        connection,  # type: ignore[arg-type]
        truncate_text(str(client_id), CLIENT_ID_CHARACTERS_MAX) if client_id is not None else None,
        api,  # type: ignore[arg-type]
        version,  # type: ignore[arg-type]
        round(milliseconds, 3),  # type: ignore[call-overload]
        outcome,  # type: ignore[arg-type]
    )

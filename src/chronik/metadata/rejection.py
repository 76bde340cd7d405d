"""How a handler refuses a command."""

from __future__ import annotations

from chronik.errors import ChronikError
from chronik.protocol.errors import ErrorCode


class Rejected(ChronikError):
    """A command may not be applied: it changes nothing, and its result carries this code and message."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message

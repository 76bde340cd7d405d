"""The exception by which a handler rejects a command."""

from __future__ import annotations

from chronik.errors import ChronikError
from chronik.protocol.errors import ErrorCode


class CommandRejectedError(ChronikError):
    """A command that must not be applied. It changes nothing, and its result carries the code and the message.

    The result is part of the state hash. Changing the wording of a message makes nodes of different versions diverge.
    """

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message

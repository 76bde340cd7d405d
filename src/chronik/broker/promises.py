"""Callbacks that wait for a log to reach an offset. They hear when it has, or that nobody can promise it any more."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from chronik.protocol.errors import ErrorCode

WhenSafe = Callable[[ErrorCode], None]
"""Is called with NONE, or with the reason why nobody can promise that the records are safe."""


class Promises(deque[tuple[int, WhenSafe]]):
    __slots__ = ()

    def add(self, offset: int, when_safe: WhenSafe) -> None:
        """Keeps the lowest offset first: a batch that is sent again lies below others that came after it."""
        place = len(self)
        while place and self[place - 1][0] > offset:
            place -= 1
        self.insert(place, (offset, when_safe))

    def reached(self, offset: int, code: ErrorCode = ErrorCode.NONE) -> None:
        while self and self[0][0] <= offset:
            self.popleft()[1](code)

    def take_back(self, code: ErrorCode) -> None:
        """Tells everyone `code`. A callback may wait again, for something else."""
        waiting = list(self)
        self.clear()
        for _, when_safe in waiting:
            when_safe(code)

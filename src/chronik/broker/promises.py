"""Callbacks that wait for a log to reach an offset. They hear when it has, or that nobody can promise it any more."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from chronik.protocol.errors import ErrorCode

WhenSafe = Callable[[ErrorCode], None]
"""Is called with NONE, or with the reason why nobody can promise that the records are safe."""


class Promises:
    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: deque[tuple[int, WhenSafe]] = deque()

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, offset: int, when_safe: WhenSafe) -> None:
        """Keeps the lowest offset first: a batch that is sent again lies below others that came after it."""
        waiting = self._waiting
        place = len(waiting)
        while place and waiting[place - 1][0] > offset:
            place -= 1
        waiting.insert(place, (offset, when_safe))

    def reached(self, offset: int, code: ErrorCode = ErrorCode.NONE) -> None:
        waiting = self._waiting
        while waiting and waiting[0][0] <= offset:
            waiting.popleft()[1](code)

    def take_back(self, code: ErrorCode) -> None:
        """Tells everyone `code`. A callback may wait again, for something else."""
        waiting, self._waiting = self._waiting, deque()
        for _, when_safe in waiting:
            when_safe(code)

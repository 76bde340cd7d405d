"""Callbacks that wait until a log reaches an offset, or until it is certain that it will not."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from chronik.protocol.errors import ErrorCode

OffsetCallback = Callable[[ErrorCode], None]
"""Called with NONE, or with the error if the records may be lost."""


class OffsetWaiters:
    """The callbacks of a partition, sorted by offset. Truthy if there are any."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        # Created with the first callback: an empty deque takes 600 bytes, and most partitions are idle.
        self._waiting: deque[tuple[int, OffsetCallback]] | None = None

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, offset: int, when_safe: OffsetCallback) -> None:
        """Add a callback. A retried batch may be below batches that were sent after it."""
        waiting = self._waiting
        if waiting is None:
            waiting = self._waiting = deque()
        position = len(waiting)
        while position and waiting[position - 1][0] > offset:
            position -= 1
        waiting.insert(position, (offset, when_safe))

    def complete_up_to(self, offset: int, code: ErrorCode = ErrorCode.NONE) -> None:
        """Call all callbacks that wait for `offset` or less."""
        waiting = self._waiting
        while waiting and waiting[0][0] <= offset:
            waiting.popleft()[1](code)

    def fail_all(self, code: ErrorCode) -> None:
        """Call all callbacks with the error `code`. A callback may add itself to another partition's waiters."""
        if self._waiting:
            waiting = list(self._waiting)
            self._waiting.clear()
            for _, when_safe in waiting:
                when_safe(code)

"""Memory for large requests that are arriving, wait to be handled, or wait to be answered.

A request takes memory as its bytes arrive, not as its client claims. So many requests may have arrived in part while
none of them has room to go on: then the connection that has waited longest goes on beyond the limit, one at a time,
until it is answered or gone. It exceeds the limit by one request and no more, which is always enough for the one that
is arriving; those that follow on the same connection wait like any other.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

H = TypeVar("H")


class FrameBudget(Generic[H]):
    def __init__(self, bytes_max: int, request_bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._overdraft_bytes_max = request_bytes_max
        self._reserved: dict[H, int] = {}
        self._total = 0
        self._waiting: dict[H, int] = {}  # what each wants to have, in the order in which they came
        self._overdrawn_by: H | None = None

    @property
    def is_waited_for(self) -> bool:
        return bool(self._waiting)

    @property
    def total(self) -> int:
        return self._total

    def reserved_by(self, holder: H) -> int:
        return self._reserved.get(holder, 0)

    def want(self, holder: H, count: int) -> bool:
        """Returns whether the holder has `count` bytes in all now; otherwise it waits for them, until it wants less."""
        before = self._reserved.get(holder, 0)
        if count == before and not self._waiting:
            return True
        must_queue = bool(self._waiting) and self._overdrawn_by != holder
        if count > before and (must_queue or not self._may_have(holder, count)):
            self._waiting[holder] = count
            return False
        self._waiting.pop(holder, None)
        self._set(holder, count)
        return True

    def granted(self) -> Iterator[H]:
        """Yields those who wait and have room by now. Call it after anybody gave memory back or left."""
        while self._waiting:
            holder = self._next()
            count = self._waiting[holder]
            if not self._may_have(holder, count):
                return
            del self._waiting[holder]
            self._set(holder, count)
            yield holder

    def leave(self, holder: H) -> None:
        self._waiting.pop(holder, None)
        self._set(holder, 0)

    def _next(self) -> H:
        """Returns who is served next: nobody can be served before the one beyond the limit, if there is one."""
        if self._overdrawn_by is not None and self._overdrawn_by in self._waiting:
            return self._overdrawn_by
        return next(iter(self._waiting))

    def _may_have(self, holder: H, count: int) -> bool:
        overdraft = self._total - self.reserved_by(holder) + count - self._bytes_max
        if overdraft <= 0:
            return True
        return overdraft <= self._overdraft_bytes_max and self._overdrawn_by in (None, holder)

    def _set(self, holder: H, count: int) -> None:
        before = self.reserved_by(holder)
        self._total += count - before
        if count:
            self._reserved[holder] = count
        else:
            self._reserved.pop(holder, None)
        if self._total <= self._bytes_max:
            self._overdrawn_by = None
        elif count > before:
            self._overdrawn_by = holder

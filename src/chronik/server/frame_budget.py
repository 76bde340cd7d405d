"""Memory budget for large requests that are being received, queued or handled.

Requests take memory as their bytes arrive, not by their announced size, so several may be partially received when the
budget is exhausted. To avoid a deadlock, the connection that has waited longest may exceed the budget, one connection
at a time, until its request is answered or the connection is closed. The excess is at most one request, which is always
enough for the one being received; further requests of the same connection wait.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

H = TypeVar("H")


class FrameBudget(Generic[H]):
    """Memory reservations by holder (connection), with a FIFO queue of waiting holders."""

    def __init__(self, bytes_max: int, request_bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._overdraft_bytes_max = request_bytes_max
        self._reserved: dict[H, int] = {}
        self._total = 0
        self._waiting: dict[H, int] = {}  # requested bytes by holder, in order of arrival
        self._overdrawn_by: H | None = None

    @property
    def has_waiters(self) -> bool:
        """Return whether any holder waits for memory."""
        return bool(self._waiting)

    @property
    def total_bytes(self) -> int:
        """Return the reserved bytes of all holders."""
        return self._total

    def reserved_bytes(self, holder: H) -> int:
        """Return the bytes that the holder has reserved."""
        return self._reserved.get(holder, 0)

    def reserve(self, holder: H, count: int) -> bool:
        """Set the holder's reservation to `count` bytes; return False if it must wait for a larger one."""
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

    def grant_waiting(self) -> Iterator[H]:
        """Reserve memory for waiting holders and yield them. Call it after memory was released."""
        while self._waiting:
            holder = self._next()
            count = self._waiting[holder]
            if not self._may_have(holder, count):
                return
            del self._waiting[holder]
            self._set(holder, count)
            yield holder

    def release(self, holder: H) -> None:
        """Release the holder's memory and remove it from the queue."""
        self._waiting.pop(holder, None)
        self._set(holder, 0)

    def _next(self) -> H:
        """Return the next holder to serve: the one that exceeds the budget, because it blocks all others."""
        if self._overdrawn_by is not None and self._overdrawn_by in self._waiting:
            return self._overdrawn_by
        return next(iter(self._waiting))

    def _may_have(self, holder: H, count: int) -> bool:
        overdraft = self._total - self.reserved_bytes(holder) + count - self._bytes_max
        if overdraft <= 0:
            return True
        return overdraft <= self._overdraft_bytes_max and self._overdrawn_by in (None, holder)

    def _set(self, holder: H, count: int) -> None:
        before = self.reserved_bytes(holder)
        self._total += count - before
        if count:
            self._reserved[holder] = count
        else:
            self._reserved.pop(holder, None)
        if self._total <= self._bytes_max:
            self._overdrawn_by = None
        elif count > before:
            self._overdrawn_by = holder

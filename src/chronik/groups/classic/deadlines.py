"""The deadlines of one group.

Heartbeats move a deadline thousands of times a second and almost none ever comes due. So moving one later only writes
its new time down; its place in the queue is corrected when the old time passes.
"""

from __future__ import annotations

import heapq
from enum import StrEnum

import msgspec


class DeadlineKind(StrEnum):
    SESSION = "session"
    INITIAL_DELAY = "initial delay"
    JOIN = "join"
    SYNC = "sync"
    EMPTINESS_RETRY = "emptiness retry"


QUEUE_LENGTH_FREE = 64
"""A queue that is longer than this, and than twice the number of deadlines, holds mostly leftovers, and is rebuilt."""

DeadlineKey = tuple[DeadlineKind, str]
"""The kind, and the member id if it is a session's deadline, else an empty string."""


class _Deadline(msgspec.Struct):
    due_at_ms: int
    queued_at_ms: int
    """Never later than `due_at_ms`."""


class Deadlines:
    def __init__(self) -> None:
        self._deadlines: dict[DeadlineKey, _Deadline] = {}
        self._queue: list[tuple[int, DeadlineKey]] = []

    @property
    def wake_at_ms(self) -> int | None:
        """When the next deadline is due, or earlier; None when there is none at all."""
        return self._queue[0][0] if self._queue else None

    def set(self, kind: DeadlineKind, at_ms: int, member_id: str = "") -> None:
        key = (kind, member_id)
        known = self._deadlines.get(key)
        if known is not None and known.queued_at_ms <= at_ms:
            known.due_at_ms = at_ms
        else:
            self._enqueue(key, at_ms)

    def cancel(self, kind: DeadlineKind, member_id: str = "") -> None:
        self._deadlines.pop((kind, member_id), None)

    def clear(self) -> None:
        self._deadlines.clear()
        self._queue.clear()

    def take_first_due(self, now_ms: int) -> DeadlineKey | None:
        """Takes one at a time, because handling one may cancel or move the next."""
        while self._queue and self._queue[0][0] <= now_ms:
            queued_at_ms, key = heapq.heappop(self._queue)
            deadline = self._deadlines.get(key)
            if deadline is None or deadline.queued_at_ms != queued_at_ms:
                continue  # cancelled, or moved earlier and queued a second time
            if deadline.due_at_ms > now_ms:
                self._enqueue(key, deadline.due_at_ms)
                continue
            del self._deadlines[key]
            return key
        return None

    def _enqueue(self, key: DeadlineKey, at_ms: int) -> None:
        self._deadlines[key] = _Deadline(at_ms, at_ms)
        heapq.heappush(self._queue, (at_ms, key))
        if len(self._queue) > QUEUE_LENGTH_FREE + 2 * len(self._deadlines):
            self._queue = [(deadline.queued_at_ms, key) for key, deadline in self._deadlines.items()]
            heapq.heapify(self._queue)

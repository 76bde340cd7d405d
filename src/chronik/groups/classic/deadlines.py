"""The deadlines of one group, in a heap with lazy updates.

Heartbeats move deadlines thousands of times per second, and almost none expires. Moving a deadline later therefore only
records its new time; its heap entry is corrected when the old time passes.
"""

from __future__ import annotations

import heapq
from enum import StrEnum

import msgspec


class GroupDeadlineKind(StrEnum):
    """The kinds of deadlines that a group can have."""

    SESSION = "session"
    INITIAL_DELAY = "initial delay"
    JOIN = "join"
    SYNC = "sync"
    EMPTY_GROUP_RETRY = "emptiness retry"


QUEUE_REBUILD_LENGTH_MIN = 64
"""A heap longer than this plus twice the number of deadlines consists mostly of stale entries and is rebuilt."""

DeadlineKey = tuple[GroupDeadlineKind, str]
"""The kind of deadline, and the member id for a session deadline or an empty string."""


class _Deadline(msgspec.Struct):
    due_at_ms: int
    queued_at_ms: int
    """The time of the heap entry, never later than `due_at_ms`."""


class GroupDeadlines:
    """The pending deadlines of a group."""

    def __init__(self) -> None:
        self._deadlines: dict[DeadlineKey, _Deadline] = {}
        self._queue: list[tuple[int, DeadlineKey]] = []

    @property
    def wake_at_ms(self) -> int | None:
        """The earliest time at which a deadline can expire, or None if there are no deadlines."""
        return self._queue[0][0] if self._queue else None

    def set(self, kind: GroupDeadlineKind, at_ms: int, member_id: str = "") -> None:
        """Set or move a deadline."""
        key = (kind, member_id)
        deadline_entry = self._deadlines.get(key)
        if deadline_entry is not None and deadline_entry.queued_at_ms <= at_ms:
            deadline_entry.due_at_ms = at_ms
        else:
            self._enqueue(key, at_ms)

    def cancel(self, kind: GroupDeadlineKind, member_id: str = "") -> None:
        self._deadlines.pop((kind, member_id), None)

    def clear(self) -> None:
        self._deadlines.clear()
        self._queue.clear()

    def pop_due(self, now_ms: int) -> DeadlineKey | None:
        """Remove and return the first expired deadline, or None. Handling it may cancel or move the next one."""
        while self._queue and self._queue[0][0] <= now_ms:
            queued_at_ms, key = heapq.heappop(self._queue)
            deadline = self._deadlines.get(key)
            if deadline is None or deadline.queued_at_ms != queued_at_ms:
                continue  # cancelled, or moved to an earlier time under a second heap entry
            if deadline.due_at_ms > now_ms:
                self._enqueue(key, deadline.due_at_ms)
                continue
            del self._deadlines[key]
            return key
        return None

    def _enqueue(self, key: DeadlineKey, at_ms: int) -> None:
        self._deadlines[key] = _Deadline(at_ms, at_ms)
        heapq.heappush(self._queue, (at_ms, key))
        if len(self._queue) > QUEUE_REBUILD_LENGTH_MIN + 2 * len(self._deadlines):
            self._queue = [(deadline.queued_at_ms, key) for key, deadline in self._deadlines.items()]
            heapq.heapify(self._queue)

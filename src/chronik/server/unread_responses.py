"""Responses that a client has not read: their size, and since when the client has not made progress.

They are only tracked while the transport has paused writing, when there is more than the kernel accepts.
"""

from __future__ import annotations

import asyncio

from chronik.limits import RESPONSE_RATE_BYTES_MIN
from chronik.request_reply import UnsentByteCounter
from chronik.server.socket_state import send_queue_bytes


class UnreadResponses:
    """The unread responses of one connection."""

    __slots__ = ("_last_progress", "_outbox", "_transport", "bytes")

    def __init__(self, transport: asyncio.Transport, outbox: UnsentByteCounter) -> None:
        self._transport = transport
        self._outbox = outbox
        self._last_progress = (0.0, 0)  # time of the last progress, and unread bytes at that time
        self.bytes = 0
        """Unsent response bytes that count as unread."""

    def start(self, now: float) -> None:
        """Start tracking: the transport has paused writing."""
        self._count(self._transport.get_write_buffer_size())
        self._last_progress = now, self._unread_bytes()

    def stop(self) -> None:
        """Stop tracking: everything is written, or the connection is closed."""
        self._count(0)

    def add(self, count: int) -> None:
        """Add a response to the unread ones."""
        since, unread = self._last_progress
        self._last_progress = since, unread + count
        self._count(self._transport.get_write_buffer_size())

    def has_progress(self, now: float) -> bool:
        """Return whether the client has read at the minimum rate since its last progress; a slow one is not stalled."""
        if not self.bytes:
            return False
        self._count(self._transport.get_write_buffer_size())
        since, before = self._last_progress
        unread = self._unread_bytes()
        if unread >= before or before - unread < RESPONSE_RATE_BYTES_MIN * (now - since):
            return False
        self._last_progress = now, unread
        return True

    def stalled_seconds(self, now: float) -> float:
        """Return for how many seconds the client has made no progress; 0 if there is nothing to read."""
        return now - self._last_progress[0] if self.bytes else 0.0

    def _count(self, unsent: int) -> None:
        growth = unsent - self.bytes
        self.bytes = unsent
        self._outbox.add(growth)

    def _unread_bytes(self) -> int:
        if self._transport.is_closing():  # its file descriptor may be closed or reused
            return self.bytes
        return self.bytes + send_queue_bytes(self._transport.get_extra_info("socket"))

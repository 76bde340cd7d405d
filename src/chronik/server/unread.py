"""Responses that a client does not read: how many bytes of them there are, and since when it was not seen reading.

Counted only while it is worth it: the transport tells when there is more than the system takes at once.
"""

from __future__ import annotations

import asyncio

from chronik.exchange import Outbox
from chronik.limits import RESPONSE_RATE_BYTES_MIN
from chronik.server.send_queue import bytes_in_system


class UnreadResponses:
    """Those of one connection."""

    __slots__ = ("_outbox", "_reading", "_transport", "bytes")

    def __init__(self, transport: asyncio.Transport, outbox: Outbox) -> None:
        self._transport = transport
        self._outbox = outbox
        self._reading = (0.0, 0)  # when its client was last seen reading them, and how much there was to read then
        self.bytes = 0
        """Of responses that count as not read."""

    def begin(self, now: float) -> None:
        self._count(self._transport.get_write_buffer_size())
        self._reading = now, self._unread_bytes()

    def end(self) -> None:
        self._count(0)

    def sent(self, count: int) -> None:
        """Notes a response on top of those that are not read."""
        since, unread = self._reading
        self._reading = since, unread + count
        self._count(self._transport.get_write_buffer_size())

    def are_read(self, now: float) -> bool:
        """Whether the client has read enough of them since it was last seen to: a slow one that does is not stuck."""
        if not self.bytes:
            return False
        self._count(self._transport.get_write_buffer_size())
        since, before = self._reading
        unread = self._unread_bytes()
        if unread >= before or before - unread < RESPONSE_RATE_BYTES_MIN * (now - since):
            return False
        self._reading = now, unread
        return True

    def seconds(self, now: float) -> float:
        """Returns how long its client has not read; 0 when it has nothing to read."""
        return now - self._reading[0] if self.bytes else 0.0

    def _count(self, unsent: int) -> None:
        growth = unsent - self.bytes
        self.bytes = unsent
        self._outbox.count(growth)

    def _unread_bytes(self) -> int:
        if self._transport.is_closing():  # its descriptor may be gone, or another's
            return self.bytes
        return self.bytes + bytes_in_system(self._transport.get_extra_info("socket"))

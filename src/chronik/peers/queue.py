"""What waits to be sent to one peer, bounded in number and in bytes. Pure.

Messages go first, in their order: a large call must not hold up a leader's heartbeat. They may be lost, so when there
are too many the oldest are dropped, and their sender is told. Calls are never dropped: a call that finds no room is
refused, and its caller hears it at once.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from chronik.peers.frames import FRAME_BYTES_MAX

MESSAGES_MAX: Final = 1024
MESSAGES_BYTES_MAX: Final = FRAME_BYTES_MAX + 8 * 1024 * 1024
"""The core sends 64 messages or 4 MiB ahead, and heartbeats: only a peer that does not listen gets near this. The
largest message of all must fit."""

MESSAGES_WHILE_AWAY_MAX: Final = 32
"""Messages kept while there is no connection: some, lest the first votes be lost, but few, for they grow old."""

CALLS_BYTES_MAX: Final = FRAME_BYTES_MAX + 8 * 1024 * 1024
"""Calls that wait to be sent. Their number is bounded by those that may be under way."""


class PeerQueue:
    def __init__(self) -> None:
        self.is_away = True
        self._messages: deque[bytes] = deque()
        self._messages_bytes = 0
        self._calls: deque[bytes] = deque()
        self._calls_bytes = 0

    def __len__(self) -> int:
        return len(self._messages) + len(self._calls)

    @property
    def size_bytes(self) -> int:
        return self._messages_bytes + self._calls_bytes

    def put_message(self, frame: bytes) -> bool:
        """Returns False when an older message had to be dropped for it."""
        self._messages.append(frame)
        self._messages_bytes += len(frame)
        count_max = MESSAGES_WHILE_AWAY_MAX if self.is_away else MESSAGES_MAX
        is_whole = True
        while len(self._messages) > count_max or self._messages_bytes > MESSAGES_BYTES_MAX:
            self._messages_bytes -= len(self._messages.popleft())
            is_whole = False
        return is_whole

    def put_call(self, frame: bytes) -> bool:
        """Returns False when there is no room for it."""
        if self._calls_bytes + len(frame) > CALLS_BYTES_MAX:
            return False
        self._calls.append(frame)
        self._calls_bytes += len(frame)
        return True

    def take(self, bytes_max: int) -> list[bytes]:
        """Takes out the next frames, together of at most `bytes_max` unless the first alone is larger."""
        taken: list[bytes] = []
        size = 0
        for frames in (self._messages, self._calls):
            while frames and (not taken or size + len(frames[0]) <= bytes_max):
                frame = frames.popleft()
                size += len(frame)
                taken.append(frame)
                if frames is self._messages:
                    self._messages_bytes -= len(frame)
                else:
                    self._calls_bytes -= len(frame)
            if frames:
                break
        return taken

    def clear(self) -> None:
        """Drops everything: what was meant for a connection that is gone is old by the time there is another."""
        self._messages.clear()
        self._calls.clear()
        self._messages_bytes = self._calls_bytes = 0

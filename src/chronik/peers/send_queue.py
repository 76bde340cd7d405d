"""The send queue of a peer, bounded in number and size.

Messages are sent first and in order, so that a large call does not delay a leader's heartbeat. Messages may be lost: if
there are too many, the oldest are dropped and the sender is notified. Calls are never dropped: if the queue is full, a
call is rejected immediately.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from chronik.peers.frames import FRAME_BYTES_MAX

MESSAGES_MAX: Final = 1024
MESSAGES_BYTES_MAX: Final = FRAME_BYTES_MAX + 8 * 1024 * 1024
"""Maximum size of queued messages. The core sends at most 64 messages or 4 MiB ahead, so only an unresponsive peer
comes close to it. The largest message must fit."""

DISCONNECTED_MESSAGES_MAX: Final = 32
"""Maximum number of messages kept without a connection: enough for the first votes, but few, as they get outdated."""

CALLS_BYTES_MAX: Final = FRAME_BYTES_MAX + 8 * 1024 * 1024
"""Maximum size of queued calls. Their number is limited by the maximum number of pending calls."""


class PeerSendQueue:
    """Messages and calls that wait to be sent to a peer."""

    def __init__(self) -> None:
        self.is_disconnected = True
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
        """Add a message; return False if an older message was dropped for it."""
        self._messages.append(frame)
        self._messages_bytes += len(frame)
        count_max = DISCONNECTED_MESSAGES_MAX if self.is_disconnected else MESSAGES_MAX
        is_complete = True
        while len(self._messages) > count_max or self._messages_bytes > MESSAGES_BYTES_MAX:
            self._messages_bytes -= len(self._messages.popleft())
            is_complete = False
        return is_complete

    def put_call(self, frame: bytes) -> bool:
        """Add a call; return False if the queue is full."""
        if self._calls_bytes + len(frame) > CALLS_BYTES_MAX:
            return False
        self._calls.append(frame)
        self._calls_bytes += len(frame)
        return True

    def take_frames(self, bytes_max: int) -> list[bytes]:
        """Remove and return the next frames, at most `bytes_max` in total unless the first one is larger."""
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
        """Drop all frames, because they would be outdated on the next connection."""
        self._messages.clear()
        self._calls.clear()
        self._messages_bytes = self._calls_bytes = 0

"""What was written and is not encrypted yet, and how much of it is next."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final

from chronik.limits import KIB

SLICE_BYTES: Final = 64 * KIB
"""What is encrypted at one go: four records of TLS. After each slice others may have a turn."""

Buffer = bytes | bytearray | memoryview


class Backlog:
    def __init__(self) -> None:
        self._pieces: deque[Buffer] = deque()
        self.size_bytes = 0

    def extend(self, pieces: Iterable[Buffer]) -> None:
        for piece in pieces:
            self._pieces.append(piece)
            self.size_bytes += len(piece)

    def clear(self) -> None:
        self._pieces.clear()
        self.size_bytes = 0

    def next_slice(self) -> Buffer:
        """Takes up to SLICE_BYTES out. Small pieces are joined: each record of TLS costs bytes and time."""
        waiting = self._pieces
        taken: list[Buffer] = []
        room = SLICE_BYTES
        while waiting and room:
            piece = waiting.popleft()
            if len(piece) > room:
                view = memoryview(piece)
                waiting.appendleft(view[room:])
                piece = view[:room]
            if piece:
                taken.append(piece)
            room -= len(piece)
        self.size_bytes -= SLICE_BYTES - room
        return taken[0] if len(taken) == 1 else b"".join(taken)

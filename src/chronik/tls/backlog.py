"""Buffer of data that was written but not encrypted yet."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final

from chronik.limits import KIB

SLICE_BYTES: Final = 64 * KIB
"""Bytes encrypted at a time: four TLS records. Other work may run after each slice."""

Buffer = bytes | bytearray | memoryview


class EncryptionBacklog:
    """A FIFO buffer of plaintext that is waiting for encryption."""

    def __init__(self) -> None:
        self._buffers: deque[Buffer] = deque()
        self.size_bytes = 0

    def extend(self, buffers: Iterable[Buffer]) -> None:
        for buffer in buffers:
            self._buffers.append(buffer)
            self.size_bytes += len(buffer)

    def clear(self) -> None:
        self._buffers.clear()
        self.size_bytes = 0

    def pop_slice(self) -> Buffer:
        """Remove and return up to SLICE_BYTES. Small buffers are joined, because each TLS record has overhead."""
        waiting = self._buffers
        taken: list[Buffer] = []
        free_bytes = SLICE_BYTES
        while waiting and free_bytes:
            buffer = waiting.popleft()
            if len(buffer) > free_bytes:
                view = memoryview(buffer)
                waiting.appendleft(view[free_bytes:])
                buffer = view[:free_bytes]
            if buffer:
                taken.append(buffer)
            free_bytes -= len(buffer)
        self.size_bytes -= SLICE_BYTES - free_bytes
        return taken[0] if len(taken) == 1 else b"".join(taken)

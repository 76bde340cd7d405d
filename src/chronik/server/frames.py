"""Splitting of a byte stream into request frames, without copying large frames, and their memory budget.

Reads go into one buffer that all connections share (reads on one event loop never overlap). While a large frame is
being received, the socket writes directly into that frame. Each frame is its own bytearray, so its handler may keep and
modify it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

from chronik.limits import FRAME_BYTES_MAX, KIB, MIB

READ_BUFFER_BYTES = 64 * KIB
"""Size of the read buffer in bytes. For a larger frame, only the part received in the first read is copied."""

FRAME_DOUBLING_BYTES = 2 * MIB
"""Frame size in bytes above which the buffer is doubled as data arrives, so that a client cannot cause a large
allocation just by announcing a large request."""

FRAME_GROWTH_FACTOR = 32
"""Ratio of a small buffer's size to the received bytes. After one read the buffer has 2 MiB, enough for nearly every
frame."""

FRAME_BUFFER_BYTES_MIN = 4 * KIB

SIZE_BYTES = 4

H = TypeVar("H")


class InvalidFrameSize(Exception):
    """A client announced an invalid request size."""


class FrameReader:
    """A parser that splits a connection's received bytes into size-prefixed request frames."""

    __slots__ = ("_filled", "_frame", "_frame_bytes_max", "_pending_size", "_scratch", "_size", "_view")

    def __init__(self, scratch: memoryview, frame_bytes_max: int = FRAME_BYTES_MAX) -> None:
        self._scratch = scratch
        self._frame_bytes_max = frame_bytes_max
        self._pending_size = b""  # the first bytes of an incomplete size prefix
        self._frame: bytearray | None = None  # the frame being received
        self._view: memoryview | None = None
        self._size = 0
        self._filled = 0

    def set_frame_bytes_max(self, frame_bytes_max: int) -> None:
        """Set the maximum frame size, starting with the next frame."""
        self._frame_bytes_max = frame_bytes_max

    @property
    def is_in_frame(self) -> bool:
        """Return whether the last received request is still incomplete."""
        return self._frame is not None or bool(self._pending_size)

    @property
    def received_bytes(self) -> int:
        """Return the received bytes of the current frame; 0 between frames."""
        return self._filled if self._frame is not None else 0

    @property
    def required_bytes(self) -> int:
        """Return the memory in bytes that the current frame needs in order to receive more data.

        The caller must reserve it before it calls `buffer`.
        """
        frame = self._frame
        if frame is None:
            return 0
        return self._compute_next_buffer_size() if self._filled == len(frame) else len(frame)

    def buffer(self) -> memoryview:
        """Return the buffer into which the transport reads next."""
        frame = self._frame
        if frame is None:
            return self._scratch
        if self._filled == len(frame):
            self._frame = frame = self._grow(frame)
        if self._view is None:
            self._view = memoryview(frame)
        return self._view[self._filled :]

    def split_received(self, count: int) -> Iterator[bytearray]:
        """Yield the frames completed by `count` received bytes. Exhaust the iterator before calling `buffer` again."""
        if self._frame is None:
            return self._split_frames(self._scratch[:count])
        self._filled += count
        if self._filled < self._size:
            return iter(())
        return iter((self._finish_frame(),))

    def _finish_frame(self) -> bytearray:
        frame = self._frame
        assert frame is not None
        if self._view is not None:
            self._view.release()
        self._frame = self._view = None
        return frame

    def _compute_next_buffer_size(self) -> int:
        filled = self._filled
        wanted = max(FRAME_BUFFER_BYTES_MIN, min(FRAME_GROWTH_FACTOR * filled, FRAME_DOUBLING_BYTES), 2 * filled)
        return min(wanted, self._size)

    def _grow(self, frame: bytearray) -> bytearray:
        if self._view is not None:
            self._view.release()
            self._view = None
        size = self._compute_next_buffer_size()
        if len(frame) <= READ_BUFFER_BYTES:
            grown = bytearray(size)
            grown[: len(frame)] = frame
            return grown
        frame.extend(bytes(size - len(frame)))  # in place: the allocator remaps large blocks instead of copying them
        return frame

    def _split_frames(self, data: memoryview) -> Iterator[bytearray]:
        position, end = 0, len(data)
        if self._pending_size:
            missing = SIZE_BYTES - len(self._pending_size)
            if end < missing:
                self._pending_size += bytes(data)
                return
            size = self._parse_size(self._pending_size + data[:missing])
            self._pending_size = b""
            position = missing
        elif end >= SIZE_BYTES:
            size = self._parse_size(data[:SIZE_BYTES])
            position = SIZE_BYTES
        else:
            self._pending_size = bytes(data)
            return
        while True:
            if end - position < size:
                self._start_frame(size, data[position:end])
                return
            yield bytearray(data[position : position + size])
            position += size
            if end - position < SIZE_BYTES:
                self._pending_size = bytes(data[position:end])
                return
            size = self._parse_size(data[position : position + SIZE_BYTES])
            position += SIZE_BYTES

    def _start_frame(self, size: int, first: memoryview) -> None:
        self._frame, self._size, self._filled = bytearray(first), size, len(first)

    def _parse_size(self, prefix: bytes | memoryview) -> int:
        size = int.from_bytes(prefix, "big", signed=True)
        if not 0 < size <= self._frame_bytes_max:
            raise InvalidFrameSize(f"invalid request size: {size} bytes (expected 1 to {self._frame_bytes_max})")
        return size


class FrameBudget(Generic[H]):
    """A memory budget for large requests, from their first bytes until they are handled. Its holders are connections.

    Requests take memory as their bytes arrive, not by their announced size, so several may be partially received when
    the budget is exhausted. Holders wait in FIFO order. To avoid a deadlock, the connection that has waited longest may
    exceed the budget, one connection at a time, until its request is answered or the connection is closed. The excess
    is at most one request, which is always enough for the one being received; further requests of the same connection
    wait.
    """

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
        """Set the holder's reserved memory to `count` bytes; if too little is free, queue it and return False."""
        before = self._reserved.get(holder, 0)
        if count == before and not self._waiting:
            return True
        must_queue = bool(self._waiting) and self._overdrawn_by != holder
        if count > before and (must_queue or not self._may_reserve(holder, count)):
            self._waiting[holder] = count
            return False
        self._waiting.pop(holder, None)
        self._set(holder, count)
        return True

    def grant_waiting(self) -> Iterator[H]:
        """Reserve the memory that waiting holders need, as far as it is free, and yield these holders."""
        while self._waiting:
            holder = self._next()
            count = self._waiting[holder]
            if not self._may_reserve(holder, count):
                return
            del self._waiting[holder]
            self._set(holder, count)
            yield holder

    def release(self, holder: H) -> None:
        """Release the holder's memory and remove it from the queue."""
        self._waiting.pop(holder, None)
        self._set(holder, 0)

    def _next(self) -> H:
        """Return the next waiting holder; one that exceeds the budget comes first, as it blocks all others."""
        if self._overdrawn_by is not None and self._overdrawn_by in self._waiting:
            return self._overdrawn_by
        return next(iter(self._waiting))

    def _may_reserve(self, holder: H, count: int) -> bool:
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

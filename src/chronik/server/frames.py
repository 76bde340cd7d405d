"""Turns bytes from a socket into request frames, without copying large ones.

A read goes into one buffer that all connections share (reads on one loop never overlap), except while a large frame
is being received: then the socket writes straight into that frame. Each frame is a bytearray of its own, so that its
handler may patch it in place and keep it.
"""

from __future__ import annotations

from collections.abc import Iterator

from chronik.limits import FRAME_BYTES_MAX, KIB, MIB

SCRATCH_BYTES = 64 * KIB
"""Room for one read. A larger frame is received in place, except for what this read had of it, which is copied."""

FRAME_GROWTH_BYTES = 2 * MIB
"""From this size on a frame's buffer doubles as bytes arrive: a claimed length costs nothing."""

FRAME_FIRST_GROWTH = 32
"""Below that it grows to this many times what has arrived: after one read it has two megabytes, which is enough for
nearly every frame."""

FRAME_BYTES_LEAST = 4 * KIB

SIZE_BYTES = 4


class FrameRefused(Exception):
    """The length that a client announced is not one that a request can have."""


class FrameReader:
    __slots__ = ("_filled", "_frame", "_frame_bytes_max", "_pending_size", "_scratch", "_size", "_view")

    def __init__(self, scratch: memoryview, frame_bytes_max: int = FRAME_BYTES_MAX) -> None:
        self._scratch = scratch
        self._frame_bytes_max = frame_bytes_max
        self._pending_size = b""  # the first bytes of a length that has not arrived whole
        self._frame: bytearray | None = None  # the frame being received
        self._view: memoryview | None = None
        self._size = 0
        self._filled = 0

    def allow(self, frame_bytes_max: int) -> None:
        """Takes frames of up to this size from the next one on."""
        self._frame_bytes_max = frame_bytes_max

    @property
    def in_frame(self) -> bool:
        """Whether part of a request has arrived and the rest has not."""
        return self._frame is not None or bool(self._pending_size)

    @property
    def received_bytes(self) -> int:
        """How much of the current frame has been received; 0 between frames."""
        return self._filled if self._frame is not None else 0

    @property
    def memory_wanted(self) -> int:
        """What the current frame takes when its next bytes come. The caller keeps the limit: it does not ask for the
        buffer before there is room."""
        frame = self._frame
        if frame is None:
            return 0
        return self._next_size() if self._filled == len(frame) else len(frame)

    def buffer(self) -> memoryview:
        """Returns where the next bytes go."""
        frame = self._frame
        if frame is None:
            return self._scratch
        if self._filled == len(frame):
            self._frame = frame = self._grown(frame)
        if self._view is None:
            self._view = memoryview(frame)
        return self._view[self._filled :]

    def received(self, count: int) -> Iterator[bytearray]:
        """Yields the frames that `count` new bytes complete. Exhaust it before the next `buffer()`."""
        if self._frame is None:
            return self._split(self._scratch[:count])
        self._filled += count
        if self._filled < self._size:
            return iter(())
        return iter((self._finish(),))

    def _finish(self) -> bytearray:
        frame = self._frame
        assert frame is not None
        if self._view is not None:
            self._view.release()
        self._frame = self._view = None
        return frame

    def _next_size(self) -> int:
        filled = self._filled
        wanted = max(FRAME_BYTES_LEAST, min(FRAME_FIRST_GROWTH * filled, FRAME_GROWTH_BYTES), 2 * filled)
        return min(wanted, self._size)

    def _grown(self, frame: bytearray) -> bytearray:
        if self._view is not None:
            self._view.release()
            self._view = None
        size = self._next_size()
        if len(frame) <= SCRATCH_BYTES:
            grown = bytearray(size)
            grown[: len(frame)] = frame
            return grown
        frame.extend(bytes(size - len(frame)))  # in place: large memory is moved by the kernel, and not copied
        return frame

    def _split(self, data: memoryview) -> Iterator[bytearray]:
        position, end = 0, len(data)
        if self._pending_size:
            missing = SIZE_BYTES - len(self._pending_size)
            if end < missing:
                self._pending_size += bytes(data)
                return
            size = self._checked(self._pending_size + data[:missing])
            self._pending_size = b""
            position = missing
        elif end >= SIZE_BYTES:
            size = self._checked(data[:SIZE_BYTES])
            position = SIZE_BYTES
        else:
            self._pending_size = bytes(data)
            return
        while True:
            if end - position < size:
                self._begin(size, data[position:end])
                return
            yield bytearray(data[position : position + size])
            position += size
            if end - position < SIZE_BYTES:
                self._pending_size = bytes(data[position:end])
                return
            size = self._checked(data[position : position + SIZE_BYTES])
            position += SIZE_BYTES

    def _begin(self, size: int, first: memoryview) -> None:
        self._frame, self._size, self._filled = bytearray(first), size, len(first)

    def _checked(self, prefix: bytes | memoryview) -> int:
        size = int.from_bytes(prefix, "big", signed=True)
        if not 0 < size <= self._frame_bytes_max:
            raise FrameRefused(f"a request of {size} bytes (1 to {self._frame_bytes_max} are accepted)")
        return size

"""Bytes between nodes as frames: `length 4 | kind 1 | content`. Pure.

A length is checked as soon as its four bytes are there, so a stranger's claim costs nothing; memory grows only with
what has really arrived.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple

from chronik import limits
from chronik.errors import ChronikError
from chronik.files import Buffer

FRAME_BYTES_MAX: Final = limits.PEER_MESSAGE_BYTES_MAX + 1024
"""The largest message, or a call of the same size, with its head."""

ANSWER_FRAME_BYTES_MAX: Final = limits.FRAME_BYTES_MAX + FRAME_BYTES_MAX
"""The largest answer to a call: a follower must be able to fetch the largest batch that a client could send."""

HANDSHAKE_BYTES_MAX: Final = 512
"""The largest frame until a node has shown that it knows the secret. The largest step, a hello, has about 330 bytes."""

SCRATCH_BYTES: Final = 64 * 1024
"""Room for one read of small frames. A larger frame is received in place, except for what this read had of it."""

SPARE_BYTES_MAX: Final = 8 * 1024 * 1024
"""Memory kept for the next large frame, for each connection that ever had one: an answer full of records fits."""

LENGTH_BYTES: Final = 4
HEAD_BYTES: Final = LENGTH_BYTES + 1


class FrameRefused(ChronikError):
    """A length that no frame can have, or a kind that this version does not know."""


class FrameKind(IntEnum):
    """These numbers must never change."""

    HANDSHAKE = 1
    MESSAGE = 2
    REQUEST = 3
    RESPONSE = 4


class Frame(NamedTuple):
    kind: FrameKind
    content: Buffer


def encode_frame(kind: FrameKind, content: bytes) -> bytes:
    return frame_head(kind, len(content)) + content


def frame_head(kind: FrameKind, size: int) -> bytes:
    """Returns what goes before a content of that size."""
    return (size + 1).to_bytes(LENGTH_BYTES, "big") + bytes((kind,))


class FrameSplitter:
    """Bytes from a socket become frames without a copy of a large one: the socket writes straight into it."""

    def __init__(self, scratch: memoryview) -> None:
        """`scratch` is where small frames arrive; connections share it, for reads on one loop never overlap."""
        self._scratch = scratch
        self._received = bytearray()
        self._bytes_max = HANDSHAKE_BYTES_MAX
        self._kind = FrameKind.HANDSHAKE  # of the large frame that is being received
        self._large: memoryview | None = None
        self._filled = 0
        self._spare = bytearray()

    def trust(self) -> None:
        """Allows large frames from now on: the other end has shown who it is."""
        self._bytes_max = ANSWER_FRAME_BYTES_MAX

    def buffer(self) -> memoryview:
        """Returns where the next bytes go."""
        return self._scratch if self._large is None else self._large[self._filled :]

    def received(self, count: int) -> None:
        """Notes that `count` bytes were written into the buffer. Take all frames out before the next `buffer`."""
        if self._large is None:
            self._received += self._scratch[:count]
        else:
            self._filled += count

    def next(self) -> Frame | None:
        """Returns the next whole frame, if it has arrived. One at a time: what one says decides how the next is read.

        Raises FrameRefused.
        """
        if self._large is not None:
            return self._finished(self._large)
        received = self._received
        if len(received) < LENGTH_BYTES:
            return None
        size = int.from_bytes(received[:LENGTH_BYTES], "big")
        if not 0 < size <= self._bytes_max:
            raise FrameRefused(f"a frame of {size} bytes (1 to {self._bytes_max} are accepted)")
        if len(received) < HEAD_BYTES:
            return None
        kind = _known_kind(received[LENGTH_BYTES])
        if size > FRAME_BYTES_MAX and kind is not FrameKind.RESPONSE:
            raise FrameRefused(f"a {kind.name.lower()} of {size} bytes (1 to {FRAME_BYTES_MAX} are accepted)")
        end = LENGTH_BYTES + size
        if len(received) < end:
            if size > len(self._scratch):
                self._begin_large(kind, size - 1)
            return None
        with memoryview(received) as view:
            content = bytes(view[HEAD_BYTES:end])
        del received[:end]
        return Frame(kind, content)

    def _begin_large(self, kind: FrameKind, size: int) -> None:
        """Claims the frame's memory at once; the system gives it only as it is written to."""
        self._kind, self._large = kind, memoryview(self._room_for(size))[:size]
        self._filled = len(self._received) - HEAD_BYTES
        self._large[: self._filled] = self._received[HEAD_BYTES:]
        self._received.clear()

    def _room_for(self, size: int) -> bytearray:
        """Returns the memory of the previous large frame, if nobody looks at it any more: new memory costs more than
        what is read into it, for the system clears it first."""
        spare = self._spare
        if size <= len(spare) and not _is_looked_at(spare):
            return spare
        if len(spare) <= size <= SPARE_BYTES_MAX:
            self._spare = bytearray(min(2 * size, SPARE_BYTES_MAX))
            return self._spare
        return bytearray(size)

    def _finished(self, large: memoryview) -> Frame | None:
        if self._filled < len(large):
            return None
        self._large = None
        return Frame(self._kind, large)


def _known_kind(number: int) -> FrameKind:
    try:
        return FrameKind(number)
    except ValueError:
        raise FrameRefused(f"a frame of kind {number}") from None


def _is_looked_at(buffer: bytearray) -> bool:
    """Whether somebody has a view of it: then its size cannot change."""
    try:
        buffer.append(0)
    except BufferError:
        return True
    del buffer[-1:]
    return False

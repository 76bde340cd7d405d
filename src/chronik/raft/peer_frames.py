"""Bytes between nodes as frames: `length 4 | kind 1 | content`. Pure.

A length is checked as soon as its four bytes are there, so a stranger's claim costs nothing; memory grows only with
what has really arrived.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple

from chronik import limits
from chronik.errors import ChronikError
from chronik.raft.messages import MESSAGE_BYTES_MAX

FRAME_BYTES_MAX: Final = MESSAGE_BYTES_MAX + 1024
"""The largest Raft message, or a call of the same size, and their heads."""

ANSWER_FRAME_BYTES_MAX: Final = limits.FRAME_BYTES_MAX + FRAME_BYTES_MAX
"""An answer to a call, which the asking node wanted: a follower must be able to fetch the largest batch that a client
could send."""

HANDSHAKE_BYTES_MAX: Final = 512
"""Until a node has shown that it knows the secret. The largest step, a hello, has about 330 bytes."""

LENGTH_BYTES: Final = 4
HEAD_BYTES: Final = LENGTH_BYTES + 1


class FrameRefused(ChronikError):
    """A length that no frame can have, or a kind that this version does not know."""


class FrameKind(IntEnum):
    """Kinds are forever."""

    HANDSHAKE = 1
    RAFT = 2
    REQUEST = 3
    RESPONSE = 4


class Frame(NamedTuple):
    kind: FrameKind
    content: bytes


def encode_frame(kind: FrameKind, content: bytes) -> bytes:
    return frame_head(kind, len(content)) + content


def frame_head(kind: FrameKind, size: int) -> bytes:
    """What goes before a content of that size."""
    return (size + 1).to_bytes(LENGTH_BYTES, "big") + bytes((kind,))


class FrameSplitter:
    def __init__(self) -> None:
        self._received = bytearray()
        self._bytes_max = HANDSHAKE_BYTES_MAX

    def trust(self) -> None:
        """The other end has shown who it is: from now on frames may be large."""
        self._bytes_max = ANSWER_FRAME_BYTES_MAX

    def receive(self, data: bytes) -> None:
        self._received += data

    def next(self) -> Frame | None:
        """The next whole frame, if it has arrived. One at a time: what one says decides how the next is read.

        Raises FrameRefused.
        """
        received = self._received
        if len(received) < LENGTH_BYTES:
            return None
        size = int.from_bytes(received[:LENGTH_BYTES], "big")
        if not 0 < size <= self._bytes_max:
            raise FrameRefused(f"a frame of {size} bytes (1 to {self._bytes_max} are accepted)")
        if len(received) < HEAD_BYTES:
            return None
        try:
            kind = FrameKind(received[LENGTH_BYTES])
        except ValueError:
            raise FrameRefused(f"a frame of kind {received[LENGTH_BYTES]}") from None
        if size > FRAME_BYTES_MAX and kind is not FrameKind.RESPONSE:
            raise FrameRefused(f"a {kind.name.lower()} of {size} bytes (1 to {FRAME_BYTES_MAX} are accepted)")
        end = LENGTH_BYTES + size
        if len(received) < end:
            return None
        with memoryview(received) as view:
            content = bytes(view[HEAD_BYTES:end])
        del received[:end]
        return Frame(kind, content)

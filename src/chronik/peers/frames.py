"""The framing of peer connections: `length 4 | kind 1 | content`.

The length is checked as soon as it has arrived, and memory is allocated lazily by the system, so that unauthenticated
clients cannot cause large allocations.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple

from chronik import limits
from chronik.errors import ChronikError
from chronik.files import Buffer

FRAME_BYTES_MAX: Final = limits.PEER_MESSAGE_BYTES_MAX + 1024
"""The maximum size of a peer frame other than a response in bytes, including its header."""

RESPONSE_FRAME_BYTES_MAX: Final = limits.FRAME_BYTES_MAX + FRAME_BYTES_MAX
"""The maximum size of a response frame in bytes, enough for the largest record batch of a client."""

HANDSHAKE_BYTES_MAX: Final = 512
"""The maximum size of a frame from an unauthenticated peer in bytes."""

SCRATCH_BYTES: Final = 64 * 1024
"""The size of the receive buffer that all peer connections share, in bytes. Larger frames get their own buffer."""

SPARE_BYTES_MAX: Final = 8 * 1024 * 1024
"""The maximum size in bytes of the buffer that a connection reuses for large frames."""

LENGTH_BYTES: Final = 4
HEADER_BYTES: Final = LENGTH_BYTES + 1


class InvalidPeerFrame(ChronikError):
    """A frame with an invalid length or an unknown kind."""


class FrameKind(IntEnum):
    """The kind of a peer frame. The numbers are part of the peer protocol and must never change."""

    HANDSHAKE = 1
    MESSAGE = 2
    REQUEST = 3
    RESPONSE = 4


class Frame(NamedTuple):
    """A frame received from a peer."""

    kind: FrameKind
    content: Buffer


def encode_frame(kind: FrameKind, content: bytes) -> bytes:
    return encode_frame_header(kind, len(content)) + content


def encode_frame_header(kind: FrameKind, size: int) -> bytes:
    """Return the header of a frame with `size` bytes of content."""
    return (size + 1).to_bytes(LENGTH_BYTES, "big") + bytes((kind,))


class PeerFrameDecoder:
    """A decoder that splits the bytes received from a peer into frames."""

    def __init__(self, scratch: memoryview) -> None:
        """Create a decoder. All connections of an event loop may share `scratch`, because their reads never overlap."""
        self._scratch = scratch
        self._received = bytearray()
        self._bytes_max = HANDSHAKE_BYTES_MAX
        self._kind = FrameKind.HANDSHAKE  # of the large frame that is being received
        self._large: memoryview | None = None
        self._filled = 0
        self._spare = bytearray()

    def allow_large_frames(self) -> None:
        """Raise the maximum frame size after the peer has been authenticated."""
        self._bytes_max = RESPONSE_FRAME_BYTES_MAX

    def get_buffer(self) -> memoryview:
        """Return the buffer into which the next bytes are received."""
        return self._scratch if self._large is None else self._large[self._filled :]

    def buffer_updated(self, count: int) -> None:
        """Record that `count` bytes were received into the buffer."""
        if self._large is None:
            self._received += self._scratch[:count]
        else:
            self._filled += count

    def next_frame(self) -> Frame | None:
        """Return the next complete frame, or None. Process each frame before reading the next one.

        Raises InvalidPeerFrame if the frame is invalid.
        """
        if self._large is not None:
            return self._take_large_frame_if_complete(self._large)
        received = self._received
        if len(received) < LENGTH_BYTES:
            return None
        size = int.from_bytes(received[:LENGTH_BYTES], "big")
        if not 0 < size <= self._bytes_max:
            raise InvalidPeerFrame(f"invalid frame size {size} (must be 1 to {self._bytes_max} bytes)")
        if len(received) < HEADER_BYTES:
            return None
        kind = _decode_frame_kind(received[LENGTH_BYTES])
        if size > FRAME_BYTES_MAX and kind is not FrameKind.RESPONSE:
            raise InvalidPeerFrame(
                f"{kind.name.lower()} frame of {size} bytes exceeds the maximum of {FRAME_BYTES_MAX}"
            )
        end = LENGTH_BYTES + size
        if len(received) < end:
            if size > len(self._scratch):
                self._start_large_frame(kind, size - 1)
            return None
        with memoryview(received) as view:
            content = bytes(view[HEADER_BYTES:end])
        del received[:end]
        return Frame(kind, content)

    def _start_large_frame(self, kind: FrameKind, size: int) -> None:
        """Allocate a buffer of its own for a frame that does not fit into the shared receive buffer."""
        self._kind, self._large = kind, memoryview(self._allocate_buffer(size))[:size]
        self._filled = len(self._received) - HEADER_BYTES
        self._large[: self._filled] = self._received[HEADER_BYTES:]
        self._received.clear()

    def _allocate_buffer(self, size: int) -> bytearray:
        """Return a buffer for a large frame, reusing the previous one if possible, because clearing memory is slow."""
        spare = self._spare
        if size <= len(spare) and not _has_exported_view(spare):
            return spare
        if len(spare) <= size <= SPARE_BYTES_MAX:
            self._spare = bytearray(min(2 * size, SPARE_BYTES_MAX))
            return self._spare
        return bytearray(size)

    def _take_large_frame_if_complete(self, large: memoryview) -> Frame | None:
        if self._filled < len(large):
            return None
        self._large = None
        return Frame(self._kind, large)


def _decode_frame_kind(number: int) -> FrameKind:
    try:
        return FrameKind(number)
    except ValueError:
        raise InvalidPeerFrame(f"unknown frame kind {number}") from None


def _has_exported_view(buffer: bytearray) -> bool:
    """Return whether a memoryview of the buffer exists, in which case the buffer must not be reused."""
    try:
        buffer.append(0)
    except BufferError:
        return True
    del buffer[-1:]
    return False

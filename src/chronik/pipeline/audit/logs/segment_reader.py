"""Buffered reading of a segment file that may be damaged: find batch headers, and the next valid batch after damage."""

from __future__ import annotations

import os
import struct

from chronik.limits import FRAME_BYTES_MAX
from chronik.pipeline.source.record_chunk import CHUNK_BYTES
from chronik.protocol.batch import (
    HEADER_BYTES,
    LENGTH_END,
    MAGIC,
    MAGIC_POSITION,
    BatchHeader,
    parse_header,
    verify_crc,
)
from chronik.protocol.errors import CorruptRecords
from chronik.protocol.varint import INT32_MAX

_PREFIX = struct.Struct(">qiib")  # base offset, length, leader epoch, magic
_OFFSET = struct.Struct(">q")


class SegmentReader:
    """A reader of one segment file, which reads a chunk at a time and trusts nothing in it unverified."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._descriptor = os.open(path, os.O_RDONLY)
        self.size = os.fstat(self._descriptor).st_size
        self._start = 0
        self._buffer = memoryview(b"")

    def __enter__(self) -> SegmentReader:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)

    def read(self, position: int, size: int) -> memoryview:
        """Return up to `size` bytes from a position; fewer at the end of the file."""
        first = position - self._start
        if first < 0 or first + size > len(self._buffer):
            self._buffer = memoryview(os.pread(self._descriptor, max(size, CHUNK_BYTES), position))
            self._start, first = position, 0
        return self._buffer[first : first + size]

    def read_header(self, position: int) -> BatchHeader | None:
        """Return the batch header at a position, or None if no complete batch can be there."""
        first = position - self._start
        if first < 0 or first + HEADER_BYTES > len(self._buffer):
            self.read(position, HEADER_BYTES)
            first = 0
            if len(self._buffer) < HEADER_BYTES:
                return None
        _, length, _, magic = _PREFIX.unpack_from(self._buffer, first)
        size = length + LENGTH_END
        if magic != MAGIC or not HEADER_BYTES <= size <= self.size - position or size > FRAME_BYTES_MAX:
            return None
        if first + size > len(self._buffer):
            self.read(position, size)
            first = 0
        try:
            return parse_header(self._buffer, first)
        except CorruptRecords:
            return None  # the file was truncated since it was opened

    def is_unwritten(self, position: int) -> bool:
        """Return whether no batch was written at a position: it has preallocated zeros or is the end of the file."""
        return not any(self.read(position, LENGTH_END))

    def find_next_valid_batch(self, position: int, min_offset: int) -> int:
        """Return the position of the next batch with a correct checksum and a plausible offset, or the file's end."""
        while position < self.size:
            view = bytes(self.read(position, CHUNK_BYTES))
            found = view.find(MAGIC, MAGIC_POSITION)
            while 0 <= found <= len(view) - HEADER_BYTES + MAGIC_POSITION:
                at = position + found - MAGIC_POSITION
                if self._is_valid_batch(at, min_offset):
                    return at
                found = view.find(MAGIC, found + 1)
            if len(view) <= HEADER_BYTES:
                break
            position += len(view) - HEADER_BYTES + 1
        return self.size

    def _is_valid_batch(self, position: int, min_offset: int) -> bool:
        offset = _OFFSET.unpack_from(self.read(position, LENGTH_END))[0]
        if not min_offset <= offset <= min_offset + INT32_MAX:
            return False
        header = self.read_header(position)
        return header is not None and verify_crc(self.read(position, header.size), 0, header.size)

    def base_offset_at(self, position: int, default: int) -> int:
        """Return the base offset of the batch at a position, or `default` if there is none."""
        header = self.read_header(position)
        return default if header is None else header.base_offset

    def has_plausible_successor(self, next_position: int, header: BatchHeader) -> bool:
        """Return whether a damaged batch is followed by the batch that its header implies, or by the end of file."""
        follower = self.read_header(next_position)
        return self.is_unwritten(next_position) if follower is None else follower.base_offset == header.next_offset

"""One segment file as an audit reads it: a batch is where a header can be; after damage its checksum must be right."""

from __future__ import annotations

import os
import struct

from chronik.limits import FRAME_BYTES_MAX
from chronik.pipeline.reading.portions import PORTION_BYTES
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
    """One file of a replica, a portion at a time. What it says of itself is not believed."""

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

    def view(self, position: int, size: int) -> memoryview:
        """Returns so many bytes, or as many as there are."""
        first = position - self._start
        if first < 0 or first + size > len(self._buffer):
            self._buffer = memoryview(os.pread(self._descriptor, max(size, PORTION_BYTES), position))
            self._start, first = position, 0
        return self._buffer[first : first + size]

    def header(self, position: int) -> BatchHeader | None:
        """Returns None when no whole batch can be there."""
        first = position - self._start
        if first < 0 or first + HEADER_BYTES > len(self._buffer):
            self.view(position, HEADER_BYTES)
            first = 0
            if len(self._buffer) < HEADER_BYTES:
                return None
        _, length, _, magic = _PREFIX.unpack_from(self._buffer, first)
        size = length + LENGTH_END
        if magic != MAGIC or not HEADER_BYTES <= size <= self.size - position or size > FRAME_BYTES_MAX:
            return None
        if first + size > len(self._buffer):
            self.view(position, size)
            first = 0
        try:
            return parse_header(self._buffer, first)
        except CorruptRecords:
            return None  # the file has become shorter

    def is_room(self, position: int) -> bool:
        """After the batches of a segment that is written to there may be zeros; and in the end there is nothing."""
        return not any(self.view(position, LENGTH_END))

    def next_good(self, position: int, due: int) -> int:
        """Returns where the next batch is whose checksum is right and whose offset may follow; else the file's end."""
        while position < self.size:
            view = bytes(self.view(position, PORTION_BYTES))
            found = view.find(MAGIC, MAGIC_POSITION)
            while 0 <= found <= len(view) - HEADER_BYTES + MAGIC_POSITION:
                at = position + found - MAGIC_POSITION
                if self._is_good(at, due):
                    return at
                found = view.find(MAGIC, found + 1)
            if len(view) <= HEADER_BYTES:
                break
            position += len(view) - HEADER_BYTES + 1
        return self.size

    def _is_good(self, position: int, due: int) -> bool:
        offset = _OFFSET.unpack_from(self.view(position, LENGTH_END))[0]
        if not due <= offset <= due + INT32_MAX:
            return False
        header = self.header(position)
        return header is not None and verify_crc(self.view(position, header.size), 0, header.size)

    def offset_at(self, position: int, otherwise: int) -> int:
        """Returns the base offset of the batch that is there, if one can be."""
        header = self.header(position)
        return otherwise if header is None else header.base_offset

    def leads_on(self, behind: int, header: BatchHeader) -> bool:
        """Says whether the header of a batch that is damaged somewhere leads to what follows it, at `behind`."""
        follower = self.header(behind)
        return self.is_room(behind) if follower is None else follower.base_offset == header.next_offset

"""Offsets that a log remembers beside its segments, each in a small file that is replaced as a whole:

where the log begins, when records were deleted from its front; and how far it is compacted.
"""

from __future__ import annotations

import struct

from chronik.crc import crc32c
from chronik.files import FileSystem, read_file, write_atomically

_OFFSET = struct.Struct(">q")
_CRC = struct.Struct(">I")
_COPY_BYTES = _OFFSET.size + _CRC.size


class OffsetFile:
    __slots__ = ("_files", "path", "stored")

    def __init__(self, files: FileSystem, path: str) -> None:
        self.path = path
        self.stored: int | None = None
        """What the file holds, as far as is known."""
        self._files = files

    def load(self) -> int | None:
        """Returns None when there is no file, or nothing of it is readable."""
        data = read_file(self._files, self.path) or b""
        for position in (0, _COPY_BYTES):
            copy = data[position : position + _COPY_BYTES]
            if len(copy) == _COPY_BYTES and _CRC.unpack_from(copy, _OFFSET.size)[0] == crc32c(copy[: _OFFSET.size]):
                self.stored = _OFFSET.unpack_from(copy)[0]
                break
        return self.stored

    def store(self, offset: int) -> None:
        """Stores the offset durably; waits for the disk."""
        self.write(offset)
        self.stored = offset

    def write(self, offset: int) -> None:
        """Does as `store` in another thread, but leaves it to the owner to note that it is done.

        The offset is written twice: no other file could tell what was deleted if one copy were damaged.
        """
        data = _OFFSET.pack(offset)
        write_atomically(self._files, self.path, (data + _CRC.pack(crc32c(data))) * 2)


class OffsetMarks:
    """The two offsets of a log: where it starts, and how far it is compacted, which is never below its start."""

    __slots__ = ("_compacted", "compacted_offset", "start")

    def __init__(self, start: OffsetFile, compacted: OffsetFile, log_start_offset: int) -> None:
        self.start = start
        self.compacted_offset = log_start_offset
        self._compacted = compacted

    @property
    def compacted_stored(self) -> int:
        """How far the log is known to be compacted whatever happens."""
        return max(self._compacted.stored or 0, self.start.stored or 0)

    def load(self, log_start_offset: int, log_end_offset: int) -> None:
        self.compacted_offset = max(log_start_offset, min(self._compacted.load() or 0, log_end_offset))

    def compacted_to(self, offset: int) -> None:
        self.compacted_offset = max(self.compacted_offset, offset)

    def cut(self, log_start_offset: int, offset: int) -> None:
        """Adapts to a log that is cut at `offset`. Waits for the disk."""
        self.compacted_offset = max(log_start_offset, min(self.compacted_offset, offset))
        if (self._compacted.stored or 0) > self.compacted_offset:
            self._compacted.store(self.compacted_offset)

    def to_store(
        self, log_start_offset: int, first_segment: int | None, *, is_exchanging: bool
    ) -> list[tuple[OffsetFile, int]]:
        """Returns what the next sync has to write."""
        offsets = []
        # A log that starts where its first segment does needs no file to say so.
        if first_segment is not None and log_start_offset > max(self.start.stored or 0, first_segment):
            offsets.append((self.start, log_start_offset))
        compacted_before = max(self._compacted.stored or 0, log_start_offset)
        if self.compacted_offset > compacted_before and not is_exchanging:
            offsets.append((self._compacted, self.compacted_offset))
        return offsets

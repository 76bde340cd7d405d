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
        """What stands in the file, as far as is known."""
        self._files = files

    def load(self) -> int | None:
        """None when there is no file, or nothing of it is readable."""
        data = read_file(self._files, self.path) or b""
        for position in (0, _COPY_BYTES):
            copy = data[position : position + _COPY_BYTES]
            if len(copy) == _COPY_BYTES and _CRC.unpack_from(copy, _OFFSET.size)[0] == crc32c(copy[: _OFFSET.size]):
                self.stored = _OFFSET.unpack_from(copy)[0]
                break
        return self.stored

    def store(self, offset: int) -> None:
        """Durably; waits for the disk."""
        self.write(offset)
        self.stored = offset

    def write(self, offset: int) -> None:
        """As `store`, for another thread, which leaves it to the owner to note that it is done.

        The offset is written twice: no other file could tell what was deleted if one copy were damaged.
        """
        data = _OFFSET.pack(offset)
        write_atomically(self._files, self.path, (data + _CRC.pack(crc32c(data))) * 2)

"""Offsets that a log remembers beside its segments, each in a small file that is replaced as a whole:

where the log begins, when records were deleted from its front; and how far it is compacted.
"""

from __future__ import annotations

import struct

from crc32c import crc32c

from chronik.files import FileSystem, read_file, write_atomically

_OFFSET = struct.Struct(">q")
_CRC = struct.Struct(">I")
_COPY_BYTES = _OFFSET.size + _CRC.size


def store_offset(files: FileSystem, path: str, offset: int) -> None:
    """Durably. The offset is written twice: no other file could tell what was deleted if one copy were damaged."""
    data = _OFFSET.pack(offset)
    write_atomically(files, path, (data + _CRC.pack(crc32c(data))) * 2)


def load_offset(files: FileSystem, path: str) -> int | None:
    """None when there is no file, or nothing of it is readable."""
    data = read_file(files, path) or b""
    for position in (0, _COPY_BYTES):
        copy = data[position : position + _COPY_BYTES]
        if len(copy) == _COPY_BYTES and _CRC.unpack_from(copy, _OFFSET.size)[0] == crc32c(copy[: _OFFSET.size]):
            offset: int = _OFFSET.unpack_from(copy)[0]
            return offset
    return None

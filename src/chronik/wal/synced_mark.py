"""How far a log was synced, in a little file beside it.

The last record of a log has none after it to say that it was synced, so a damaged one would pass for a torn tail
and be cut off. The mark is written after each sync and itself not synced: it is exact after the process was killed, and
after a power cut it may be old, but never ahead of what is on disk. A torn or missing mark says nothing.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from chronik.crc import crc32c
from chronik.files import File

_FIELDS: Final = struct.Struct(">QQ")
_MARK: Final = struct.Struct(">QQI")


class Mark(NamedTuple):
    """In the segment that begins with `first_index`, everything before `position` was synced."""

    first_index: int
    position: int


NOTHING_KNOWN: Final = Mark(0, 0)


class SyncedMark:
    def __init__(self, file: File) -> None:
        self._file = file

    def read(self) -> Mark:
        data = self._file.pread(_MARK.size, 0)
        if len(data) < _MARK.size:
            return NOTHING_KNOWN
        first_index, position, crc = _MARK.unpack(data)
        return Mark(first_index, position) if crc == crc32c(data[: _FIELDS.size]) else NOTHING_KNOWN

    def write(self, mark: Mark) -> None:
        fields = _FIELDS.pack(*mark)
        self._file.pwrite(_MARK.pack(*mark, crc32c(fields)), 0)

    def lower(self, mark: Mark) -> None:
        """Is called before anything is removed from a log: the mark must never be ahead of it."""
        self.write(mark)
        self._file.fdatasync()

    def close(self) -> None:
        self._file.close()

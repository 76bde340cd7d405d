"""The synced position of a log, stored in a small file next to it.

No later record proves that the last record of a log was synced, so damage to it would look like a torn tail and be
truncated. The mark is written after each sync, without a sync of its own: it is exact after the process was killed, and
after a power failure it may be outdated but never ahead of the log. An invalid or missing mark is ignored.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from chronik.crc import crc32c
from chronik.files import File

_FIELDS_STRUCT: Final = struct.Struct(">QQ")
_MARK_STRUCT: Final = struct.Struct(">QQI")


class SyncedPosition(NamedTuple):
    """A synced position: all bytes before `position` in the segment that starts at `first_index` are synced."""

    first_index: int
    position: int


UNKNOWN_POSITION: Final = SyncedPosition(0, 0)


class SyncedPositionFile:
    """The file that stores a log's synced position."""

    def __init__(self, file: File) -> None:
        self._file = file

    def read(self) -> SyncedPosition:
        data = self._file.pread(_MARK_STRUCT.size, 0)
        if len(data) < _MARK_STRUCT.size:
            return UNKNOWN_POSITION
        first_index, position, crc = _MARK_STRUCT.unpack(data)
        return SyncedPosition(first_index, position) if crc == crc32c(data[: _FIELDS_STRUCT.size]) else UNKNOWN_POSITION

    def write(self, mark: SyncedPosition) -> None:
        fields = _FIELDS_STRUCT.pack(*mark)
        self._file.pwrite(_MARK_STRUCT.pack(*mark, crc32c(fields)), 0)

    def lower(self, mark: SyncedPosition) -> None:
        """Lower the mark durably. Called before a log is truncated, because the mark must never be ahead of it."""
        self.write(mark)
        self._file.fdatasync()

    def close(self) -> None:
        self._file.close()

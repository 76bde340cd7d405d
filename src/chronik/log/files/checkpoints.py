"""Checkpoint files of a partition: the log start offset, and the offset below which the log is compacted."""

from __future__ import annotations

import struct

from chronik.crc import crc32c
from chronik.files import FileSystem, read_file, write_atomically

_OFFSET = struct.Struct(">q")
_CRC = struct.Struct(">I")
_COPY_BYTES = _OFFSET.size + _CRC.size


class OffsetCheckpointFile:
    """A checkpoint file that contains one offset and is replaced atomically."""

    __slots__ = ("_files", "path", "stored_offset")

    def __init__(self, files: FileSystem, path: str) -> None:
        self.path = path
        self.stored_offset: int | None = None
        """The offset in the checkpoint file, or None if it is unknown."""
        self._files = files

    def load(self) -> int | None:
        """Load and return the offset, or return None if the file is missing or damaged."""
        data = read_file(self._files, self.path) or b""
        for position in (0, _COPY_BYTES):
            copy = data[position : position + _COPY_BYTES]
            if len(copy) == _COPY_BYTES and _CRC.unpack_from(copy, _OFFSET.size)[0] == crc32c(copy[: _OFFSET.size]):
                self.stored_offset = _OFFSET.unpack_from(copy)[0]
                break
        return self.stored_offset

    def store(self, offset: int) -> None:
        """Write the offset durably to the checkpoint file, and remember it in `stored_offset`. Blocks on the disk."""
        self.write(offset)
        self.stored_offset = offset

    def write(self, offset: int) -> None:
        """Write the offset durably to the checkpoint file. Another thread may call this, so `stored_offset` is not
        changed.

        The file holds two copies of the offset, because no other file could tell what was deleted if one were damaged.
        """
        data = _OFFSET.pack(offset)
        write_atomically(self._files, self.path, (data + _CRC.pack(crc32c(data))) * 2)


class LogCheckpoints:
    """The checkpoint files of a log: its log start offset and the offset below which it is compacted.

    The compacted offset is never below the start offset.
    """

    __slots__ = ("_compacted", "compacted_offset", "start_checkpoint")

    def __init__(self, start: OffsetCheckpointFile, compacted: OffsetCheckpointFile, log_start_offset: int) -> None:
        self.start_checkpoint = start
        self.compacted_offset = log_start_offset
        self._compacted = compacted

    @property
    def durable_compacted_offset(self) -> int:
        """The offset below which the log is compacted, as stored in the checkpoint files."""
        return max(self._compacted.stored_offset or 0, self.start_checkpoint.stored_offset or 0)

    def load(self, log_start_offset: int, log_end_offset: int) -> None:
        """Load the compacted offset from its checkpoint file, limited to the existing offsets of the log."""
        self.compacted_offset = max(log_start_offset, min(self._compacted.load() or 0, log_end_offset))

    def advance_compacted_offset(self, offset: int) -> None:
        """Raise the compacted offset to `offset`, unless it is already higher."""
        self.compacted_offset = max(self.compacted_offset, offset)

    def truncate_to(self, log_start_offset: int, offset: int) -> None:
        """Lower the compacted offset to `offset`, at which the log was truncated. Blocks on the disk."""
        self.compacted_offset = max(log_start_offset, min(self.compacted_offset, offset))
        if (self._compacted.stored_offset or 0) > self.compacted_offset:
            self._compacted.store(self.compacted_offset)

    def pending_checkpoints(
        self, log_start_offset: int, first_segment: int | None, *, has_swaps: bool
    ) -> list[tuple[OffsetCheckpointFile, int]]:
        """Return the checkpoint files and offsets that the next sync must write."""
        offsets = []
        # A log whose start offset is the base offset of its first segment needs no checkpoint.
        if first_segment is not None and log_start_offset > max(
            self.start_checkpoint.stored_offset or 0, first_segment
        ):
            offsets.append((self.start_checkpoint, log_start_offset))
        compacted_before = max(self._compacted.stored_offset or 0, log_start_offset)
        if self.compacted_offset > compacted_before and not has_swaps:
            offsets.append((self._compacted, self.compacted_offset))
        return offsets

"""The leader epoch history of a partition: the start offset of each leader epoch.

Replicas compare their histories to find where their logs diverge, and the epoch of each batch must match the history.
The file has 16 bytes per epoch, including a checksum. An entry is written before the first batch of its epoch and
synced together with it. An epoch without batches is kept in memory only.
"""

from __future__ import annotations

import struct
from bisect import bisect_right

from chronik.crc import crc32c
from chronik.errors import check_invariant
from chronik.files import File, FileCache, write_atomically
from chronik.log.config import LONG_MAX

NO_EPOCH = -1
NO_OFFSET = -1

# Entries below the log start offset that may stay in the file before it is rewritten.
STALE_ENTRIES_MAX = 64

_ENTRY = struct.Struct(">iq")
_CRC = struct.Struct(">I")
_ENTRY_BYTES = _ENTRY.size + _CRC.size


class LeaderEpochHistory:
    """A partition's leader epochs with their start offsets, in memory and in a file."""

    __slots__ = ("_cache", "_epochs", "_path", "_starts", "_stored")

    def __init__(self, cache: FileCache, path: str) -> None:
        self._cache = cache
        self._path = path
        self._epochs: list[int] = []
        self._starts: list[int] = []
        self._stored = 0

    def copy(self) -> LeaderEpochHistory:
        """Return a copy of the leader epochs that another thread can read."""
        history = LeaderEpochHistory(self._cache, self._path)
        history._epochs, history._starts = list(self._epochs), list(self._starts)
        return history

    @property
    def latest_epoch(self) -> int:
        return self._epochs[-1] if self._epochs else NO_EPOCH

    def entries(self) -> list[tuple[int, int]]:
        """Return the leader epochs as (epoch, start offset), in ascending order."""
        return list(zip(self._epochs, self._starts, strict=True))

    def find_epoch_at(self, offset: int) -> tuple[int, int]:
        """Return the leader epoch of the batch at `offset`, and the start offset of the next epoch."""
        number = bisect_right(self._starts, offset)
        end = self._starts[number] if number < len(self._starts) else LONG_MAX
        return (self._epochs[number - 1] if number else NO_EPOCH), end

    def find_epoch_end_offset(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """Return the largest leader epoch up to `epoch` and its end offset (OffsetForLeaderEpoch), or (-1, -1) if
        unknown.
        """
        if not self._epochs or epoch == NO_EPOCH or epoch > self.latest_epoch:
            return NO_EPOCH, NO_OFFSET
        if epoch == self.latest_epoch:
            return epoch, log_end_offset
        number = bisect_right(self._epochs, epoch)
        return (self._epochs[number - 1] if number else epoch), self._starts[number]

    def assign(self, epoch: int, start_offset: int) -> None:
        """Assign a leader epoch to the batches from `start_offset` on.

        Does nothing unless the epoch is above the latest.
        """
        if epoch <= self.latest_epoch:
            return
        check_invariant(not self.truncate_from_end(start_offset), "a leader epoch starts below the log end offset")
        self._epochs.append(epoch)
        self._starts.append(start_offset)

    def write_pending(self) -> File | None:
        """Write the new leader epochs to the file. Return the file if it must be synced, otherwise None."""
        if self._stored == len(self._epochs):
            return None
        file = self._cache.create(self._path)
        file.pwrite(self._encode_entries(self._stored), self._stored * _ENTRY_BYTES)
        self._stored = len(self._epochs)
        return file

    def truncate_from_end(self, offset: int) -> bool:
        """Remove the leader epochs that start at or after `offset`, the new log end offset.

        Return whether the file still has them.
        """
        kept = len(self._starts)
        while kept and self._starts[kept - 1] >= offset:
            kept -= 1
        del self._epochs[kept:], self._starts[kept:]
        return kept < self._stored

    def load(self, data: bytes) -> bool:
        """Load the leader epochs from the contents of the file. Return False if they are damaged or incomplete."""
        for position in range(0, len(data), _ENTRY_BYTES):
            entry = data[position : position + _ENTRY_BYTES]
            if len(entry) < _ENTRY_BYTES or _CRC.unpack_from(entry, _ENTRY.size)[0] != crc32c(entry[: _ENTRY.size]):
                return False
            epoch, start = _ENTRY.unpack_from(entry)
            if epoch <= self.latest_epoch or (self._starts and start <= self._starts[-1]):
                return False
            self._epochs.append(epoch)
            self._starts.append(start)
            self._stored += 1
        return True

    def truncate_from_start(self, log_start_offset: int) -> None:
        """Remove the leader epochs that end below the log start offset."""
        stale = bisect_right(self._starts, log_start_offset) - 1
        if stale > STALE_ENTRIES_MAX:
            del self._epochs[:stale], self._starts[:stale]
            self.rewrite()

    def rewrite(self) -> None:
        """Atomically replace the file with the leader epochs in memory. Durable on return."""
        self._cache.close_file(self._path)
        write_atomically(self._cache.files, self._path, self._encode_entries(0))
        self._stored = len(self._epochs)

    def _encode_entries(self, first: int) -> bytes:
        data = bytearray()
        for epoch, start in zip(self._epochs[first:], self._starts[first:], strict=True):
            entry = _ENTRY.pack(epoch, start)
            data += entry + _CRC.pack(crc32c(entry))
        return bytes(data)

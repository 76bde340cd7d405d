"""Which leader epoch wrote which offsets: the history that replicas compare, and that the epoch of each batch must fit.

The file is appended to, 16 bytes per epoch with their own checksum, before the first batch of that epoch is written,
and synced together with it. An epoch under which nothing was written yet is only remembered.
"""

from __future__ import annotations

import struct
from bisect import bisect_right

from chronik.crc import crc32c
from chronik.errors import invariant
from chronik.files import File, FileCache, write_atomically
from chronik.log.config import LONG_MAX

NO_EPOCH = -1
NO_OFFSET = -1

# How many entries below the log's start may stay in the file before it is rewritten.
STALE_ENTRIES_MAX = 64

_ENTRY = struct.Struct(">iq")
_CRC = struct.Struct(">I")
_ENTRY_BYTES = _ENTRY.size + _CRC.size


class EpochHistory:
    __slots__ = ("_cache", "_epochs", "_path", "_starts", "_stored")

    def __init__(self, cache: FileCache, path: str) -> None:
        self._cache = cache
        self._path = path
        self._epochs: list[int] = []
        self._starts: list[int] = []
        self._stored = 0

    def copy(self) -> EpochHistory:
        """Returns a copy, for another thread to look things up in."""
        history = EpochHistory(self._cache, self._path)
        history._epochs, history._starts = list(self._epochs), list(self._starts)
        return history

    @property
    def latest_epoch(self) -> int:
        return self._epochs[-1] if self._epochs else NO_EPOCH

    def entries(self) -> list[tuple[int, int]]:
        """Returns every (epoch, first offset), in order."""
        return list(zip(self._epochs, self._starts, strict=True))

    def range_at(self, offset: int) -> tuple[int, int]:
        """Returns the epoch that a batch at `offset` must have, and the offset where the next epoch starts."""
        number = bisect_right(self._starts, offset)
        end = self._starts[number] if number < len(self._starts) else LONG_MAX
        return (self._epochs[number - 1] if number else NO_EPOCH), end

    def end_offset(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """Returns the largest epoch not above `epoch`, and where it ends; (-1, -1) if unknown: OffsetForLeaderEpoch."""
        if not self._epochs or epoch == NO_EPOCH or epoch > self.latest_epoch:
            return NO_EPOCH, NO_OFFSET
        if epoch == self.latest_epoch:
            return epoch, log_end_offset
        number = bisect_right(self._epochs, epoch)
        return (self._epochs[number - 1] if number else epoch), self._starts[number]

    def assign(self, epoch: int, start_offset: int) -> None:
        """Gives batches from `start_offset` on this epoch. An epoch not above the latest one changes nothing."""
        if epoch <= self.latest_epoch:
            return
        invariant(not self.drop_from(start_offset), "a leader epoch that starts before the end of the log")
        self._epochs.append(epoch)
        self._starts.append(start_offset)

    def store(self) -> File | None:
        """Writes what was only remembered; returns the file if it has to be synced."""
        if self._stored == len(self._epochs):
            return None
        file = self._cache.create(self._path)
        file.pwrite(self._encode(self._stored), self._stored * _ENTRY_BYTES)
        self._stored = len(self._epochs)
        return file

    def drop_from(self, offset: int) -> bool:
        """Forgets epochs that started at `offset`, where the log ends, or later. Returns whether the file has them."""
        kept = len(self._starts)
        while kept and self._starts[kept - 1] >= offset:
            kept -= 1
        del self._epochs[kept:], self._starts[kept:]
        return kept < self._stored

    def load(self, data: bytes) -> bool:
        """Takes the entries of the file. Returns False when they are damaged from some entry on, or cut short."""
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

    def forget_before(self, log_start_offset: int) -> None:
        """Forgets entries that ended before the log starts; the file is rewritten when they are many."""
        stale = bisect_right(self._starts, log_start_offset) - 1
        if stale > STALE_ENTRIES_MAX:
            del self._epochs[:stale], self._starts[:stale]
            self.rewrite()

    def rewrite(self) -> None:
        """Replaces the file, durably, by what is known."""
        self._cache.forget(self._path)
        write_atomically(self._cache.files, self._path, self._encode(0))
        self._stored = len(self._epochs)

    def _encode(self, first: int) -> bytes:
        data = bytearray()
        for epoch, start in zip(self._epochs[first:], self._starts[first:], strict=True):
            entry = _ENTRY.pack(epoch, start)
            data += entry + _CRC.pack(crc32c(entry))
        return bytes(data)

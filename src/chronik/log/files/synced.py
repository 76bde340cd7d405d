"""How far each partition of a node is synced: one file of 32-byte slots, each with its checksum.

A slot is overwritten after a sync has completed, so it never says more than is true; it is not synced each time, so
after a power cut it may say less, and a little more of the log is checked. After `kill -9` it is exact. What lies below
it was once good: recovery never cuts it off. Whoever truncates a log lowers its slot first, durably. And whoever begins
a log anew, of a partition that was here before, asks here first: what was known of the old one is durably gone by then.
"""

from __future__ import annotations

import struct

from chronik.crc import crc32c
from chronik.files import FileSystem, folder_of

_SLOT = struct.Struct(">16siq")
_CRC = struct.Struct(">I")
SLOT_BYTES = _SLOT.size + _CRC.size
_EMPTY_SLOT = bytes(SLOT_BYTES)

REMOVALS_KEPT = 1000
"""After so many the ones that are durable are forgotten."""

Key = tuple[bytes, int]


class SyncedOffsets:
    def __init__(self, files: FileSystem, path: str) -> None:
        """Opens the file, or creates it durably when there is none."""
        for folder in [*files.make_folder(folder_of(path)), folder_of(path)]:
            files.sync_folder(folder)
        is_new = not files.exists(path)
        self._file = files.create(path)
        if is_new:
            files.sync_folder(folder_of(path))
        self._slots: dict[Key, int] = {}
        self._offsets: dict[Key, int] = {}
        self._free: list[int] = []
        self._removed: dict[Key, int] = {}
        """Partitions that may be gone in memory only: which removal each was."""
        self._removals = 0
        self._removals_synced = 0
        self._load()
        if not is_new:
            self._file.fdatasync()  # a process that was killed may have removed something: see `get`

    def get(self, topic_id: bytes, partition: int) -> int:
        """Returns 0 when nothing is known: then all of the log is checked. If something was, of a log that is gone, a
        power cut cannot bring it back from now on."""
        key = (topic_id, partition)
        if self._removed.pop(key, 0) > self._removals_synced:
            self.sync()
        return self._offsets.get(key, 0)

    def record(self, topic_id: bytes, partition: int, offset: int) -> None:
        """Records that a sync of the log up to `offset` has completed."""
        key = (topic_id, partition)
        if offset > self._offsets.get(key, 0):
            self._write(key, offset)

    def lower(self, topic_id: bytes, partition: int, offset: int) -> None:
        """Is called before the log is truncated to `offset`. Durable on return."""
        key = (topic_id, partition)
        if offset < self._offsets.get(key, 0):
            self._write(key, offset)
            self._file.fdatasync()

    def remove(self, topic_id: bytes, partition: int) -> None:
        """Forgets a partition that is gone; its slot may be used for another."""
        slot = self._slots.pop((topic_id, partition), None)
        if slot is not None:
            del self._offsets[topic_id, partition]
            self._file.pwrite(_EMPTY_SLOT, slot * SLOT_BYTES)
            self._free.append(slot)
            self._removals += 1
            self._removed[topic_id, partition] = self._removals
            if len(self._removed) > REMOVALS_KEPT:
                self._removed = {key: each for key, each in self._removed.items() if each > self._removals_synced}

    def sync(self) -> None:
        """Is called from time to time, in a thread: bounds how much is checked after a power cut."""
        removals = self._removals
        if self._file.unsynced:
            self._file.fdatasync()
        self._removals_synced = max(removals, self._removals_synced)

    def close(self) -> None:
        self.sync()
        self._file.close()

    def _write(self, key: Key, offset: int) -> None:
        slot = self._slots.get(key)
        if slot is None:
            slot = self._free.pop() if self._free else self._file.size // SLOT_BYTES
            self._slots[key] = slot
        fields = _SLOT.pack(*key, offset)
        self._file.pwrite(fields + _CRC.pack(crc32c(fields)), slot * SLOT_BYTES)
        self._offsets[key] = offset

    def _load(self) -> None:
        if self._file.size % SLOT_BYTES:  # a torn slot at the end
            self._file.truncate(self._file.size - self._file.size % SLOT_BYTES)
        data = self._file.pread(self._file.size, 0)
        for slot in range(len(data) // SLOT_BYTES):
            position = slot * SLOT_BYTES
            fields = data[position : position + _SLOT.size]
            if _CRC.unpack_from(data, position + _SLOT.size)[0] != crc32c(fields) or fields[:16] == bytes(16):
                self._free.append(slot)
                continue
            topic_id, partition, offset = _SLOT.unpack(fields)
            self._adopt((topic_id, partition), slot, offset)

    def _adopt(self, key: Key, slot: int, offset: int) -> None:
        """Believes the lower of two slots for one partition, which only a power cut can leave."""
        if key in self._offsets and self._offsets[key] <= offset:
            self._free.append(slot)
            return
        if key in self._slots:
            self._free.append(self._slots[key])
        self._slots[key] = slot
        self._offsets[key] = offset

"""The synced offset of each partition of a node (Kafka's recovery point), in one file of 32-byte slots with checksums.

A slot is overwritten after a sync has completed, so it never exceeds what is durable. The file itself is synced only
periodically: after a power failure a slot may be too low, and recovery validates more of the log. After `kill -9` it is
exact. Recovery never truncates below the synced offset. Before a log is truncated, its slot is lowered durably. Before
a partition is created again, the removal of its old slot is durable (see `get`).
"""

from __future__ import annotations

import struct

from chronik.crc import crc32c
from chronik.files import FileSystem, parent_directory

_SLOT = struct.Struct(">16siq")
_CRC = struct.Struct(">I")
SLOT_BYTES = _SLOT.size + _CRC.size
_EMPTY_SLOT = bytes(SLOT_BYTES)

TRACKED_REMOVALS_MAX = 1000
"""Number of removed partitions beyond which those whose removal is already durable are no longer tracked."""

PartitionSlotKey = tuple[bytes, int]


class SyncedOffsets:
    """The file that stores, for each partition of a node, up to which offset its log has been synced to disk."""

    def __init__(self, files: FileSystem, path: str) -> None:
        """Open the file of synced offsets, or create it durably."""
        for directory in [*files.make_directory(parent_directory(path)), parent_directory(path)]:
            files.sync_directory(directory)
        is_new = not files.exists(path)
        self._file = files.create(path)
        if is_new:
            files.sync_directory(parent_directory(path))
        self._slots: dict[PartitionSlotKey, int] = {}
        self._offsets: dict[PartitionSlotKey, int] = {}
        self._free: list[int] = []
        self._removed: dict[PartitionSlotKey, int] = {}
        """Removed partitions whose removal may not be durable yet, with the sequence number of the removal."""
        self._removals = 0
        self._removals_synced = 0
        self._load()
        if not is_new:
            self._file.fdatasync()  # a killed process may have left unsynced removals: see `get`

    def get(self, topic_id: bytes, partition: int) -> int:
        """Return the offset up to which a partition's log is synced, or 0 if unknown. Recovery then validates the whole
        log.

        If the partition was removed before, its removal is durable on return.
        """
        key = (topic_id, partition)
        if self._removed.pop(key, 0) > self._removals_synced:
            self.sync()
        return self._offsets.get(key, 0)

    def record(self, topic_id: bytes, partition: int, offset: int) -> None:
        """Record that a partition's log is synced up to `offset`, unless a higher offset is recorded already."""
        key = (topic_id, partition)
        if offset > self._offsets.get(key, 0):
            self._write_entry(key, offset)

    def lower(self, topic_id: bytes, partition: int, offset: int) -> None:
        """Lower the synced offset of a partition before its log is truncated to `offset`. Durable on return."""
        key = (topic_id, partition)
        if offset < self._offsets.get(key, 0):
            self._write_entry(key, offset)
            self._file.fdatasync()

    def remove(self, topic_id: bytes, partition: int) -> None:
        """Remove the entry of a deleted partition, and release its slot."""
        slot = self._slots.pop((topic_id, partition), None)
        if slot is not None:
            del self._offsets[topic_id, partition]
            self._file.pwrite(_EMPTY_SLOT, slot * SLOT_BYTES)
            self._free.append(slot)
            self._removals += 1
            self._removed[topic_id, partition] = self._removals
            if len(self._removed) > TRACKED_REMOVALS_MAX:
                self._removed = {key: each for key, each in self._removed.items() if each > self._removals_synced}

    def sync(self) -> None:
        """Sync the file of synced offsets to disk.

        Called periodically in a thread, to limit how much recovery validates after a power failure.
        """
        removals = self._removals
        if self._file.has_unsynced_writes:
            self._file.fdatasync()
        self._removals_synced = max(removals, self._removals_synced)

    def close(self) -> None:
        """Sync and close the file."""
        self.sync()
        self._file.close()

    def _write_entry(self, key: PartitionSlotKey, offset: int) -> None:
        slot = self._slots.get(key)
        if slot is None:
            slot = self._free.pop() if self._free else self._file.size // SLOT_BYTES
            self._slots[key] = slot
        fields = _SLOT.pack(*key, offset)
        self._file.pwrite(fields + _CRC.pack(crc32c(fields)), slot * SLOT_BYTES)
        self._offsets[key] = offset

    def _load(self) -> None:
        if self._file.size % SLOT_BYTES:  # incomplete slot at the end
            self._file.truncate(self._file.size - self._file.size % SLOT_BYTES)
        data = self._file.pread(self._file.size, 0)
        for slot in range(len(data) // SLOT_BYTES):
            position = slot * SLOT_BYTES
            fields = data[position : position + _SLOT.size]
            if _CRC.unpack_from(data, position + _SLOT.size)[0] != crc32c(fields) or fields[:16] == bytes(16):
                self._free.append(slot)
                continue
            topic_id, partition, offset = _SLOT.unpack(fields)
            self._load_slot((topic_id, partition), slot, offset)

    def _load_slot(self, key: PartitionSlotKey, slot: int, offset: int) -> None:
        """Load the stored offset of a partition. If a power failure left two, use the lower one."""
        if key in self._offsets and self._offsets[key] <= offset:
            self._free.append(slot)
            return
        if key in self._slots:
            self._free.append(self._slots[key])
        self._slots[key] = slot
        self._offsets[key] = offset

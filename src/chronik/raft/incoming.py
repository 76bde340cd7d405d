"""A snapshot on its way in: which one, and how much of it has been handed to storage."""

from __future__ import annotations

from chronik.crc import crc32c
from chronik.raft.entries import SnapshotMetadata


class IncomingSnapshot:
    """The checksum runs along, so that the whole is verified without reading it back."""

    def __init__(self, snapshot: SnapshotMetadata) -> None:
        self.snapshot = snapshot
        self.next_offset = 0
        self.checksum = 0

    def take(self, data: bytes) -> None:
        self.next_offset += len(data)
        self.checksum = crc32c(data, self.checksum)

    @property
    def is_finished(self) -> bool:
        return self.next_offset >= self.snapshot.size_bytes

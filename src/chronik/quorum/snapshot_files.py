"""Snapshots as files: written here by the state machine, received from the leader, read by both.

A file holds chunks in the form of `wal.snapshots`: each with a CRC, closed by an empty one. To other nodes it is a
sequence of bytes with a size and a checksum, cut where it suits the wire.
"""

from __future__ import annotations

from typing import Final

from chronik.crc import crc32c
from chronik.errors import DataDamaged, invariant
from chronik.files import File, FileSystem
from chronik.raft.entries import SnapshotMetadata
from chronik.raft.events import StoreChunk
from chronik.wal.records import RECORD_BYTES_MAX, encode_record
from chronik.wal.snapshots import SUFFIX, SYNC_EVERY_BYTES, TEMPORARY, snapshot_path

INCOMING_NAME: Final = "incoming"

VERIFY_BYTES: Final = 1024 * 1024
"""How much is read at a time when a file is checked as a whole."""


class SnapshotWriter:
    """`write` the chunks, then `finish`; or `abandon`. A finished snapshot is only a file: it counts once the manifest
    names it, and a file that no manifest names is removed at the next start."""

    def __init__(self, files: FileSystem, folder: str, index: int) -> None:
        self._files = files
        self._folder = folder
        self._path = snapshot_path(folder, index)
        self._file: File | None = None
        self._chunks = 0
        self._checksum = 0
        self._unsynced_bytes = 0

    def write(self, chunk: bytes) -> None:
        invariant(0 < len(chunk) <= RECORD_BYTES_MAX, "a chunk of this size cannot be read back")
        self._append(chunk)

    def finish(self) -> tuple[int, int]:
        """Makes the whole durable, and returns its size and checksum."""
        file = self._append(b"")
        file.fdatasync()
        size = file.size
        file.close()
        self._files.rename(self._path + TEMPORARY, self._path)
        self._files.sync_folder(self._folder)
        return size, self._checksum

    def abandon(self) -> None:
        if self._file is None:
            return
        self._file.close()
        if self._files.failure is None:
            self._files.remove(self._path + TEMPORARY)

    def _append(self, chunk: bytes) -> File:
        file = self._file or self._begin()
        self._chunks += 1
        record = encode_record(self._chunks, 0, chunk)
        file.append(record)
        self._checksum = crc32c(record, self._checksum)
        self._unsynced_bytes += len(record)
        if self._unsynced_bytes >= SYNC_EVERY_BYTES:
            file.fdatasync()
            self._unsynced_bytes = 0
        return file

    def _begin(self) -> File:
        self._files.remove(self._path + TEMPORARY)
        self._file = self._files.create(self._path + TEMPORARY)
        return self._file


class IncomingFile:
    """The pieces that the leader sends, in a file of their own until the last has come."""

    def __init__(self, files: FileSystem, folder: str) -> None:
        self._files = files
        self._folder = folder
        self._path = f"{folder}/{INCOMING_NAME}{TEMPORARY}"
        self._file: File | None = None
        self._snapshot = SnapshotMetadata()
        self._checksum = 0

    def store(self, chunk: StoreChunk) -> None:
        if chunk.offset == 0:
            self._begin(chunk.snapshot)
        file = self._file
        assert file is not None, "a snapshot begins with its first piece"
        invariant(chunk.snapshot == self._snapshot, "a piece of another snapshot")
        invariant(chunk.offset == file.size, f"a piece at {chunk.offset} does not follow the {file.size} stored")
        file.append(chunk.data)
        self._checksum = crc32c(chunk.data, self._checksum)

    def sync(self) -> None:
        if self._file is not None:
            self._file.fdatasync()

    def finish(self, snapshot: SnapshotMetadata) -> None:
        """Gives the synced file its final name. Raises DataDamaged if it is not the snapshot that was announced."""
        file = self._file
        if file is None or snapshot != self._snapshot:
            raise DataDamaged(f"the snapshot at {snapshot.index} was never received")
        if (file.size, self._checksum) != (snapshot.size_bytes, snapshot.checksum):
            raise DataDamaged(f"the snapshot at {snapshot.index} was not received as it was sent")
        self.close()
        self._files.rename(self._path, snapshot_path(self._folder, snapshot.index))
        self._files.sync_folder(self._folder)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _begin(self, snapshot: SnapshotMetadata) -> None:
        self.close()
        self._files.remove(self._path)
        self._file = self._files.create(self._path)
        self._snapshot = snapshot
        self._checksum = 0


def verify(files: FileSystem, folder: str, snapshot: SnapshotMetadata) -> None:
    """Raises DataDamaged unless the file exists as it was written."""
    path = snapshot_path(folder, snapshot.index)
    if not files.exists(path):
        raise DataDamaged(f"{path} is missing")
    file = files.open(path)
    try:
        checksum = 0
        for position in range(0, file.size, VERIFY_BYTES):
            checksum = crc32c(file.pread(VERIFY_BYTES, position), checksum)
        if (file.size, checksum) != (snapshot.size_bytes, snapshot.checksum):
            raise DataDamaged(f"{path} is damaged")
    finally:
        file.close()


def read_piece(files: FileSystem, folder: str, index: int, offset: int, bytes_max: int) -> bytes | None:
    """Returns None when a newer snapshot has replaced the one asked for."""
    try:
        file = files.open(snapshot_path(folder, index))
    except FileNotFoundError:
        return None
    try:
        return file.pread(bytes_max, offset)
    finally:
        file.close()


def remove_leftovers(files: FileSystem, folder: str, kept: int) -> None:
    """Removes, at a start, snapshots that no manifest names, and whatever was never finished."""
    for index in stored_indexes(files, folder):
        if index != kept:
            files.remove(snapshot_path(folder, index))
    for name in files.list_folder(folder):
        if name.endswith(TEMPORARY):
            files.remove(f"{folder}/{name}")


def stored_indexes(files: FileSystem, folder: str) -> list[int]:
    names = files.list_folder(folder)
    return sorted(int(name.removesuffix(SUFFIX)) for name in names if name.endswith(SUFFIX))

"""Snapshot files: written from the local state machine or received from the leader.

A file contains chunks in the format of `wal.snapshots`, each with a CRC, terminated by an empty one. For transfers it
is a byte sequence with a size and a checksum, split independently of those chunks.
"""

from __future__ import annotations

from typing import Final

from chronik.crc import crc32c
from chronik.errors import DamagedDataError, check_invariant
from chronik.files import File, FileSystem
from chronik.raft.entries import SnapshotMetadata
from chronik.raft.events import StoreChunk
from chronik.wal.records import RECORD_BYTES_MAX, encode_record
from chronik.wal.snapshots import SNAPSHOT_SUFFIX, SYNC_INTERVAL_BYTES, TEMPORARY_SUFFIX, build_snapshot_path

INCOMING_NAME: Final = "incoming"

VERIFY_BYTES: Final = 1024 * 1024
"""The number of bytes read at a time when a snapshot file is verified."""


class RaftSnapshotWriter:
    """A writer of a snapshot file. Call `write` for each chunk, then `finish` or `abandon`.

    A finished snapshot takes effect when the manifest refers to it. Files without a reference are deleted at startup.
    """

    def __init__(self, files: FileSystem, directory: str, index: int) -> None:
        self._files = files
        self._directory = directory
        self._path = build_snapshot_path(directory, index)
        self._file: File | None = None
        self._chunks = 0
        self._checksum = 0
        self._unsynced_bytes = 0

    def write(self, chunk: bytes) -> None:
        check_invariant(0 < len(chunk) <= RECORD_BYTES_MAX, f"snapshot: invalid chunk size {len(chunk)}")
        self._append(chunk)

    def finish(self) -> tuple[int, int]:
        """Sync the snapshot file, and return its size and checksum."""
        file = self._append(b"")
        file.fdatasync()
        size = file.size
        file.close()
        self._files.rename(self._path + TEMPORARY_SUFFIX, self._path)
        self._files.sync_directory(self._directory)
        return size, self._checksum

    def abandon(self) -> None:
        if self._file is None:
            return
        self._file.close()
        if self._files.failure is None:
            self._files.remove(self._path + TEMPORARY_SUFFIX)

    def _append(self, chunk: bytes) -> File:
        file = self._file or self._create_temporary_file()
        self._chunks += 1
        record = encode_record(self._chunks, 0, chunk)
        file.append(record)
        self._checksum = crc32c(record, self._checksum)
        self._unsynced_bytes += len(record)
        if self._unsynced_bytes >= SYNC_INTERVAL_BYTES:
            file.fdatasync()
            self._unsynced_bytes = 0
        return file

    def _create_temporary_file(self) -> File:
        self._files.remove(self._path + TEMPORARY_SUFFIX)
        self._file = self._files.create(self._path + TEMPORARY_SUFFIX)
        return self._file


class IncomingSnapshotFile:
    """The temporary file for a snapshot that the Raft leader is sending in chunks."""

    def __init__(self, files: FileSystem, directory: str) -> None:
        self._files = files
        self._directory = directory
        self._path = f"{directory}/{INCOMING_NAME}{TEMPORARY_SUFFIX}"
        self._file: File | None = None
        self._snapshot = SnapshotMetadata()
        self._checksum = 0

    def store(self, chunk: StoreChunk) -> None:
        if chunk.offset == 0:
            self._create_file(chunk.snapshot)
        file = self._file
        assert file is not None, "the first chunk of a snapshot must have offset 0"
        check_invariant(chunk.snapshot == self._snapshot, "snapshot: chunk belongs to another snapshot")
        check_invariant(
            chunk.offset == file.size, f"snapshot: chunk at {chunk.offset} does not follow {file.size} bytes"
        )
        file.append(chunk.data)
        self._checksum = crc32c(chunk.data, self._checksum)

    def sync(self) -> None:
        if self._file is not None:
            self._file.fdatasync()

    def finish(self, snapshot: SnapshotMetadata) -> None:
        """Verify the received snapshot and rename its file. Raise DamagedDataError if the snapshot is damaged."""
        file = self._file
        if file is None or snapshot != self._snapshot:
            raise DamagedDataError(f"snapshot {snapshot.index}: chunks were not received")
        if (file.size, self._checksum) != (snapshot.size_bytes, snapshot.checksum):
            raise DamagedDataError(f"snapshot {snapshot.index}: received file does not match its size or checksum")
        self.close()
        self._files.rename(self._path, build_snapshot_path(self._directory, snapshot.index))
        self._files.sync_directory(self._directory)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _create_file(self, snapshot: SnapshotMetadata) -> None:
        self.close()
        self._files.remove(self._path)
        self._file = self._files.create(self._path)
        self._snapshot = snapshot
        self._checksum = 0


def verify_snapshot(files: FileSystem, directory: str, snapshot: SnapshotMetadata) -> None:
    """Raise DamagedDataError if the snapshot file is missing or does not match its metadata (size and checksum)."""
    path = build_snapshot_path(directory, snapshot.index)
    if not files.exists(path):
        raise DamagedDataError(f"snapshot file {path} is missing")
    file = files.open(path)
    try:
        checksum = 0
        for position in range(0, file.size, VERIFY_BYTES):
            checksum = crc32c(file.pread(VERIFY_BYTES, position), checksum)
        if (file.size, checksum) != (snapshot.size_bytes, snapshot.checksum):
            raise DamagedDataError(f"snapshot file {path} is damaged: size or checksum mismatch")
    finally:
        file.close()


def read_chunk(files: FileSystem, directory: str, index: int, offset: int, bytes_max: int) -> bytes | None:
    """Read a chunk of a snapshot file, or return None if the file was deleted."""
    try:
        file = files.open(build_snapshot_path(directory, index))
    except FileNotFoundError:
        return None
    try:
        return file.pread(bytes_max, offset)
    finally:
        file.close()


def remove_orphaned_files(files: FileSystem, directory: str, kept: int) -> None:
    """Delete incomplete files and snapshots that the Raft manifest does not refer to. Called at startup."""
    for index in list_snapshot_indexes(files, directory):
        if index != kept:
            files.remove(build_snapshot_path(directory, index))
    for name in files.list_directory(directory):
        if name.endswith(TEMPORARY_SUFFIX):
            files.remove(f"{directory}/{name}")


def list_snapshot_indexes(files: FileSystem, directory: str) -> list[int]:
    names = files.list_directory(directory)
    return sorted(int(name.removesuffix(SNAPSHOT_SUFFIX)) for name in names if name.endswith(SNAPSHOT_SUFFIX))

"""Snapshot files: `<index>.snapshot` contains the state up to that index, so that the log before it can be deleted.

A snapshot is written in chunks to a temporary file, synced, and renamed, so after a power failure it is either complete
or absent. Its chunks are records in the log's format, terminated by an empty one, so that damage is always detected.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from chronik.errors import DamagedDataError, check_invariant
from chronik.files import FileSystem
from chronik.wal.records import (
    HEADER,
    HEADER_BYTES,
    RECORD_BYTES_MAX,
    build_indexed_path,
    decode_record_at,
    encode_record,
    list_file_indexes,
)

SNAPSHOT_SUFFIX: Final = ".snapshot"
TEMPORARY_SUFFIX: Final = ".tmp"

SYNC_INTERVAL_BYTES: Final = 4 * 1024 * 1024
"""Number of bytes between syncs while a snapshot is written. One large sync at the end would delay the log's syncs."""


class WalSnapshotWriter:
    """A writer of a snapshot file: `write` the chunks, then `commit` or `abandon`. Not thread-safe."""

    def __init__(self, files: FileSystem, directory: str, index: int) -> None:
        self._files = files
        self._directory = directory
        self._path = build_snapshot_path(directory, index)
        self._chunks = 0
        self._unsynced_bytes = 0
        files.remove(self._path + TEMPORARY_SUFFIX)
        self._file = files.create(self._path + TEMPORARY_SUFFIX)

    def write(self, chunk: bytes) -> None:
        check_invariant(len(chunk) <= RECORD_BYTES_MAX, f"snapshot: chunk of {len(chunk)} bytes is too large")
        self._chunks += 1
        self._file.append(encode_record(self._chunks, 0, chunk))
        self._unsynced_bytes += len(chunk)
        if self._unsynced_bytes >= SYNC_INTERVAL_BYTES:
            self._file.fdatasync()
            self._unsynced_bytes = 0

    def commit(self) -> int:
        """Make the snapshot durable and visible, delete older ones, and return its size."""
        self.write(b"")
        self._file.fdatasync()
        size = self._file.size
        self._file.close()
        self._files.rename(self._path + TEMPORARY_SUFFIX, self._path)
        self._files.sync_directory(self._directory)
        remove_older_snapshots(self._files, self._directory)
        return size

    def abandon(self) -> None:
        self._file.close()
        if self._files.failure is None:
            self._files.remove(self._path + TEMPORARY_SUFFIX)


def find_newest_snapshot(files: FileSystem, directory: str) -> int | None:
    indexes = list_file_indexes(directory, SNAPSHOT_SUFFIX, files)
    return indexes[-1] if indexes else None


def read_snapshot(files: FileSystem, directory: str, index: int) -> Iterator[bytes]:
    """Yield the chunks of a snapshot. Raise DamagedDataError if it is incomplete or damaged."""
    path = build_snapshot_path(directory, index)
    file = files.open(path)
    try:
        position = 0
        for number in range(1, 2**32):
            header = file.pread(HEADER_BYTES, position)
            length = HEADER.unpack(header)[2] if len(header) == HEADER_BYTES else 0
            length = min(length, file.size)  # a damaged length must not cause a huge allocation
            record = decode_record_at(memoryview(header + file.pread(length, position + HEADER_BYTES)), 0)
            if record is None or record.index != number:
                raise DamagedDataError(f"snapshot {path} is damaged at byte {position}")
            position += HEADER_BYTES + len(record.payload)
            if not record.payload:
                break
            yield bytes(record.payload)
        if position != file.size:
            raise DamagedDataError(f"snapshot {path} has unexpected data after its end at byte {position}")
    finally:
        file.close()


def remove_older_snapshots(files: FileSystem, directory: str) -> None:
    """Delete all snapshots except the newest, and incomplete files."""
    for index in list_file_indexes(directory, SNAPSHOT_SUFFIX, files)[:-1]:
        files.remove(build_snapshot_path(directory, index))
    for name in files.list_directory(directory):
        if name.endswith(SNAPSHOT_SUFFIX + TEMPORARY_SUFFIX):
            files.remove(f"{directory}/{name}")


def build_snapshot_path(directory: str, index: int) -> str:
    return build_indexed_path(directory, index, SNAPSHOT_SUFFIX)

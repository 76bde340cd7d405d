"""Snapshots: `<index>.snapshot` holds everything up to that index, so that the log before it can be removed.

A snapshot is written under a temporary name in chunks, synced, and renamed: after a power cut it exists whole or not
at all. Its chunks are records like those of the log, closed by an empty one, so that damage anywhere is found.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from chronik.errors import DataDamaged, invariant
from chronik.files import FileSystem
from chronik.wal.file_names import indexed_path, indexes_in
from chronik.wal.records import HEADER, HEADER_BYTES, RECORD_BYTES_MAX, encode_record, record_at

SUFFIX: Final = ".snapshot"
TEMPORARY: Final = ".tmp"

SYNC_EVERY_BYTES: Final = 4 * 1024 * 1024
"""A large snapshot is synced piece by piece: one sync of 100 MB would hold up the log's own syncs behind it."""


class SnapshotWriter:
    """`write` the chunks, then `commit`; or `abandon`. Its owner calls it from one thread at a time."""

    def __init__(self, files: FileSystem, folder: str, index: int) -> None:
        self._files = files
        self._folder = folder
        self._path = snapshot_path(folder, index)
        self._chunks = 0
        self._unsynced_bytes = 0
        files.remove(self._path + TEMPORARY)
        self._file = files.create(self._path + TEMPORARY)

    def write(self, chunk: bytes) -> None:
        invariant(len(chunk) <= RECORD_BYTES_MAX, "a chunk is too large to be read back")
        self._chunks += 1
        self._file.append(encode_record(self._chunks, 0, chunk))
        self._unsynced_bytes += len(chunk)
        if self._unsynced_bytes >= SYNC_EVERY_BYTES:
            self._file.fdatasync()
            self._unsynced_bytes = 0

    def commit(self) -> int:
        """Makes the snapshot durable and visible, removes older ones, and returns its size."""
        self.write(b"")
        self._file.fdatasync()
        size = self._file.size
        self._file.close()
        self._files.rename(self._path + TEMPORARY, self._path)
        self._files.sync_folder(self._folder)
        remove_older_snapshots(self._files, self._folder)
        return size

    def abandon(self) -> None:
        self._file.close()
        if self._files.failure is None:
            self._files.remove(self._path + TEMPORARY)


def newest_snapshot(files: FileSystem, folder: str) -> int | None:
    indexes = indexes_in(folder, SUFFIX, files)
    return indexes[-1] if indexes else None


def read_snapshot(files: FileSystem, folder: str, index: int) -> Iterator[bytes]:
    """Yields the chunks; raises DataDamaged unless all of them and the end are as they were written."""
    path = snapshot_path(folder, index)
    file = files.open(path)
    try:
        position = 0
        for number in range(1, 2**32):
            header = file.pread(HEADER_BYTES, position)
            length = HEADER.unpack(header)[2] if len(header) == HEADER_BYTES else 0
            length = min(length, file.size)  # a damaged length must not ask for more memory than there is data
            record = record_at(memoryview(header + file.pread(length, position + HEADER_BYTES)), 0)
            if record is None or record.index != number:
                raise DataDamaged(f"{path} is damaged at byte {position}")
            position += HEADER_BYTES + len(record.payload)
            if not record.payload:
                break
            yield bytes(record.payload)
        if position != file.size:
            raise DataDamaged(f"{path} goes on after its end, at byte {position}")
    finally:
        file.close()


def remove_older_snapshots(files: FileSystem, folder: str) -> None:
    """Removes all but the newest, and whatever was never finished."""
    for index in indexes_in(folder, SUFFIX, files)[:-1]:
        files.remove(snapshot_path(folder, index))
    for name in files.list_folder(folder):
        if name.endswith(SUFFIX + TEMPORARY):
            files.remove(f"{folder}/{name}")


def snapshot_path(folder: str, index: int) -> str:
    return indexed_path(folder, index, SUFFIX)

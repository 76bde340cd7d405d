"""Writing of a partition's chunks: files with complete, consecutive batches."""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

from chronik.errors import DamagedDataError
from chronik.files import FileSystem, parent_directory, read_file
from chronik.limits import MIB
from chronik.migration import failpoints
from chronik.migration.backup.manifest import DIGEST_BYTES, LOGS_DIRECTORY, BackupChunk, BackupFile, compute_digest
from chronik.migration.source import MigrationError
from chronik.protocol.batch import Bytes, iter_batches, verify_crc

CHUNK_BYTES_MAX: Final = 256 * MIB
"""The size at which a new file is started. Records before the log start are removed file by file."""

CHUNK_BYTES_MIN: Final = 1 * MIB
"""A smaller file is rewritten together with new records, so that many runs do not leave many small files."""


class BackupChunkWriter:
    """Writes the chunks of one partition in one run of a backup."""

    def __init__(self, files: FileSystem, topic_id: str, partition: int, run: int, offset: int, end: int) -> None:
        """Initialize the writer; it starts at `offset` and ignores batches beyond `end`."""
        self._files = files
        self._directory = f"{LOGS_DIRECTORY}/{topic_id}/{partition}"
        self._about = f"{topic_id}/{partition}"
        self._run = run
        self._end = end
        self._is_first = True
        self._first = offset
        self._size = 0
        self._digest = blake2b(digest_size=DIGEST_BYTES)
        self.offset = offset
        self.last_epoch = -1
        self.producer_ids = 0
        self.pieces: list[BackupChunk] = []

    def continue_chunk(self, piece: BackupChunk) -> None:
        """Continue the last chunk of an earlier run.

        Raises:
            DamagedDataError: The chunk is damaged.
        """
        data = read_file(self._files, piece.file.path)
        if data is None or compute_digest(data) != piece.file.digest:
            raise DamagedDataError(f"{piece.file.path} is damaged: start a new backup in another directory")
        self._first = piece.first
        self._write(memoryview(data))

    def add(self, records: Bytes, *, continues: bool) -> None:
        """Write the batches that belong to the copy.

        With `continues`, the first batch must start at the end of the copy; otherwise it may start earlier.

        Raises:
            MigrationError: The offsets are not consecutive, or a batch is damaged.
        """
        size = 0
        for position, header in iter_batches(records, partial_tail=True):
            if header.next_offset > self._end:
                break
            may_begin_before = self._is_first and not continues
            if header.base_offset != self.offset and not (may_begin_before and header.base_offset < self.offset):
                raise MigrationError(f"{self._about}: expected offset {self.offset}, received {header.base_offset}")
            if not verify_crc(records, position, header.size):
                raise MigrationError(f"{self._about}: the batch at offset {self.offset} is damaged")
            self._is_first = False
            self.offset = header.next_offset
            self.last_epoch = header.partition_leader_epoch
            self.producer_ids = max(self.producer_ids, header.producer_id + 1)
            size = position + header.size
        if size:
            self._write(memoryview(records)[:size])
        if self._size >= CHUNK_BYTES_MAX:
            self.close()

    def _write(self, data: memoryview) -> None:
        if not self._size:
            for directory in self._files.make_directory(self._directory):
                self._files.sync_directory(directory)
        file = self._files.create(self._path)
        try:
            if not self._size:
                file.truncate(0)  # an interrupted run may have left a file
            file.append(data)
        finally:
            file.close()
        self._digest.update(data)
        self._size += len(data)

    @property
    def _path(self) -> str:
        return f"{self._directory}/{self._first:020}-{self._run}.batches"

    def close(self) -> None:
        """Sync the current chunk and add it to `pieces`."""
        if not self._size:
            return
        file = self._files.create(self._path)
        try:
            file.append(b"")
            file.fdatasync()
        finally:
            file.close()
        self._files.sync_directory(parent_directory(self._path))
        entry = BackupFile(self._path, self._size, self._digest.hexdigest())
        self.pieces.append(BackupChunk(entry, self._first, self.offset))
        self._first, self._size, self._digest = self.offset, 0, blake2b(digest_size=DIGEST_BYTES)
        failpoints.hit_failpoint(failpoints.PIECE)

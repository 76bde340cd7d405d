"""Writing of a partition's chunks: files with complete, consecutive batches."""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

from chronik.errors import DataDamaged
from chronik.files import FileSystem, folder_of, read_file
from chronik.limits import MIB
from chronik.moving import failpoints
from chronik.moving.backup.manifest import DIGEST_BYTES, LOGS, FileEntry, Piece, digest_of
from chronik.moving.source import CannotMove
from chronik.protocol.batch import Bytes, iter_batches, verify_crc

PIECE_BYTES_MAX: Final = 256 * MIB
"""The size at which a new file is started. Records before the log start are removed file by file."""

PIECE_BYTES_MIN: Final = 1 * MIB
"""A smaller file is rewritten together with new records, so that many runs do not leave many small files."""


class PieceWriter:
    """Writes the chunks of one partition in one run of a backup."""

    def __init__(self, files: FileSystem, topic_id: str, partition: int, run: int, offset: int, end: int) -> None:
        """Initialize the writer; it starts at `offset` and ignores batches beyond `end`."""
        self._files = files
        self._directory = f"{LOGS}/{topic_id}/{partition}"
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
        self.pieces: list[Piece] = []

    def go_on_from(self, piece: Piece) -> None:
        """Continue the last chunk of an earlier run.

        Raises:
            DamagedDataError: The chunk is damaged.
        """
        data = read_file(self._files, piece.file.path)
        if data is None or digest_of(data) != piece.file.digest:
            raise DataDamaged(f"{piece.file.path} is damaged: start a new backup in another directory")
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
                raise CannotMove(f"{self._about}: expected offset {self.offset}, received {header.base_offset}")
            if not verify_crc(records, position, header.size):
                raise CannotMove(f"{self._about}: the batch at offset {self.offset} is damaged")
            self._is_first = False
            self.offset = header.next_offset
            self.last_epoch = header.partition_leader_epoch
            self.producer_ids = max(self.producer_ids, header.producer_id + 1)
            size = position + header.size
        if size:
            self._write(memoryview(records)[:size])
        if self._size >= PIECE_BYTES_MAX:
            self.close()

    def _write(self, data: memoryview) -> None:
        if not self._size:
            for directory in self._files.make_folder(self._directory):
                self._files.sync_folder(directory)
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
        self._files.sync_folder(folder_of(self._path))
        entry = FileEntry(self._path, self._size, self._digest.hexdigest())
        self.pieces.append(Piece(entry, self._first, self.offset))
        self._first, self._size, self._digest = self.offset, 0, blake2b(digest_size=DIGEST_BYTES)
        failpoints.reached(failpoints.PIECE)

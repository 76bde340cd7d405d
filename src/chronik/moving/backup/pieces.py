"""Files of a backup as they are written: whole batches that continue each other, of one partition."""

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
"""Beyond it the next file begins: what is before a log's start is removed file by file."""

PIECE_BYTES_MIN: Final = 1 * MIB
"""A smaller one is written once more, with what is new behind it: a thousand runs must not leave a thousand files."""


class PieceWriter:
    """Writes what is copied of one partition in this run."""

    def __init__(self, files: FileSystem, topic_id: str, partition: int, run: int, offset: int, end: int) -> None:
        """It begins at `offset`, and takes no batch that reaches beyond `end`."""
        self._files = files
        self._folder = f"{LOGS}/{topic_id}/{partition}"
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
        """Begins with what an earlier run has written. Raises DataDamaged."""
        data = read_file(self._files, piece.file.path)
        if data is None or digest_of(data) != piece.file.digest:
            raise DataDamaged(f"{piece.file.path} is not as it was written: begin a new backup")
        self._first = piece.first
        self._write(memoryview(data))

    def add(self, records: Bytes, *, continues: bool) -> None:
        """Writes the batches that belong to it. `continues` says that the first must begin where the copy ends; else it
        may begin before. Raises CannotMove."""
        size = 0
        for position, header in iter_batches(records, partial_tail=True):
            if header.next_offset > self._end:
                break
            may_begin_before = self._is_first and not continues
            if header.base_offset != self.offset and not (may_begin_before and header.base_offset < self.offset):
                raise CannotMove(f"{self._about}: offset {header.base_offset} was sent where {self.offset} is due")
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
            for folder in self._files.make_folder(self._folder):
                self._files.sync_folder(folder)
        file = self._files.create(self._path)
        try:
            if not self._size:
                file.truncate(0)  # a run that was interrupted may have left one
            file.append(data)
        finally:
            file.close()
        self._digest.update(data)
        self._size += len(data)

    @property
    def _path(self) -> str:
        return f"{self._folder}/{self._first:020}-{self._run}.batches"

    def close(self) -> None:
        """Makes what was written durable."""
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

"""A backup as a source of topics: its files are all checked before anything is read from them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path
from typing import Final

import msgspec

from chronik.errors import DataDamaged
from chronik.files import FileCache
from chronik.files.overlay import OverlayFiles
from chronik.ids import format_id
from chronik.limits import MIB
from chronik.metadata.image import Image
from chronik.metadata.records import Topic
from chronik.metadata.snapshot import decode_snapshot
from chronik.moving.backup.manifest import (
    DIGEST_BYTES,
    FileEntry,
    PartitionEntry,
    manifest_digest,
    read_manifest,
)
from chronik.moving.source import CannotMove, visible_topics
from chronik.protocol.batch import HEADER_BYTES, Bytes, iter_batches, parse_header

READ_BYTES: Final = 1 * MIB


class BackupLog:
    def __init__(self, cache: FileCache, entry: PartitionEntry) -> None:
        self._cache = cache
        self._pieces = entry.pieces
        self._firsts = [piece.first for piece in entry.pieces]
        self._next = (-1, 0, 0)  # an offset, and where it stands: the number of its piece, and the position there
        self.start: Final = entry.start
        self.end: Final = entry.end
        self.last_epoch: Final = entry.last_epoch
        self.producer_ids: Final = entry.producer_ids

    def read(self, offset: int, max_bytes: int) -> Bytes:
        number, position = self._place_of(offset)
        piece = self._pieces[number]
        file = self._cache.get(piece.file.path)
        data = memoryview(file.pread(max(max_bytes, HEADER_BYTES), position))
        if len(data) >= HEADER_BYTES:  # the first batch may be larger than what was asked for
            size = 12 + int.from_bytes(data[8:12], "big")
            if size > len(data):
                data = memoryview(file.pread(size, position))
        end, next_offset = 0, offset
        for at, header in iter_batches(data, partial_tail=True):
            end, next_offset = at + header.size, header.next_offset
        is_last = position + end >= piece.file.size
        self._next = (next_offset, number + 1, 0) if is_last else (next_offset, number, position + end)
        return data[:end]

    def _place_of(self, offset: int) -> tuple[int, int]:
        if offset == self._next[0]:
            return self._next[1:]
        number = max(0, bisect_right(self._firsts, offset) - 1)
        piece, position = self._pieces[number], 0
        file = self._cache.get(piece.file.path)
        while position < piece.file.size:
            head = file.pread(HEADER_BYTES, position)
            size = 12 + int.from_bytes(head[8:12], "big")
            if parse_header(file.pread(size, position)).next_offset > offset:
                return number, position
            position += size
        raise CannotMove(f"offset {offset} is not in {piece.file.path}")


class BackupFolder:
    is_backup: Final = True

    def __init__(self, path: Path, tell: Callable[[str], None] = lambda _: None) -> None:
        """`tell` hears how much is checked. Raises CannotMove when there is no backup, DataDamaged when it is not as it
        was written."""
        self.name: Final = str(path)
        self._files = OverlayFiles(path)
        self._cache = FileCache(self._files)
        manifest = read_manifest(self._files)
        if manifest is None:
            raise CannotMove(f"{path} is no backup, or none that was ever finished")
        self.manifest: Final = manifest
        files = list(manifest.files())
        for number, file in enumerate(files, 1):
            self._check(file)
            tell(f"checked: {number} of {len(files)} files")
        chunks = msgspec.msgpack.decode(self._whole(manifest.image), type=list[bytes])
        self.image: Final[Image] = decode_snapshot(chunks)
        self._entries = {entry.key: entry for entry in manifest.partitions}
        self._logs: dict[tuple[bytes, int], BackupLog] = {}

    @property
    def id(self) -> bytes:
        return manifest_digest(self.manifest)

    def topics(self) -> list[Topic]:
        """Returns those of the image that were there until the backup was finished."""
        return [topic for topic in visible_topics(self.image) if (topic.id, 0) in self._entries]

    def log(self, topic: Topic, partition: int) -> BackupLog:
        key = topic.id, partition
        if key not in self._entries:
            raise CannotMove(f"{self.name} has no {topic.name}-{partition} ({format_id(topic.id)})")
        if key not in self._logs:
            self._logs[key] = BackupLog(self._cache, self._entries[key])
        return self._logs[key]

    def close(self) -> None:
        self._cache.close()

    def _whole(self, file: FileEntry) -> bytes:
        return self._cache.get(file.path).pread(file.size, 0)

    def _check(self, file: FileEntry) -> None:
        digest = blake2b(digest_size=DIGEST_BYTES)
        try:
            opened = self._files.open(file.path)
        except FileNotFoundError:
            raise DataDamaged(f"{self.name}/{file.path} is missing") from None
        try:
            for position in range(0, file.size, READ_BYTES):
                digest.update(opened.pread(min(READ_BYTES, file.size - position), position))
            if opened.size != file.size or digest.hexdigest() != file.digest:
                raise DataDamaged(f"{self.name}/{file.path} is not as it was written")
        finally:
            opened.close()

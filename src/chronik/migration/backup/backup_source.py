"""A backup as the source of an import. All its files are verified before anything is read."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path
from typing import Final

import msgspec

from chronik.errors import DamagedDataError
from chronik.files import FileCache, FileSystem, read_file
from chronik.files.overlay import OverlayFileSystem
from chronik.ids import format_id
from chronik.limits import MIB
from chronik.metadata.image import Image
from chronik.metadata.records import Topic
from chronik.metadata.snapshot import decode_snapshot
from chronik.migration.backup.manifest import (
    DIGEST_BYTES,
    BackupFile,
    BackupManifest,
    BackupPartition,
    compute_manifest_digest,
    read_manifest,
)
from chronik.migration.source import MigrationError, list_visible_topics
from chronik.protocol.batch import HEADER_BYTES, Bytes, iter_batches, parse_header
from chronik.wording import pluralize

READ_BYTES: Final = 1 * MIB
"""The number of bytes read at a time when a backup file is verified."""


class BackupLog:
    """The log of a partition in a backup."""

    def __init__(self, cache: FileCache, entry: BackupPartition) -> None:
        self._cache = cache
        self._pieces = entry.pieces
        self._firsts = [piece.first for piece in entry.pieces]
        self._next = (-1, 0, 0)  # the next offset, the number of its chunk and its position there
        self.start: Final = entry.start
        self.end: Final = entry.end
        self.last_epoch: Final = entry.last_epoch
        self.producer_ids: Final = entry.producer_ids

    def read(self, offset: int, max_bytes: int) -> Bytes:
        number, position = self._find_batch_position(offset)
        piece = self._pieces[number]
        file = self._cache.get(piece.file.path)
        data = memoryview(file.pread(max(max_bytes, HEADER_BYTES), position))
        if len(data) >= HEADER_BYTES:  # the first batch may be larger than max_bytes
            size = 12 + int.from_bytes(data[8:12], "big")
            if size > len(data):
                data = memoryview(file.pread(size, position))
        end, next_offset = 0, offset
        for batch_position, header in iter_batches(data, partial_tail=True):
            end, next_offset = batch_position + header.size, header.next_offset
        is_last = position + end >= piece.file.size
        self._next = (next_offset, number + 1, 0) if is_last else (next_offset, number, position + end)
        return data[:end]

    def _find_batch_position(self, offset: int) -> tuple[int, int]:
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
        raise MigrationError(f"offset {offset} is not in {piece.file.path}")


class BackupSource:
    """The contents of a backup: a metadata image and the logs in its manifest."""

    is_backup: Final = True

    def __init__(self, name: str, files: FileSystem, manifest: BackupManifest, image: Image) -> None:
        self.name: Final = name
        self.manifest: Final = manifest
        self.image: Final = image
        self._cache = FileCache(files)
        self._entries = {entry.key: entry for entry in manifest.partitions}
        self._logs: dict[tuple[bytes, int], BackupLog] = {}

    @property
    def id(self) -> bytes:
        return compute_manifest_digest(self.manifest)

    def topics(self) -> list[Topic]:
        """Return the topics to restore, without those that were deleted during the backup."""
        return [topic for topic in list_visible_topics(self.image) if (topic.id, 0) in self._entries]

    def log(self, topic: Topic, partition: int) -> BackupLog:
        key = topic.id, partition
        if key not in self._entries:
            raise MigrationError(f"{self.name} has no {topic.name}-{partition} ({format_id(topic.id)})")
        if key not in self._logs:
            self._logs[key] = BackupLog(self._cache, self._entries[key])
        return self._logs[key]

    def close(self) -> None:
        self._cache.close()


def open_backup(path: Path, tell: Callable[[str], None] = lambda _: None) -> BackupSource:
    """Open a backup after verifying the checksum of every file. `tell` is a callback for progress messages.

    Raises:
        MigrationError: The directory contains no finished backup.
        DamagedDataError: A file is missing or damaged.
    """
    files = OverlayFileSystem(path)
    manifest = read_manifest(files)
    if manifest is None:
        raise MigrationError(f"{path} contains no backup, or only one that was never finished")
    entries = list(manifest.files())
    for number, entry in enumerate(entries, 1):
        _verify_backup_file(files, path, entry)
        tell(f"checked: {number} of {pluralize(len(entries), 'file')}")
    data = read_file(files, manifest.image.path)
    chunks = msgspec.msgpack.decode(data or b"", type=list[bytes])
    return BackupSource(str(path), files, manifest, decode_snapshot(chunks))


def _verify_backup_file(files: FileSystem, path: Path, entry: BackupFile) -> None:
    digest = blake2b(digest_size=DIGEST_BYTES)
    try:
        opened = files.open(entry.path)
    except FileNotFoundError:
        raise DamagedDataError(f"{path}/{entry.path} is missing") from None
    try:
        for position in range(0, entry.size, READ_BYTES):
            digest.update(opened.pread(min(READ_BYTES, entry.size - position), position))
        if opened.size != entry.size or digest.hexdigest() != entry.digest:
            raise DamagedDataError(f"{path}/{entry.path} is damaged: its size or checksum differs from the manifest")
    finally:
        opened.close()

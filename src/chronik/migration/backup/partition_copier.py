"""Incremental copy of all partitions of a running cluster into the files of a backup.

A file contains complete, consecutive batches of one partition.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from hashlib import blake2b
from typing import Final, cast

import msgspec

from chronik.client.cluster import raise_for_code
from chronik.errors import DamagedDataError
from chronik.files import FileSystem, parent_directory, read_file
from chronik.ids import format_id
from chronik.limits import MIB
from chronik.migration import failpoints
from chronik.migration.backup.cluster_reader import RETRIABLE_ERRORS, ClusterReader, LogRange
from chronik.migration.backup.manifest import (
    DIGEST_BYTES,
    LOGS_DIRECTORY,
    BackupChunk,
    BackupFile,
    BackupPartition,
    compute_digest,
)
from chronik.migration.source import MigrationError
from chronik.migration.target_cluster import RETRY_DELAY_SECONDS, TopicIdPartition
from chronik.protocol.batch import Bytes, iter_batches, verify_crc
from chronik.protocol.errors import ErrorCode
from chronik.wording import pluralize

CHUNK_BYTES_MAX: Final = 256 * MIB
"""The size in bytes at which a backup chunk file is full and the next file is started."""

CHUNK_BYTES_MIN: Final = 1 * MIB
"""The size in bytes below which the next backup run rewrites the last chunk file instead of starting a new one."""

CONCURRENT_PARTITIONS: Final = 250
"""The maximum number of partitions that a backup copies concurrently."""

RESTARTS_MAX: Final = 5
"""The maximum number of times that a partition's copy restarts because retention deleted the records to copy next."""


class BackupChunkWriter:
    """A writer of the chunk files of one partition in a backup."""

    def __init__(self, files: FileSystem, topic_id: str, partition: int, run: int, offset: int, end: int) -> None:
        """Create a writer that copies batches from offset `offset` up to offset `end`."""
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
        """Start a new chunk file with the batches of the last chunk file of the previous backup, which it replaces.

        Raises:
            DamagedDataError: The chunk is damaged.
        """
        data = read_file(self._files, piece.file.path)
        if data is None or compute_digest(data) != piece.file.digest:
            raise DamagedDataError(f"{piece.file.path} is damaged: start a new backup in another directory")
        self._first = piece.first
        self._write(memoryview(data))

    def add(self, records: Bytes, *, continues: bool) -> None:
        """Verify record batches and append them to the current chunk file, up to the end offset of the copy.

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
        """Sync the current chunk file and add it to `pieces`, the list of finished chunks."""
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


class PartitionCopier:
    """A copier of all partitions in one run of a backup."""

    def __init__(
        self,
        files: FileSystem,
        reader: ClusterReader,
        ends: Mapping[TopicIdPartition, LogRange],
        kept: Mapping[TopicIdPartition, BackupPartition],
        compacted: set[bytes],
        run: int,
    ) -> None:
        """Initialize the copier. `kept` are the copies to continue, and `compacted` the ids of compacted topics."""
        self._files = files
        self._reader = reader
        self._ends = dict(ends)
        self._kept = dict(kept)
        self._compacted = compacted
        self._run = run
        self._restarts: dict[TopicIdPartition, int] = {}
        self._under_way: dict[TopicIdPartition, BackupChunkWriter] = {}
        self.bytes_copied = 0

    def run(self, tell: Callable[[str], None]) -> dict[TopicIdPartition, BackupPartition]:
        """Copy all partitions and return their manifest entries. Deleted topics are omitted.

        Raises:
            MigrationError: A partition cannot be read.
        """
        left, entries = iter(list(self._ends)), dict[TopicIdPartition, BackupPartition]()
        active, progress_at = self._under_way, time.monotonic()
        while True:
            while len(active) < CONCURRENT_PARTITIONS and (key := next(left, None)) is not None:
                active[key] = self._create_chunk_writer(key)
            if not active:
                return entries
            completed = [key for key, writer in active.items() if writer.offset >= self._ends[key].end]
            entries.update((key, self._build_manifest_entry(key, active.pop(key))) for key in completed)
            of, copied = pluralize(len(self._ends), "partition"), pluralize(self.bytes_copied, "byte")
            tell(f"copied: {len(entries):,} of {of}, {copied}")
            if completed or self._copy_next_records():
                progress_at = time.monotonic()
                continue
            if time.monotonic() - progress_at > self._reader.timeout_s:
                raise MigrationError(
                    f"{self._reader.format_partition_name(next(iter(active)))} cannot be read: no progress in time"
                )
            time.sleep(RETRY_DELAY_SECONDS)
            self._refresh_metadata()

    def _create_chunk_writer(self, key: TopicIdPartition) -> BackupChunkWriter:
        kept, (start, end) = self._kept.get(key), self._ends[key]
        offset = start if kept is None else kept.end
        writer = BackupChunkWriter(self._files, format_id(key[0]), key[1], self._run, offset, end)
        last = kept.pieces[-1] if kept is not None and kept.pieces and kept.end < end else None
        if kept is not None and last is not None and last.file.size < CHUNK_BYTES_MIN:
            writer.continue_chunk(last)
            self._kept[key] = msgspec.structs.replace(kept, pieces=kept.pieces[:-1])
        return writer

    def _copy_next_records(self) -> bool:
        """Fetch and write the next records of all partitions in progress. Return whether any copy has progressed."""
        has_progressed = False
        for key, data in self._reader.fetch({key: each.offset for key, each in self._under_way.items()}).items():
            code = ErrorCode(data.error_code)
            if code is ErrorCode.OFFSET_OUT_OF_RANGE:
                has_progressed = self._restart_partition_copy(key) or has_progressed
            elif code not in RETRIABLE_ERRORS:
                raise_for_code(code, self._reader.format_partition_name(key))
                writer, records = self._under_way[key], cast(memoryview, data.records or b"")
                before = writer.offset
                writer.add(records, continues=key in self._kept)
                if writer.offset > before:
                    has_progressed = True
                    self.bytes_copied += len(records)
        return has_progressed

    def _restart_partition_copy(self, key: TopicIdPartition) -> bool:
        """Restart the copy of a partition whose log no longer contains the next offset to copy.

        The log was truncated, or its start offset moved past the copy. Return False if the topic was deleted.
        """
        found = self._reader.read_log_ranges([key]).get(key)
        if found is None:
            return False
        self._restarts[key] = self._restarts.get(key, 0) + 1
        if self._restarts[key] > RESTARTS_MAX:
            name = self._reader.format_partition_name(key)
            raise MigrationError(f"{name}: the log start moves faster than the partition can be copied")
        end = min(self._ends[key].end, found.end)
        self._ends[key] = LogRange(found.start, max(found.start, end))
        self._kept.pop(key, None)
        self._under_way[key] = self._create_chunk_writer(key)
        return True

    def _refresh_metadata(self) -> None:
        self._reader.refresh()
        for key in [key for key in self._under_way if self._reader.is_deleted(key)]:
            del self._under_way[key]

    def _build_manifest_entry(self, key: TopicIdPartition, writer: BackupChunkWriter) -> BackupPartition:
        writer.close()
        kept, (start, end) = self._kept.get(key), self._ends[key]
        pieces = () if kept is None else tuple(piece for piece in kept.pieces if piece.end > start)
        wrote = bool(writer.pieces)
        last_epoch, producer_ids = (-1, 0) if kept is None else (kept.last_epoch, kept.producer_ids)
        return BackupPartition(
            format_id(key[0]),
            key[1],
            start,
            end,
            writer.last_epoch if wrote else last_epoch,
            max(producer_ids, writer.producer_ids),
            key[0] in self._compacted,
            (*pieces, *writer.pieces),
        )

"""Incremental copy of all partitions of a running cluster into the files of a backup."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Final, cast

import msgspec

from chronik.client.cluster import raise_for_code
from chronik.files import FileSystem
from chronik.ids import format_id
from chronik.migration.backup.chunk_writer import CHUNK_BYTES_MIN, BackupChunkWriter
from chronik.migration.backup.cluster_reader import RETRIABLE_ERRORS, ClusterReader, LogRange
from chronik.migration.backup.manifest import BackupPartition
from chronik.migration.source import MigrationError
from chronik.migration.target_cluster import RETRY_DELAY_SECONDS, TopicIdPartition
from chronik.protocol.errors import ErrorCode
from chronik.wording import pluralize

CONCURRENT_PARTITIONS: Final = 250
"""The number of partitions copied concurrently."""

RESTARTS_MAX: Final = 5
"""The maximum number of times a partition's copy is restarted in a run because its log start moved past it."""


class PartitionCopier:
    """The copy of all partitions in one run of a backup."""

    def __init__(
        self,
        files: FileSystem,
        reader: ClusterReader,
        ends: Mapping[TopicIdPartition, LogRange],
        kept: Mapping[TopicIdPartition, BackupPartition],
        compacted: set[bytes],
        run: int,
    ) -> None:
        """Initialize the copy.

        `kept` are copies of earlier runs to continue, `compacted` the ids of compacted topics.
        """
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
                active[key] = self._writer(key)
            if not active:
                return entries
            completed = [key for key, writer in active.items() if writer.offset >= self._ends[key].end]
            entries.update((key, self._entry(key, active.pop(key))) for key in completed)
            of, copied = pluralize(len(self._ends), "partition"), pluralize(self.bytes_copied, "byte")
            tell(f"copied: {len(entries):,} of {of}, {copied}")
            if completed or self._copy_next():
                progress_at = time.monotonic()
                continue
            if time.monotonic() - progress_at > self._reader.timeout_s:
                raise MigrationError(
                    f"{self._reader.partition_name(next(iter(active)))} cannot be read: no progress in time"
                )
            time.sleep(RETRY_DELAY_SECONDS)
            self._refresh()

    def _writer(self, key: TopicIdPartition) -> BackupChunkWriter:
        kept, (start, end) = self._kept.get(key), self._ends[key]
        offset = start if kept is None else kept.end
        writer = BackupChunkWriter(self._files, format_id(key[0]), key[1], self._run, offset, end)
        last = kept.pieces[-1] if kept is not None and kept.pieces and kept.end < end else None
        if kept is not None and last is not None and last.file.size < CHUNK_BYTES_MIN:
            writer.continue_chunk(last)
            self._kept[key] = msgspec.structs.replace(kept, pieces=kept.pieces[:-1])
        return writer

    def _copy_next(self) -> bool:
        """Fetch and write the next records. Return whether there was progress."""
        has_progressed = False
        for key, data in self._reader.fetch({key: each.offset for key, each in self._under_way.items()}).items():
            code = ErrorCode(data.error_code)
            if code is ErrorCode.OFFSET_OUT_OF_RANGE:
                has_progressed = self._restart(key) or has_progressed
            elif code not in RETRIABLE_ERRORS:
                raise_for_code(code, self._reader.partition_name(key))
                writer, records = self._under_way[key], cast(memoryview, data.records or b"")
                before = writer.offset
                writer.add(records, continues=key in self._kept)
                if writer.offset > before:
                    has_progressed = True
                    self.bytes_copied += len(records)
        return has_progressed

    def _restart(self, key: TopicIdPartition) -> bool:
        """Restart the copy of a partition whose log start moved past it or whose log was truncated.

        Return whether it was.
        """
        found = self._reader.read_log_ranges([key]).get(key)
        if found is None:
            return False
        self._restarts[key] = self._restarts.get(key, 0) + 1
        if self._restarts[key] > RESTARTS_MAX:
            raise MigrationError(
                f"{self._reader.partition_name(key)}: the log start moves faster than the partition can be copied"
            )
        end = min(self._ends[key].end, found.end)
        self._ends[key] = LogRange(found.start, max(found.start, end))
        self._kept.pop(key, None)
        self._under_way[key] = self._writer(key)
        return True

    def _refresh(self) -> None:
        self._reader.refresh()
        for key in [key for key in self._under_way if self._reader.is_deleted(key)]:
            del self._under_way[key]

    def _entry(self, key: TopicIdPartition, writer: BackupChunkWriter) -> BackupPartition:
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

"""The producer state of a partition and its snapshots, which save recovery from scanning the whole log."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from chronik.clock import Clock
from chronik.files import Buffer, FileCache, read_file
from chronik.log.files import names
from chronik.log.leader_epochs import LeaderEpochHistory
from chronik.log.partition_transactions import BYTES_PER_TRANSACTION
from chronik.log.producer_state import ProducerLimit, ProducerStateManager
from chronik.log.segment import LogSegment
from chronik.log.sync import PendingSync
from chronik.protocol.batch import BatchHeader
from chronik.protocol.control_records import parse_transaction_marker_batch

# Log bytes between two snapshots: an unclean start has to scan them again.
SNAPSHOT_INTERVAL_BYTES = 64 << 20

# A snapshot holds all aborted transactions. It is taken only when this multiple of their size was appended since the
# last snapshot, so that partitions with many of them do not rewrite them with each small segment.
LOG_BYTES_PER_ABORTED_BYTE = 2

# The newest snapshot may be torn after a power failure, or too new after a truncation.
RETAINED_SNAPSHOTS = 2


class ProducerStateStore:
    """The producer state of a partition, which is stored in snapshot files."""

    __slots__ = (
        "_bytes_since_snapshot",
        "_cache",
        "_clock",
        "_directory",
        "_limit",
        "_offsets",
        "_unsynced",
        "manager",
    )

    def __init__(
        self,
        cache: FileCache,
        directory: str,
        clock: Clock,
        unsynced: PendingSync,
        present: Iterable[str],
        limit: ProducerLimit | None = None,
    ) -> None:
        self._limit = limit or ProducerLimit()
        self.manager = ProducerStateManager(self._limit)
        self._cache = cache
        self._directory = directory
        self._clock = clock
        self._unsynced = unsynced
        self._offsets = names.parse_file_name_offsets(present, names.SNAPSHOT) if present else []
        self._bytes_since_snapshot = 0

    def update(self, buffer: Buffer, headers: Sequence[BatchHeader], offset: int, end_offset: int) -> None:
        """Update the producer state with batches that were appended at `offset`."""
        position = 0
        for header in headers:
            if header.producer_id >= 0:
                marker = parse_transaction_marker_batch(buffer, position) if header.is_control else None
                self.manager.update(header, offset, self._clock.now_ms(), marker)
            position += header.size
            offset += header.last_offset_delta + 1
        self._bytes_since_snapshot += position
        if self._bytes_since_snapshot >= SNAPSHOT_INTERVAL_BYTES:
            self.take_snapshot_if_due(end_offset)

    def take_snapshot_if_due(self, offset: int) -> None:
        """Write a producer state snapshot if enough bytes have been appended since the last one."""
        aborted_bytes = len(self.manager.transactions.aborted) * BYTES_PER_TRANSACTION
        if self._bytes_since_snapshot >= aborted_bytes * LOG_BYTES_PER_ABORTED_BYTE:
            self.take_snapshot(offset)

    def ensure_snapshot_from(self, offset: int, log_end_offset: int) -> None:
        """Ensure that a producer state snapshot at or after `offset` exists, before the log below it is deleted."""
        if self._offsets and self._offsets[-1] >= offset:
            return
        self.take_snapshot(log_end_offset)

    def take_snapshot(self, offset: int) -> None:
        """Write a snapshot of the producer state at `offset`, the log end offset, and delete old snapshots.

        The next sync makes it durable; recovery detects incomplete snapshots.
        """
        if not self._bytes_since_snapshot:
            return
        file = self._cache.create(self._path(offset))
        file.truncate(0)
        file.append(self.manager.encode(offset))
        self._unsynced.add_file(file)
        self._unsynced.add_directory(self._directory)
        self._bytes_since_snapshot = 0
        if offset not in self._offsets:
            self._offsets.append(offset)
        for old in self._offsets[:-RETAINED_SNAPSHOTS]:
            self._remove_snapshot(old)

    def reload(
        self, segments: Iterable[LogSegment], epochs: LeaderEpochHistory, log_end_offset: int, compacted_offset: int
    ) -> None:
        """Rebuild the producer state from the newest snapshot and the batches after it.

        Markers below `compacted_offset` may have been removed by compaction. A snapshot below it that has open
        transactions is not used, because nothing would end them.
        """
        newer = [offset for offset in self._offsets if offset > log_end_offset]
        for offset in newer:
            self._remove_snapshot(offset)
        if newer:  # otherwise a power failure could bring them back after other batches were appended
            self._cache.files.sync_directory(self._directory)
        self.manager, snapshot_offset = self._load_newest_snapshot(compacted_offset)
        self._bytes_since_snapshot = 0
        for segment in segments:
            if segment.end_offset <= snapshot_offset or not segment.size:
                continue
            for piece in segment.scan_from_offset(max(snapshot_offset, segment.base_offset), epochs):
                if piece.batch is not None and piece.base_offset >= snapshot_offset:
                    self._bytes_since_snapshot += len(piece.batch)
                    header = piece.header
                    if header.has_producer_id:
                        marker = parse_transaction_marker_batch(piece.batch) if header.is_control else None
                        self.manager.update(header, piece.base_offset, self._clock.now_ms(), marker)

    def reset(self) -> None:
        """Delete all producer state snapshots and clear the producer state."""
        for offset in list(self._offsets):
            self._remove_snapshot(offset)
        self.manager = ProducerStateManager(self._limit)

    def _load_newest_snapshot(self, compacted_offset: int) -> tuple[ProducerStateManager, int]:
        while self._offsets:
            offset = self._offsets[-1]
            stored = read_file(self._cache.files, self._path(offset)) or b""
            states = ProducerStateManager.decode(stored, offset, self._limit)
            if states is not None and (offset >= compacted_offset or not states.transactions.open):
                return states, offset
            self._remove_snapshot(offset)
        return ProducerStateManager(self._limit), 0

    def _remove_snapshot(self, offset: int) -> None:
        self._offsets.remove(offset)
        self._unsynced.discard_file(self._path(offset))
        self._cache.files.remove(self._path(offset))

    def _path(self, offset: int) -> str:
        return f"{self._directory}/{names.format_offset_file_name(offset, names.SNAPSHOT)}"

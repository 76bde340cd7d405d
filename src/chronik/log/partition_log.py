"""The log of one partition: appends, reads, retention, compaction and truncation.

One thread uses a log, and no operation but truncation blocks on the disk. Appended records can be read immediately;
they are durable once a later sync task of `begin_sync` has run and was passed to `complete_sync`. Deletion works the
same way: it moves the log start offset, the next sync stores it, and files are deleted when it is durable. A follower
truncates before it continues, so truncation blocks on the disk.

After StorageError the file system accepts no more writes, so no later sync can succeed: the node must stop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Self

import msgspec

from chronik.clock import Clock
from chronik.errors import InvariantError, check_invariant
from chronik.files import Buffer, FileCache, FileSystem
from chronik.log import timestamp_lookup
from chronik.log.compaction import Compaction, plan_compaction
from chronik.log.config import LogConfig
from chronik.log.files import names
from chronik.log.files.checkpoints import LogCheckpoints, OffsetCheckpointFile
from chronik.log.leader_epochs import LeaderEpochHistory
from chronik.log.partition_transactions import AbortedTransaction
from chronik.log.producer_snapshots import ProducerStateStore
from chronik.log.producer_state import ProducerLimit, ProducerStateManager
from chronik.log.recovery import RecoveredLog, recover_log
from chronik.log.segment import LogSegment
from chronik.log.segments import LogSegments
from chronik.log.sync import PendingSync, SyncTask
from chronik.log.timestamp_lookup import TimestampedBatch
from chronik.protocol.batch import (
    NO_TIMESTAMP,
    BatchHeader,
    TimestampType,
    iter_batches,
    set_base_offset_and_epoch,
    verify_crc,
)
from chronik.protocol.control_records import parse_transaction_marker_batch
from chronik.protocol.errors import CorruptRecords, ErrorCode, KafkaError

WritableBuffer = bytearray | memoryview


class AppendOrigin(IntEnum):
    """Who sent an appended batch: a client, or the broker itself."""

    CLIENT = 0
    COORDINATOR = 1
    """The broker itself: a transaction coordinator appends control batches, which have no sequence numbers."""


class AppendInfo(msgspec.Struct, frozen=True):
    """The result of an append: the assigned offsets and timestamp."""

    base_offset: int
    last_offset: int
    log_append_time_ms: int
    """The append time of the batches if the topic uses `LogAppendTime`, otherwise -1."""
    log_start_offset: int
    is_duplicate: bool = False
    """Whether the batch is a retry of a batch in the log, whose offsets are returned."""


def _reject_lower_recovery_point(offset: int) -> None:
    raise InvariantError("truncation below the synced offset of a log that was opened without lower_recovery_point")


class PartitionLog:
    """The log of one partition (Kafka's `UnifiedLog`)."""

    __slots__ = (
        "_cache",
        "_checkpoints",
        "_clock",
        "_files",
        "_lower_recovery_point",
        "_producers",
        "_segments",
        "_sync_task",
        "_truncations",
        "_unsynced",
        "config",
        "directory",
        "epochs",
        "log_end_offset",
        "log_start_offset",
        "missing_end_offset",
        "missing_start_offset",
        "synced_offset",
    )

    def __init__(
        self,
        files: FileSystem,
        cache: FileCache,
        directory: str,
        config: LogConfig,
        clock: Clock,
        lower_recovery_point: Callable[[int], None],
        recovered: RecoveredLog,
        producer_limit: ProducerLimit | None = None,
    ) -> None:
        """Create a log from its recovered state; use `open` instead."""
        self.directory = directory
        self.config = config
        """The topic's storage configs. They can be replaced at any time and apply to later operations."""
        self.epochs = recovered.epochs
        self.log_start_offset = recovered.log_start_offset
        self.log_end_offset = recovered.log_end_offset
        self.synced_offset = recovered.log_end_offset
        self.missing_start_offset = recovered.missing_start_offset
        """The start of the offset range that was missing on disk when the log was opened, or None.

        The range stays empty unless the log is truncated there and replicated again.
        """
        self.missing_end_offset = recovered.log_end_offset
        self._files = files
        self._cache = cache
        self._clock = clock
        self._lower_recovery_point = lower_recovery_point
        self._unsynced = PendingSync(cache, clock)
        self._segments = LogSegments(cache, directory, self._unsynced, recovered.segments)
        self._producers = ProducerStateStore(
            cache, directory, clock, self._unsynced, recovered.file_names, producer_limit
        )
        self._checkpoints = LogCheckpoints(
            recovered.start_checkpoint,
            OffsetCheckpointFile(files, f"{directory}/{names.COMPACTED}"),
            recovered.log_start_offset,
        )
        self._sync_task: SyncTask | None = None
        self._truncations = 0

    @classmethod
    def open(
        cls,
        files: FileSystem,
        cache: FileCache,
        directory: str,
        config: LogConfig,
        clock: Clock,
        recovery_point: int = 0,
        *,
        lower_recovery_point: Callable[[int], None] = _reject_lower_recovery_point,
        producer_limit: ProducerLimit | None = None,
    ) -> Self:
        """Recover the log in the directory and return it. If the directory does not exist, the log is empty.

        Args:
            recovery_point: The last recorded synced offset (see `SyncedOffsets`).
            lower_recovery_point: Durably records a lower synced offset before a truncation.
            producer_limit: A limit that several logs share; by default the log has its own.
        """
        recovered = recover_log(files, cache, directory, recovery_point, config.index_interval_bytes)
        log = cls(files, cache, directory, config, clock, lower_recovery_point, recovered, producer_limit)
        if recovered.file_names:
            log._checkpoints.load(log.log_start_offset, log.log_end_offset)
            log._reload_producer_state()
        return log

    def _reload_producer_state(self) -> None:
        """Rebuild the producer state and the transactions from the log."""
        compacted_offset = self._checkpoints.compacted_offset  # deleted records count as compacted
        self._producers.reload(self._segments.all, self.epochs, self.log_end_offset, compacted_offset)
        self.producers.transactions.aborted.delete_before(self.log_start_offset)

    @property
    def has_lost_all_records(self) -> bool:
        """Whether all synced records are lost, because the directory or all segment files are missing."""
        return self.missing_start_offset is not None and self.log_start_offset == self.log_end_offset

    @property
    def size(self) -> int:
        return self._segments.size

    @property
    def segment_count(self) -> int:
        return len(self._segments.all)

    @property
    def producers(self) -> ProducerStateManager:
        return self._producers.manager

    # -- syncing ------------------------------------------------------------------------------------------------------

    @property
    def needs_sync(self) -> bool:
        return bool(self._unsynced or self._segments.swaps or self._pending_checkpoints())

    @property
    def is_syncing(self) -> bool:
        return self._sync_task is not None

    def begin_sync(self) -> SyncTask | None:
        """Return a task that syncs all unsynced changes, or None if there are none. At most one task may run."""
        self._segments.preallocate_active(self.config.segment_bytes)
        return self._begin_sync()

    def _begin_sync(self) -> SyncTask | None:
        if not self.needs_sync:
            return None
        check_invariant(self._sync_task is None, "a sync of this log is already in progress")
        self._sync_task = self._unsynced.create_task(self.log_end_offset, self._pending_checkpoints())
        self._segments.swaps.record_sync_start()
        return self._sync_task

    def complete_sync(self, task: SyncTask) -> None:
        """Mark the changes as durable that a completed sync task has synced."""
        check_invariant(self._sync_task is task, "the completed sync task is not the one in progress")
        self._sync_task = None
        self._unsynced.complete_task(task)
        self.synced_offset = max(self.synced_offset, task.end_offset)
        self._segments.swaps.advance(self.config.file_delete_delay_ms)
        self._segments.delete_before(
            self._checkpoints.start_checkpoint.stored_offset or 0, self.config.file_delete_delay_ms
        )

    def sync(self) -> None:
        """Sync all unsynced changes of the log to disk. Blocks on the disk."""
        task = self._begin_sync()
        if task is not None:
            task.run()
            self.complete_sync(task)

    def close(self) -> None:
        """Sync and close the log, and write a producer state snapshot for a fast restart."""
        if self._segments.all:
            self._segments.all[-1].index.flush()
            self._segments.trim_active()
            self._producers.take_snapshot(self.log_end_offset)
        while self.needs_sync:
            self.sync()
        self._segments.close()

    def _pending_checkpoints(self) -> list[tuple[OffsetCheckpointFile, int]]:
        segments = self._segments
        first = segments.all[0].base_offset if segments.all else None
        return self._checkpoints.pending_checkpoints(self.log_start_offset, first, has_swaps=bool(segments.swaps))

    # -- appending ----------------------------------------------------------------------------------------------------

    def append(
        self,
        buffer: WritableBuffer,
        headers: Sequence[BatchHeader],
        leader_epoch: int,
        *,
        origin: AppendOrigin = AppendOrigin.CLIENT,
    ) -> AppendInfo:
        """Assign offsets and the leader epoch to the batches in place, and write them to the active segment.

        `headers` are the validated headers of the batches in `buffer`. A retry of a batch that is already in the log
        returns the stored offsets.

        Raises:
            KafkaError: Nothing was written. OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_PRODUCER_EPOCH, FENCED_LEADER_EPOCH,
                INVALID_TXN_STATE, RECORD_LIST_TOO_LARGE; for markers TRANSACTION_COORDINATOR_FENCED.
        """
        if leader_epoch < self.epochs.latest_epoch:
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
        if len(buffer) > self.config.segment_bytes:
            raise KafkaError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"{len(buffer)} bytes exceed the segment size of {self.config.segment_bytes} bytes (segment.bytes)",
            )
        if origin is AppendOrigin.CLIENT:
            sent = self._producers.manager.check_batches(headers)
            if sent is not None:
                return AppendInfo(
                    sent.base_offset, sent.last_offset, NO_TIMESTAMP, self.log_start_offset, is_duplicate=True
                )
        else:
            self._validate_transaction_markers(buffer, headers)
        base_offset = offset = self.log_end_offset
        position = 0
        for header in headers:
            set_base_offset_and_epoch(buffer, position, offset, leader_epoch)
            position += header.size
            offset += header.last_offset_delta + 1
        check_invariant(position == len(buffer), "the headers of an append do not match its buffer")
        self.epochs.assign(leader_epoch, base_offset)
        self._write(buffer, headers, offset)
        stamped = headers[-1].timestamp_type is TimestampType.LOG_APPEND_TIME
        append_time = headers[-1].max_timestamp if stamped else NO_TIMESTAMP
        return AppendInfo(base_offset, offset - 1, append_time, self.log_start_offset)

    def _validate_transaction_markers(self, buffer: Buffer, headers: Sequence[BatchHeader]) -> None:
        position = 0
        for header in headers:
            marker = parse_transaction_marker_batch(buffer, position) if header.is_control else None
            if marker is not None:
                self.producers.check_marker(header, marker)
            position += header.size

    def append_as_follower(self, buffer: Buffer) -> AppendInfo | None:
        """Append batches that the leader sent, with their offsets and epochs unchanged. Return None if there are none.

        Raises:
            CorruptRecords: The batches are incomplete or damaged or do not continue the log. Nothing was written.
        """
        headers, epochs = validate_replicated_batches(buffer, self.log_end_offset, self.epochs.latest_epoch)
        if not headers:
            return None
        for epoch, start_offset in epochs:
            self.epochs.assign(epoch, start_offset)
        base_offset, end_offset = self.log_end_offset, headers[-1].next_offset
        self._write(buffer, headers, end_offset)
        return AppendInfo(base_offset, end_offset - 1, NO_TIMESTAMP, self.log_start_offset)

    def append_imported(self, buffer: Buffer, leader_epoch: int) -> AppendInfo | None:
        """Append imported batches unchanged, as a follower does, although this node is the leader.

        The epochs of the batches are below the node's own leader epoch, which is assigned again afterwards.

        Raises:
            CorruptRecords: The batches are incomplete or damaged or do not continue the log. Nothing was written.
        """
        self.remove_empty_epochs()
        try:
            return self.append_as_follower(buffer)
        finally:
            self.epochs.assign(leader_epoch, self.log_end_offset)

    def roll(self) -> LogSegment:
        """Close the active segment and create a new one."""
        active = self._segments.all[-1]
        check_invariant(active.size > 0, "an empty active segment must not be rolled")
        active.seal()
        self._segments.trim_active()
        self._producers.take_snapshot_if_due(self.log_end_offset)
        return self._segments.create_active(self.log_end_offset)

    def _write(self, buffer: Buffer, headers: Sequence[BatchHeader], end_offset: int) -> None:
        segments = self._segments
        if not segments.all:
            segment = segments.create_active(self.log_end_offset)
        elif segments.should_roll(self.config, len(buffer), headers, end_offset):
            segment = self.roll()
        else:
            segment = segments.all[-1]
        if not segment.size:
            self._unsynced.add_directory(self.directory)
        epochs_file = self.epochs.write_pending()
        if epochs_file is not None:
            self._unsynced.add_file(epochs_file)
            self._unsynced.add_directory(self.directory)
        self._unsynced.add_file(segment.append(buffer, headers, self.config.index_interval_bytes))
        base_offset, self.log_end_offset = self.log_end_offset, end_offset
        self._producers.update(buffer, headers, base_offset, end_offset)

    # -- reading ------------------------------------------------------------------------------------------------------

    def read(self, offset: int, max_bytes: int, up_to_offset: int, *, min_one_batch: bool = True) -> memoryview:
        """Return complete batches that end at or before `up_to_offset`, starting with the batch that contains `offset`.

        They have at most `max_bytes`, but with `min_one_batch` the first batch is returned whatever its size. Damage
        after the first batch ends the read.

        Raises:
            KafkaError: OFFSET_OUT_OF_RANGE.
            CorruptRecords: The batch that contains `offset` is damaged.
        """
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        if offset >= min(up_to_offset, self.log_end_offset):
            return memoryview(b"")
        segment = self._segments.all[self._segments.find_segment_index(offset)]
        if not segment.base_offset <= offset < segment.end_offset:
            raise CorruptRecords(f"no segment in {self.directory} contains offset {offset}")
        up_to_offset = min(up_to_offset, segment.end_offset)
        return segment.read(offset, max_bytes, up_to_offset, self.epochs, min_one_batch=min_one_batch)

    def find_batch_by_timestamp(self, timestamp: int, start_offset: int) -> TimestampedBatch | None:
        """Return the first batch with a record at or after `timestamp`, ignoring records below `start_offset`."""
        start_offset = max(start_offset, self.log_start_offset)
        return timestamp_lookup.find_batch_by_timestamp(self._segments.all, self.epochs, timestamp, start_offset)

    def find_batch_with_max_timestamp(self, start_offset: int) -> TimestampedBatch | None:
        """Return the first batch that contains the partition's largest record timestamp."""
        return timestamp_lookup.find_batch_with_max_timestamp(
            self._segments.all, self.epochs, max(start_offset, self.log_start_offset)
        )

    def find_timestamp_at(self, offset: int) -> int | None:
        """Return the approximate timestamp in milliseconds of the record at `offset`, or None if it is unknown."""
        segments, offset = self._segments, max(offset, self.log_start_offset)
        return (
            timestamp_lookup.read_batch_timestamp(
                segments.all[segments.find_segment_index(offset)], self.epochs, offset
            )
            if segments.all
            else None
        )

    def last_stable_offset(self, high_watermark: int) -> int:
        """Return the last stable offset: all records below it are committed, and their transactions are complete.

        It changes only with the high watermark or the log start offset, and never decreases.
        """
        transactions = self._producers.manager.transactions
        if not transactions.open and not transactions.unreplicated:  # fast path: called by each fetch of each partition
            return high_watermark
        unstable = transactions.first_unstable_offset(high_watermark)
        if unstable is None or unstable >= high_watermark:
            return high_watermark
        return max(unstable, self.log_start_offset)  # the first records of a transaction may have been deleted

    @property
    def has_aborted_transactions(self) -> bool:
        """Whether the log has aborted transactions."""
        return len(self.producers.transactions.aborted) > 0

    def find_aborted_transactions(self, records: Buffer, start_offset: int) -> list[AbortedTransaction]:
        """Return the aborted transactions that a consumer needs to filter these batches from `start_offset`.

        Compaction may have removed all batches of a transaction and its marker while a snapshot still contains it.
        A transaction without its marker is omitted: clients would also skip the producer's later records.
        """
        markers, end_offset = set(), 0
        for _, header in iter_batches(records):
            end_offset = header.next_offset
            if header.is_control:
                markers.add(header.base_offset)
        met = self.producers.transactions.aborted.find_in_range(start_offset, end_offset)
        return [each for each in met if each.marker_offset >= end_offset or each.marker_offset in markers]

    def find_end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """Return the largest leader epoch up to `epoch` and its end offset, or (-1, -1) if unknown."""
        return self.epochs.find_epoch_end_offset(epoch, self.log_end_offset)

    def remove_empty_epochs(self) -> None:
        """Remove leader epochs without batches, whose offsets another leader will assign."""
        check_invariant(
            not self.epochs.truncate_from_end(self.log_end_offset), "a leader epoch without batches was written to disk"
        )

    # -- deleting and compacting --------------------------------------------------------------------------------------

    def delete_records_before(self, offset: int) -> int:
        """Delete the records below `offset` by advancing the log start offset, and return it.

        Raises:
            KafkaError: OFFSET_OUT_OF_RANGE.
        """
        if offset > self.log_end_offset:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        self.log_start_offset = max(self.log_start_offset, offset)
        number = self._segments.find_segment_index(offset)
        if number:  # the producer state of the deleted segments must be kept
            self._producers.ensure_snapshot_from(self._segments.all[number].base_offset, self.log_end_offset)
        self._checkpoints.advance_compacted_offset(offset)
        self.producers.transactions.aborted.delete_before(self.log_start_offset)
        return self.log_start_offset

    def apply_retention(self, now_ms: int, up_to_offset: int | None = None) -> int:
        """Delete the segments that exceed the retention time or size, and return their number.

        The next sync deletes the files. `up_to_offset` is the high watermark; segments above it are kept. Also removes
        expired producers.
        """
        self._producers.manager.expire(now_ms, self.config.producer_id_expiration_ms)
        segments = self._segments
        if not segments.all or not self.config.is_retention_enabled:
            return 0
        live = segments.all[segments.find_segment_index(self.log_start_offset) :]
        limit = self.log_end_offset if up_to_offset is None else up_to_offset
        deletable = find_deletable_segments(live, self.config, self.epochs, now_ms, limit)
        if not deletable:
            return 0
        if deletable[-1] is segments.all[-1]:
            self.roll()
        self.delete_records_before(deletable[-1].end_offset)
        return len(deletable)

    def begin_compaction(self, now_ms: int, up_to_offset: int | None = None) -> Compaction | None:
        """Return a compaction that the caller must run and complete, or None if too little of the log is uncompacted.

        `up_to_offset` is the high watermark. Only closed, synced segments below it and below all undecided transactions
        are compacted.
        """
        if not self.config.is_compaction_enabled or self._segments.swaps:
            return None
        high_watermark = self.synced_offset if up_to_offset is None else up_to_offset
        limit = min(self.last_stable_offset(high_watermark), self.synced_offset)
        return plan_compaction(
            self._files,
            self.directory,
            self.config,
            self.epochs,
            self._producers.manager,
            [segment for segment in self._segments.all[:-1] if segment.end_offset <= limit],
            self._checkpoints.compacted_offset,
            self._checkpoints.durable_compacted_offset,
            now_ms,
            self._truncations,
        )

    def complete_compaction(self, compaction: Compaction) -> bool:
        """Replace the segments in memory with the compacted segments. The next syncs replace the files.

        Return False if the log was truncated or lost segments during the compaction. Segments that were not replaced
        stay as they are.
        """
        if compaction.truncations != self._truncations or not self._segments.replace_compacted(compaction):
            compaction.discard()
            return False
        self._checkpoints.advance_compacted_offset(compaction.compacted_offset)
        if compaction.remaining_aborted is not None:
            aborted = self.producers.transactions.aborted
            aborted.replace_before(compaction.cleaned_end_offset, compaction.remaining_aborted)
            aborted.delete_before(self.log_start_offset)
        return True

    # -- truncating ---------------------------------------------------------------------------------------------------

    def truncate_to(self, offset: int) -> int:
        """Truncate the log at the start of the batch that contains `offset`.

        Return the log end offset. Blocks on the disk.
        """
        if offset >= self.log_end_offset:
            return self.log_end_offset
        check_invariant(offset >= self.log_start_offset, "truncation below the log start offset")
        self._prepare_truncation(offset)
        number = self._segments.find_segment_index(offset)
        segment = self._segments.all[number]
        position, end_offset = segment.find_batch(offset, self.epochs)
        if end_offset < self.synced_offset:
            self._lower_recovery_point(end_offset)
            self.synced_offset = end_offset
        self._segments.delete_from(number + 1, self.config.file_delete_delay_ms)
        segment.truncate(position, end_offset, self.epochs, self.config.index_interval_bytes).fdatasync()
        self._files.sync_directory(self.directory)
        self.log_end_offset = end_offset
        self._truncate_checkpoints(end_offset)
        self._reload_producer_state()
        return end_offset

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Delete all segments and start an empty log at `offset`. Blocks on the disk."""
        self._prepare_truncation(0)
        if offset < self.synced_offset:
            self._lower_recovery_point(offset)
        self._segments.delete_from(0, self.config.file_delete_delay_ms)
        self._producers.reset()
        for directory in [self.directory, *self._files.make_directory(self.directory)]:
            self._files.sync_directory(directory)
        self._checkpoints.start_checkpoint.store(offset)
        self.log_start_offset = self.log_end_offset = self.synced_offset = offset
        self._truncate_checkpoints(0)

    def _prepare_truncation(self, offset: int) -> None:
        if self.missing_start_offset is not None and offset <= self.missing_start_offset:
            self.missing_start_offset = None
        check_invariant(self._sync_task is None, "truncation during a sync")
        self._segments.swaps.complete_all(self.config.file_delete_delay_ms)
        self._truncations += 1

    def _truncate_checkpoints(self, offset: int) -> None:
        self._unsynced.discard_file(f"{self.directory}/{names.LEADER_EPOCHS}")
        self.epochs.truncate_from_end(offset)
        self.epochs.rewrite()
        self._checkpoints.truncate_to(self.log_start_offset, offset)


def validate_replicated_batches(
    buffer: Buffer, offset: int, epoch: int
) -> tuple[list[BatchHeader], list[tuple[int, int]]]:
    """Validate the batches that a leader sent, and return their headers and the leader epochs that start in them.

    Epochs are returned as (epoch, start offset).

    Raises:
        CorruptRecords: A batch is incomplete or damaged, or does not continue the log at `offset` in `epoch` or later.
    """
    headers: list[BatchHeader] = []
    epochs: list[tuple[int, int]] = []
    for position, header in iter_batches(buffer):
        if header.base_offset != offset or header.last_offset_delta < 0:
            raise CorruptRecords(f"the leader sent a batch at offset {header.base_offset}, expected offset {offset}")
        if header.partition_leader_epoch < epoch or not verify_crc(buffer, position, header.size):
            raise CorruptRecords(f"the leader sent a damaged batch at offset {offset}")
        if header.partition_leader_epoch > epoch:
            epoch = header.partition_leader_epoch
            epochs.append((epoch, offset))
        headers.append(header)
        offset = header.next_offset
    return headers, epochs


def find_deletable_segments(
    segments: Sequence[LogSegment], config: LogConfig, epochs: LeaderEpochHistory, now_ms: int, up_to_offset: int
) -> list[LogSegment]:
    """Return the oldest segments that exceed the retention time or size.

    They include the active segment if all its records expired.
    """
    total_bytes = sum(segment.size for segment in segments)
    excess_bytes = total_bytes - config.retention_bytes if config.retention_bytes >= 0 else 0
    result = []
    for segment in segments:
        if not segment.size or segment.end_offset > up_to_offset:
            break
        if excess_bytes >= segment.size:
            excess_bytes -= segment.size
        elif not _is_expired(segment, config, epochs, now_ms):
            break
        result.append(segment)
    return result


def _is_expired(segment: LogSegment, config: LogConfig, epochs: LeaderEpochHistory, now_ms: int) -> bool:
    if config.retention_ms < 0:
        return False
    segment.ensure_index(epochs)
    # Records without a timestamp, which only old clients send, get the age of the file.
    newest = segment.max_timestamp if segment.max_timestamp >= 0 else segment.modified_ms()
    return now_ms - newest > config.retention_ms

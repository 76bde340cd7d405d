"""The log of one partition: appends, reads, retention, compaction and truncation.

One thread uses a log, and no operation but truncation blocks on the disk. Appended records can be read immediately;
they are durable once a later sync task of `begin_sync` has run and was passed to `complete_sync`. Deletion works the
same way: it moves the log start offset, the next sync stores it, and files are deleted when it is durable. A follower
truncates before it continues, so truncation blocks on the disk.

After StorageFailed the file system accepts no more writes, so no later sync can succeed: the node must stop.
"""

from __future__ import annotations

from collections.abc import Sequence

from chronik.errors import invariant
from chronik.files import Buffer
from chronik.log import retention, times
from chronik.log.aborted import AbortedTransaction
from chronik.log.appends import AppendInfo, AppendOrigin, check_replicated
from chronik.log.compaction import Compaction, plan_compaction
from chronik.log.files import names
from chronik.log.segment import Segment
from chronik.log.stored import StoredLog
from chronik.log.times import TimedBatch
from chronik.protocol.batch import NO_TIMESTAMP, BatchHeader, TimestampType, iter_batches, set_base_offset_and_epoch
from chronik.protocol.control_records import marker_within
from chronik.protocol.errors import CorruptRecords, ErrorCode, KafkaError

WritableBuffer = bytearray | memoryview


class PartitionLog(StoredLog):
    """The log of one partition (Kafka's `UnifiedLog`)."""

    __slots__ = ()

    # -- appending ----------------------------------------------------------------------------------------------------

    def append(
        self,
        buffer: WritableBuffer,
        headers: Sequence[BatchHeader],
        leader_epoch: int,
        *,
        origin: AppendOrigin = AppendOrigin.CLIENT,
    ) -> AppendInfo:
        """Assign offsets and the leader epoch to the batches, in place, and write the buffer to the active segment.

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
            sent = self._producers.states.check(headers)
            if sent is not None:
                return AppendInfo(
                    sent.base_offset, sent.last_offset, NO_TIMESTAMP, self.log_start_offset, duplicate=True
                )
        else:
            self._check_markers(buffer, headers)
        base_offset = offset = self.log_end_offset
        position = 0
        for header in headers:
            set_base_offset_and_epoch(buffer, position, offset, leader_epoch)
            position += header.size
            offset += header.last_offset_delta + 1
        invariant(position == len(buffer), "the headers of an append do not match its buffer")
        self.epochs.assign(leader_epoch, base_offset)
        self._write(buffer, headers, offset)
        stamped = headers[-1].timestamp_type is TimestampType.LOG_APPEND_TIME
        append_time = headers[-1].max_timestamp if stamped else NO_TIMESTAMP
        return AppendInfo(base_offset, offset - 1, append_time, self.log_start_offset)

    def _check_markers(self, buffer: Buffer, headers: Sequence[BatchHeader]) -> None:
        position = 0
        for header in headers:
            marker = marker_within(buffer, position) if header.is_control else None
            if marker is not None:
                self.producers.check_marker(header, marker)
            position += header.size

    def append_as_follower(self, buffer: Buffer) -> AppendInfo | None:
        """Append batches as the leader sent them. Return None if there are none.

        Raises:
            CorruptRecords: The batches are incomplete or damaged or do not continue the log. Nothing was written.
        """
        headers, epochs = check_replicated(buffer, self.log_end_offset, self.epochs.latest_epoch)
        if not headers:
            return None
        for epoch, start_offset in epochs:
            self.epochs.assign(epoch, start_offset)
        base_offset, end_offset = self.log_end_offset, headers[-1].next_offset
        self._write(buffer, headers, end_offset)
        return AppendInfo(base_offset, end_offset - 1, NO_TIMESTAMP, self.log_start_offset)

    def append_imported(self, buffer: Buffer, leader_epoch: int) -> AppendInfo | None:
        """Append batches of an import as a follower does, although this node is the leader.

        The epochs of the batches are below the node's own leader epoch, which is assigned again afterwards.

        Raises:
            CorruptRecords: The batches are incomplete or damaged or do not continue the log. Nothing was written.
        """
        self.forget_unused_epochs()
        try:
            return self.append_as_follower(buffer)
        finally:
            self.epochs.assign(leader_epoch, self.log_end_offset)

    def roll(self) -> Segment:
        """Close the active segment and create a new one."""
        active = self._segments.all[-1]
        invariant(active.size > 0, "an empty active segment must not be rolled")
        active.seal()
        self._segments.release_room()
        self._producers.snapshot_if_due(self.log_end_offset)
        return self._segments.start(self.log_end_offset)

    def _write(self, buffer: Buffer, headers: Sequence[BatchHeader], end_offset: int) -> None:
        segments = self._segments
        if not segments.all:
            segment = segments.start(self.log_end_offset)
        elif segments.is_full(self.config, len(buffer), headers, end_offset):
            segment = self.roll()
        else:
            segment = segments.all[-1]
        if not segment.size:
            self._unsynced.add_folder(self.folder)
        epochs_file = self.epochs.store()
        if epochs_file is not None:
            self._unsynced.add_file(epochs_file)
            self._unsynced.add_folder(self.folder)
        self._unsynced.add_file(segment.append(buffer, headers, self.config.index_interval_bytes))
        base_offset, self.log_end_offset = self.log_end_offset, end_offset
        self._producers.appended(buffer, headers, base_offset, end_offset)

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
        segment = self._segments.all[self._segments.number_of(offset)]
        if not segment.base_offset <= offset < segment.end_offset:
            raise CorruptRecords(f"no segment in {self.folder} contains offset {offset}")
        up_to_offset = min(up_to_offset, segment.end_offset)
        return segment.read(offset, max_bytes, up_to_offset, self.epochs, min_one_batch=min_one_batch)

    def batch_for_timestamp(self, timestamp: int, start_offset: int) -> TimedBatch | None:
        """Return the first batch with a record at or after `timestamp`, not counting records below `start_offset`."""
        start_offset = max(start_offset, self.log_start_offset)
        return times.batch_not_before(self._segments.all, self.epochs, timestamp, start_offset)

    def batch_with_max_timestamp(self, start_offset: int) -> TimedBatch | None:
        """Return the first batch with a record that has the partition's largest timestamp."""
        return times.batch_with_max(self._segments.all, self.epochs, max(start_offset, self.log_start_offset))

    def time_at(self, offset: int) -> int | None:
        """Return the approximate timestamp of the record at `offset`, or None if unknown."""
        segments, offset = self._segments, max(offset, self.log_start_offset)
        return times.batch_time(segments.all[segments.number_of(offset)], self.epochs, offset) if segments.all else None

    def last_stable_offset(self, high_watermark: int) -> int:
        """Return the last stable offset: all transactions below it are decided, and all records are committed.

        It changes only with the high watermark or the log start offset, and never decreases.
        """
        transactions = self._producers.states.transactions
        if not transactions.open and not transactions.waiting:  # fast path: called by each fetch of each partition
            return high_watermark
        unstable = transactions.first_unstable(high_watermark)
        if unstable is None or unstable >= high_watermark:
            return high_watermark
        return max(unstable, self.log_start_offset)  # the first records of a transaction may have been deleted

    @property
    def has_aborted(self) -> bool:
        """Whether the log has aborted transactions."""
        return len(self.producers.transactions.aborted) > 0

    def aborted_in(self, records: Buffer, start_offset: int) -> list[AbortedTransaction]:
        """Return the aborted transactions that affect a consumer of these batches from `start_offset` on.

        Compaction may have removed all batches of a transaction and its marker while a snapshot still contains it.
        Without the marker, clients would skip the producer's later records too, so such transactions are left out.
        """
        markers, end_offset = set(), 0
        for _, header in iter_batches(records):
            end_offset = header.next_offset
            if header.is_control:
                markers.add(header.base_offset)
        met = self.producers.transactions.aborted.between(start_offset, end_offset)
        return [each for each in met if each.marker_offset >= end_offset or each.marker_offset in markers]

    def epoch_end_offset(self, epoch: int) -> tuple[int, int]:
        """Return the largest epoch not above `epoch` and its end offset; (-1, -1) if unknown."""
        return self.epochs.end_offset(epoch, self.log_end_offset)

    def forget_unused_epochs(self) -> None:
        """Remove this node's leader epochs without batches; another leader will write these offsets."""
        invariant(not self.epochs.drop_from(self.log_end_offset), "a leader epoch without batches was written to disk")

    # -- deleting and compacting --------------------------------------------------------------------------------------

    def delete_records_before(self, offset: int) -> int:
        """Advance the log start offset to `offset` and return it. It is durable with the next sync.

        Raises:
            KafkaError: OFFSET_OUT_OF_RANGE.
        """
        if offset > self.log_end_offset:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        self.log_start_offset = max(self.log_start_offset, offset)
        number = self._segments.number_of(offset)
        if number:  # the producer state of the deleted segments must be kept
            self._producers.snapshot_from(self._segments.all[number].base_offset, self.log_end_offset)
        self._checkpoints.compacted_to(offset)
        self.producers.transactions.aborted.forget_before(self.log_start_offset)
        return self.log_start_offset

    def apply_retention(self, now_ms: int, up_to_offset: int | None = None) -> int:
        """Advance the log start offset past segments that retention deletes, and return their number.

        The next sync deletes the files. `up_to_offset` is the high watermark; segments above it are kept. Also removes
        expired producers.
        """
        self._producers.states.expire(now_ms, self.config.producer_id_expiration_ms)
        segments = self._segments
        if not segments.all or not self.config.deletes:
            return 0
        live = segments.all[segments.number_of(self.log_start_offset) :]
        limit = self.log_end_offset if up_to_offset is None else up_to_offset
        deletable = retention.deletable(live, self.config, self.epochs, now_ms, limit)
        if not deletable:
            return 0
        if deletable[-1] is segments.all[-1]:
            self.roll()
        self.delete_records_before(deletable[-1].end_offset)
        return len(deletable)

    def begin_compaction(self, now_ms: int, up_to_offset: int | None = None) -> Compaction | None:
        """Return a compaction to run and then complete, or None if too few bytes are dirty.

        `up_to_offset` is the high watermark. Only closed, synced segments below it and below all undecided transactions
        are compacted.
        """
        if not self.config.compacts or self._segments.swaps:
            return None
        high_watermark = self.synced_offset if up_to_offset is None else up_to_offset
        limit = min(self.last_stable_offset(high_watermark), self.synced_offset)
        return plan_compaction(
            self._files,
            self.folder,
            self.config,
            self.epochs,
            self._producers.states,
            [segment for segment in self._segments.all[:-1] if segment.end_offset <= limit],
            self._checkpoints.compacted_offset,
            self._checkpoints.compacted_stored,
            now_ms,
            self._truncations,
        )

    def complete_compaction(self, compaction: Compaction) -> bool:
        """Replace segments with their compacted versions for readers; the next syncs replace the files.

        Return False if the log was truncated or lost segments during the compaction. Segments that were not replaced
        stay as they are.
        """
        if compaction.truncations != self._truncations or not self._segments.exchange(compaction):
            compaction.discard()
            return False
        self._checkpoints.compacted_to(compaction.compacted_offset)
        if compaction.aborted_left is not None:
            aborted = self.producers.transactions.aborted
            aborted.replace_before(compaction.cleaned_end, compaction.aborted_left)
            aborted.forget_before(self.log_start_offset)
        return True

    # -- truncating ---------------------------------------------------------------------------------------------------

    def truncate_to(self, offset: int) -> int:
        """Truncate the log at the start of the batch that contains `offset`, and return the log end offset. Blocks."""
        if offset >= self.log_end_offset:
            return self.log_end_offset
        invariant(offset >= self.log_start_offset, "truncation below the log start offset")
        self._prepare_truncation(offset)
        number = self._segments.number_of(offset)
        segment = self._segments.all[number]
        position, end_offset = segment.batch_containing(offset, self.epochs)
        if end_offset < self.synced_offset:
            self._lower_recovery_point(end_offset)
            self.synced_offset = end_offset
        self._segments.drop_from(number + 1, self.config.file_delete_delay_ms)
        segment.truncate(position, end_offset, self.epochs, self.config.index_interval_bytes).fdatasync()
        self._files.sync_folder(self.folder)
        self.log_end_offset = end_offset
        self._truncate_checkpoints(end_offset)
        self._reload_producers()
        return end_offset

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Delete all segments and start an empty log at `offset`. Blocks on the disk."""
        self._prepare_truncation(0)
        if offset < self.synced_offset:
            self._lower_recovery_point(offset)
        self._segments.drop_from(0, self.config.file_delete_delay_ms)
        self._producers.forget()
        for directory in [self.folder, *self._files.make_folder(self.folder)]:
            self._files.sync_folder(directory)
        self._checkpoints.start.store(offset)
        self.log_start_offset = self.log_end_offset = self.synced_offset = offset
        self._truncate_checkpoints(0)

    def _prepare_truncation(self, offset: int) -> None:
        if self.missing_from is not None and offset <= self.missing_from:
            self.missing_from = None
        invariant(self._sync_task is None, "truncation during a sync")
        self._segments.swaps.settle(self.config.file_delete_delay_ms)
        self._truncations += 1

    def _truncate_checkpoints(self, offset: int) -> None:
        self._unsynced.forget(f"{self.folder}/{names.LEADER_EPOCHS}")
        self.epochs.drop_from(offset)
        self.epochs.rewrite()
        self._checkpoints.cut(self.log_start_offset, offset)

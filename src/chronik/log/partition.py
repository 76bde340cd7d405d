"""One partition on disk.

Everything here is done by one thread and waits for no sync: what is appended can be read at once and is durable when a
later ticket of `begin_sync` has run and `complete_sync` has taken it back. Deleting works the same way: it moves the
log's start, which the next sync stores, and files are removed when that is durable. Only truncation, which a follower
does before it may go on, waits for the disk.

After StorageFailed the file system takes no more writes, so no later sync can succeed: the node above must stop.
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
        """Gives the batches their offsets and the epoch, in place, and writes the buffer in one piece.

        `headers` are those of the batches in `buffer`, one after the other, validated. Raises KafkaError, and then
        nothing was written: OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_PRODUCER_EPOCH, FENCED_LEADER_EPOCH,
        INVALID_TXN_STATE, RECORD_LIST_TOO_LARGE; for markers TRANSACTION_COORDINATOR_FENCED. A retry of a batch that is
        already there is answered with the offsets it has.
        """
        if leader_epoch < self.epochs.latest_epoch:
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
        if len(buffer) > self.config.segment_bytes:
            raise KafkaError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"{len(buffer)} bytes do not fit a segment of {self.config.segment_bytes} (segment.bytes)",
            )
        if origin is AppendOrigin.CLIENT:
            sent = self._producers.states.check(headers)
            if sent is not None:
                return AppendInfo(
                    sent.base_offset, sent.last_offset, NO_TIMESTAMP, self.log_start_offset, duplicate=True
                )
        else:
            self._check_control(buffer, headers)
        base_offset = offset = self.log_end_offset
        position = 0
        for header in headers:
            set_base_offset_and_epoch(buffer, position, offset, leader_epoch)
            position += header.size
            offset += header.last_offset_delta + 1
        invariant(position == len(buffer), "headers and buffer of an append differ")
        self.epochs.assign(leader_epoch, base_offset)
        self._write(buffer, headers, offset)
        stamped = headers[-1].timestamp_type is TimestampType.LOG_APPEND_TIME
        append_time = headers[-1].max_timestamp if stamped else NO_TIMESTAMP
        return AppendInfo(base_offset, offset - 1, append_time, self.log_start_offset)

    def _check_control(self, buffer: Buffer, headers: Sequence[BatchHeader]) -> None:
        position = 0
        for header in headers:
            marker = marker_within(buffer, position) if header.is_control else None
            if marker is not None:
                self.producers.check_marker(header, marker)
            position += header.size

    def append_as_follower(self, buffer: Buffer) -> AppendInfo | None:
        """Writes batches as the leader sent them, if they are whole, undamaged and continue the log.

        Raises CorruptRecords, and then nothing was written. Returns None when there is no batch.
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
        """Does what a follower does, for a leader whose own epoch comes after all that wrote these batches.

        Raises CorruptRecords, and then nothing was written."""
        self.forget_unused_epochs()
        try:
            return self.append_as_follower(buffer)
        finally:
            self.epochs.assign(leader_epoch, self.log_end_offset)

    def roll(self) -> Segment:
        """Closes the active segment and starts a new one."""
        active = self._segments.all[-1]
        invariant(active.size > 0, "an empty segment is never closed")
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
        """Returns whole batches from the one that contains `offset` on, none of them reaching beyond `up_to_offset`.

        There are at most `max_bytes`, but with `min_one_batch` the first batch is returned however large it is. Raises
        OFFSET_OUT_OF_RANGE, or CorruptRecords when the batch with `offset` is damaged. Later damage only ends the read.
        """
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        if offset >= min(up_to_offset, self.log_end_offset):
            return memoryview(b"")
        segment = self._segments.all[self._segments.number_of(offset)]
        if not segment.base_offset <= offset < segment.end_offset:
            raise CorruptRecords(f"offset {offset} is missing in {self.folder}")
        up_to_offset = min(up_to_offset, segment.end_offset)
        return segment.read(offset, max_bytes, up_to_offset, self.epochs, min_one_batch=min_one_batch)

    def batch_for_timestamp(self, timestamp: int, start_offset: int) -> TimedBatch | None:
        """Returns where the first record is that is not older than `timestamp`, deleted or below `start_offset`."""
        start_offset = max(start_offset, self.log_start_offset)
        return times.batch_not_before(self._segments.all, self.epochs, timestamp, start_offset)

    def batch_with_max_timestamp(self, start_offset: int) -> TimedBatch | None:
        """Returns where the first record with the largest timestamp of all is."""
        return times.batch_with_max(self._segments.all, self.epochs, max(start_offset, self.log_start_offset))

    def time_at(self, offset: int) -> int | None:
        """Returns the time of the record at `offset`, roughly. None when that is not known."""
        segments, offset = self._segments, max(offset, self.log_start_offset)
        return times.batch_time(segments.all[segments.number_of(offset)], self.epochs, offset) if segments.all else None

    def last_stable_offset(self, high_watermark: int) -> int:
        """Returns the offset below which all transactions are decided for good, and all else is committed.

        It moves only when the high watermark or the log's start does, and never back."""
        transactions = self._producers.states.transactions
        if not transactions.open and not transactions.waiting:  # spelled out: every fetch of every partition asks
            return high_watermark
        unstable = transactions.first_unstable(high_watermark)
        if unstable is None or unstable >= high_watermark:
            return high_watermark
        return max(unstable, self.log_start_offset)  # of one that began before, the first records were deleted

    @property
    def has_aborted(self) -> bool:
        """Whether any transaction was aborted in it."""
        return len(self.producers.transactions.aborted) > 0

    def aborted_in(self, records: Buffer, start_offset: int) -> list[AbortedTransaction]:
        """Returns the aborted transactions that whoever reads these batches from `start_offset` on may meet.

        Compaction may have taken all of one, and with it the marker, while a snapshot still knows of it. Clients would
        leave out what its producer wrote later, for lack of the marker."""
        markers, end_offset = set(), 0
        for _, header in iter_batches(records):
            end_offset = header.next_offset
            if header.is_control:
                markers.add(header.base_offset)
        met = self.producers.transactions.aborted.between(start_offset, end_offset)
        return [each for each in met if each.marker_offset >= end_offset or each.marker_offset in markers]

    def epoch_end_offset(self, epoch: int) -> tuple[int, int]:
        """Returns the largest epoch not above `epoch`, and where it ends; (-1, -1) when unknown."""
        return self.epochs.end_offset(epoch, self.log_end_offset)

    def forget_unused_epochs(self) -> None:
        """Forgets epochs in which this node led and wrote nothing: another leader will fill their offsets."""
        invariant(not self.epochs.drop_from(self.log_end_offset), "an epoch without batches was stored")

    # -- deleting and compacting --------------------------------------------------------------------------------------

    def delete_records_before(self, offset: int) -> int:
        """Moves the log's start, durably with the next sync, and returns it. Raises OFFSET_OUT_OF_RANGE."""
        if offset > self.log_end_offset:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        self.log_start_offset = max(self.log_start_offset, offset)
        number = self._segments.number_of(offset)
        if number:  # what is known from the segments that go must be kept
            self._producers.snapshot_from(self._segments.all[number].base_offset, self.log_end_offset)
        self._marks.compacted_to(offset)
        self.producers.transactions.aborted.forget_before(self.log_start_offset)
        return self.log_start_offset

    def apply_retention(self, now_ms: int, up_to_offset: int | None = None) -> int:
        """Moves the log's start past segments that are too old or too many; returns how many. A sync removes them.

        `up_to_offset` is the high watermark: what is above it stays. Also forgets producers that have expired.
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
        """Returns a compaction to be run elsewhere, and then completed; None when there is not enough to do.

        `up_to_offset` is the high watermark: only what is below it, synced, in closed segments and of no transaction
        that is not decided is compacted.
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
            self._marks.compacted_offset,
            self._marks.compacted_stored,
            now_ms,
            self._truncations,
        )

    def complete_compaction(self, compaction: Compaction) -> bool:
        """Lets readers see the compacted segments; the next syncs exchange the files. Returns False when the log was
        truncated or lost segments meanwhile: then what was not exchanged stays as it is."""
        if compaction.truncations != self._truncations or not self._segments.exchange(compaction):
            compaction.discard()
            return False
        self._marks.compacted_to(compaction.compacted_offset)
        if compaction.aborted_left is not None:
            aborted = self.producers.transactions.aborted
            aborted.replace_before(compaction.cleaned_end, compaction.aborted_left)
            aborted.forget_before(self.log_start_offset)
        return True

    # -- truncating ---------------------------------------------------------------------------------------------------

    def truncate_to(self, offset: int) -> int:
        """Cuts off everything from the batch on that contains `offset`; returns the log's end. Waits for the disk."""
        if offset >= self.log_end_offset:
            return self.log_end_offset
        invariant(offset >= self.log_start_offset, "truncation below the log's start")
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
        self._truncate_beside_the_segments(end_offset)
        self._reload_producers()
        return end_offset

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Drops everything; the next batch gets `offset`. Waits for the disk."""
        self._prepare_truncation(0)
        if offset < self.synced_offset:
            self._lower_recovery_point(offset)
        self._segments.drop_from(0, self.config.file_delete_delay_ms)
        self._producers.forget()
        for folder in [self.folder, *self._files.make_folder(self.folder)]:
            self._files.sync_folder(folder)
        self._marks.start.store(offset)
        self.log_start_offset = self.log_end_offset = self.synced_offset = offset
        self._truncate_beside_the_segments(0)

    def _prepare_truncation(self, offset: int) -> None:
        if self.missing_from is not None and offset <= self.missing_from:
            self.missing_from = None
        invariant(self._ticket is None, "truncation while a sync is under way")
        self._segments.swaps.settle(self.config.file_delete_delay_ms)
        self._truncations += 1

    def _truncate_beside_the_segments(self, offset: int) -> None:
        self._unsynced.forget(f"{self.folder}/{names.LEADER_EPOCHS}")
        self.epochs.drop_from(offset)
        self.epochs.rewrite()
        self._marks.cut(self.log_start_offset, offset)

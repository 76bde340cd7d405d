"""One partition on disk.

Everything here is done by one thread and waits for no sync: what is appended can be read at once and is durable when a
ticket of `begin_sync` that was given out later has run and `complete_sync` has taken it back. Deleting works the same
way: it moves the log's start, which the next sync stores, and files go when that is durable. Only truncation, which a
follower does before it may go on, waits for the disk.

After StorageFailed the file system takes no more writes, so no later sync can succeed: the node above must stop.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum

from chronik.clock import Clock
from chronik.errors import invariant
from chronik.files import Buffer, FileCache, FileSystem
from chronik.log import names, retention, times
from chronik.log.compaction import Compaction, plan_compaction
from chronik.log.config import LogConfig
from chronik.log.index import ENTRY_BYTES
from chronik.log.offset_file import load_offset, store_offset
from chronik.log.producers import ProducerStates, SentBatch
from chronik.log.recovery import Recovered, recover
from chronik.log.segment import Segment
from chronik.log.snapshots import ProducerSnapshots, load_producers
from chronik.log.swaps import Swaps
from chronik.log.sync import SyncTicket, Unsynced
from chronik.log.times import TimedOffset
from chronik.protocol.batch import (
    NO_TIMESTAMP,
    BatchHeader,
    TimestampType,
    iter_batches,
    set_base_offset_and_epoch,
    verify_crc,
)
from chronik.protocol.errors import CorruptRecords, ErrorCode, KafkaError
from chronik.protocol.varint import INT32_MAX

# How much log lies at most between two snapshots of the producers: what an unclean start has to read again for them.
SNAPSHOT_INTERVAL_BYTES = 64 << 20

WritableBuffer = bytearray | memoryview


class AppendOrigin(IntEnum):
    CLIENT = 0
    COORDINATOR = 1
    """This node itself: control batches, which are in no producer's sequence."""


@dataclass(frozen=True, slots=True)
class AppendInfo:
    base_offset: int
    last_offset: int
    log_append_time_ms: int
    """-1 unless the topic stamps records with it."""
    log_start_offset: int
    duplicate: bool = False
    """A retry: the batch was there already, and the offsets are the ones it got then."""


def _cannot_lower(offset: int) -> None:
    raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "truncation below the synced offset needs lower_recovery_point")


class PartitionLog:
    __slots__ = (
        "_bytes_since_snapshot",
        "_cache",
        "_clock",
        "_compacted_offset",
        "_files",
        "_lower_recovery_point",
        "_producers",
        "_segments",
        "_snapshots",
        "_stored",
        "_swaps",
        "_ticket",
        "_truncations",
        "_unsynced",
        "config",
        "epochs",
        "folder",
        "log_end_offset",
        "log_start_offset",
        "synced_offset",
    )

    def __init__(
        self,
        files: FileSystem,
        cache: FileCache,
        folder: str,
        config: LogConfig,
        clock: Clock,
        lower_recovery_point: Callable[[int], None],
        recovered: Recovered,
    ) -> None:
        """Use `open`."""
        self.folder = folder
        self.config = config
        self.epochs = recovered.epochs
        self.log_start_offset = recovered.log_start_offset
        self.log_end_offset = recovered.log_end_offset
        self.synced_offset = recovered.log_end_offset
        self._files = files
        self._cache = cache
        self._clock = clock
        self._lower_recovery_point = lower_recovery_point
        self._segments = recovered.segments
        # The offsets that stand in files beside the segments, by the files' names.
        self._stored: dict[str, int] = {}
        if recovered.stored_log_start is not None:
            self._stored[names.LOG_START] = recovered.stored_log_start
        self._compacted_offset = recovered.log_start_offset
        self._producers = ProducerStates()
        self._snapshots = ProducerSnapshots(cache, folder, recovered.names)
        self._bytes_since_snapshot = 0
        self._unsynced = Unsynced(cache, clock)
        self._swaps = Swaps(cache, folder, self._unsynced)
        self._ticket: SyncTicket | None = None
        self._truncations = 0

    @classmethod
    def open(
        cls,
        files: FileSystem,
        cache: FileCache,
        folder: str,
        config: LogConfig,
        clock: Clock,
        recovery_point: int = 0,
        *,
        lower_recovery_point: Callable[[int], None] = _cannot_lower,
    ) -> PartitionLog:
        """Brings the folder into order; a folder that is not there is an empty log and costs nothing.

        `recovery_point` is the synced offset that was last recorded (see `SyncedOffsets`). `lower_recovery_point` must
        have recorded a lower one durably when it returns.
        """
        recovered = recover(files, cache, folder, recovery_point, config.index_interval_bytes)
        log = cls(files, cache, folder, config, clock, lower_recovery_point, recovered)
        if recovered.names:
            log._load_what_is_beside_the_segments()
        return log

    def _load_what_is_beside_the_segments(self) -> None:
        compacted_offset = load_offset(self._files, self._path(names.COMPACTED))
        if compacted_offset is not None:
            self._stored[names.COMPACTED] = compacted_offset
            self._compacted_offset = max(self.log_start_offset, min(compacted_offset, self.log_end_offset))
        self._reload_producers()

    def reconfigure(self, config: LogConfig) -> None:
        """Holds for what is written, deleted and compacted from now on."""
        self.config = config

    @property
    def size(self) -> int:
        return sum(segment.size for segment in self._segments)

    @property
    def segment_count(self) -> int:
        return len(self._segments)

    @property
    def producers(self) -> ProducerStates:
        return self._producers

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
        RECORD_LIST_TOO_LARGE. A retry of a batch that is already there is answered with the offsets it has.
        """
        if leader_epoch < self.epochs.latest_epoch:
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
        if len(buffer) > self.config.segment_bytes:
            raise KafkaError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"{len(buffer)} bytes do not fit a segment of {self.config.segment_bytes} (segment.bytes)",
            )
        if origin is AppendOrigin.CLIENT:
            duplicate = self._producers.check(headers)
            if duplicate is not None:
                return self._duplicate_info(duplicate)
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

    def append_as_follower(self, buffer: Buffer) -> AppendInfo | None:
        """Writes batches as the leader sent them, if they are whole, undamaged and continue the log.

        Raises CorruptRecords, and then nothing was written.
        """
        headers, offset, epoch = [], self.log_end_offset, self.epochs.latest_epoch
        epochs: list[tuple[int, int]] = []
        for position, header in iter_batches(buffer):
            if header.base_offset != offset or header.last_offset_delta < 0:
                raise CorruptRecords(f"the leader sent offset {header.base_offset} where {offset} is due")
            if header.partition_leader_epoch < epoch or not verify_crc(buffer, position, header.size):
                raise CorruptRecords(f"the leader sent a damaged batch at offset {offset}")
            if header.partition_leader_epoch > epoch:
                epoch = header.partition_leader_epoch
                epochs.append((epoch, offset))
            headers.append(header)
            offset = header.next_offset
        if not headers:
            return None
        for epoch, start in epochs:
            self.epochs.assign(epoch, start)
        base_offset = self.log_end_offset
        self._write(buffer, headers, offset)
        return AppendInfo(base_offset, offset - 1, NO_TIMESTAMP, self.log_start_offset)

    def _write(self, buffer: Buffer, headers: Sequence[BatchHeader], end_offset: int) -> None:
        segment = self._segment_to_append(len(buffer), headers, end_offset)
        epochs_file = self.epochs.store()
        if epochs_file is not None:
            self._unsynced.add_file(epochs_file)
            self._unsynced.add_folder(self.folder)
        self._unsynced.add_file(segment.append(buffer, headers, self.config.index_interval_bytes))
        offset = self.log_end_offset
        for header in headers:
            if header.producer_id >= 0:
                self._producers.update(header, offset, self._clock.now_ms())
            offset += header.last_offset_delta + 1
        self.log_end_offset = end_offset
        self._bytes_since_snapshot += len(buffer)
        if self._bytes_since_snapshot >= SNAPSHOT_INTERVAL_BYTES:
            self._snapshot_producers()

    def _segment_to_append(self, size: int, headers: Sequence[BatchHeader], end_offset: int) -> Segment:
        if not self._segments:
            for parent in self._files.make_folder(self.folder):
                self._unsynced.add_folder(parent)
            return self._new_segment()
        active = self._segments[-1]
        if not active.size:
            self._unsynced.add_folder(self.folder)
            return active
        config = self.config
        if (
            active.size + size > config.segment_bytes
            or end_offset - active.base_offset > INT32_MAX
            or self._is_old(active, headers)
            or len(active.index) * ENTRY_BYTES >= config.segment_index_bytes
        ):
            return self.roll()
        return active

    def _is_old(self, active: Segment, headers: Sequence[BatchHeader]) -> bool:
        """As in Kafka, age is measured by the records' own time."""
        if active.first_timestamp < 0:
            return False
        age_ms = max(header.max_timestamp for header in headers) - active.first_timestamp
        config = self.config
        return age_ms > config.segment_ms or (config.compacts and age_ms > config.max_compaction_lag_ms)

    def roll(self) -> Segment:
        """Closes the active segment and starts a new one, whose file is made by the next append."""
        active = self._segments[-1]
        invariant(active.size > 0, "an empty segment is never closed")
        active.seal()
        self._snapshot_producers()
        return self._new_segment()

    def _new_segment(self) -> Segment:
        segment = Segment(self._cache, self.folder, self.log_end_offset)
        self._segments.append(segment)
        self._unsynced.add_folder(self.folder)
        return segment

    def _duplicate_info(self, batch: SentBatch) -> AppendInfo:
        return AppendInfo(batch.base_offset, batch.last_offset, NO_TIMESTAMP, self.log_start_offset, duplicate=True)

    # -- reading ------------------------------------------------------------------------------------------------------

    def read(
        self, offset: int, max_bytes: int, up_to_offset: int, *, min_one_batch: bool = True
    ) -> memoryview:
        """Whole batches from the one that contains `offset` on, none of them reaching beyond `up_to_offset`.

        At most `max_bytes`, but with `min_one_batch` the first batch is returned however large it is. Raises
        OFFSET_OUT_OF_RANGE; CorruptRecords when the batch that is asked for is damaged. Damage behind it ends the read
        before it.
        """
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        up_to_offset = min(up_to_offset, self.log_end_offset)
        if offset >= up_to_offset:
            return memoryview(b"")
        number = self._number_of(offset)
        segment = self._segments[number]
        if offset >= segment.end_offset or offset < segment.base_offset:
            raise CorruptRecords(f"offset {offset} is missing in {self.folder}")
        return segment.read(
            offset, max_bytes, min(up_to_offset, segment.end_offset), self.epochs, min_one_batch=min_one_batch
        )

    def offset_for_timestamp(self, timestamp: int) -> TimedOffset | None:
        """The first record that is not older than `timestamp`."""
        return times.first_not_before(self._segments, self.epochs, timestamp, self.log_start_offset)

    def max_timestamp_offset(self) -> TimedOffset | None:
        """The first record that has the largest timestamp of all."""
        return times.first_with_max(self._segments, self.epochs, self.log_start_offset)

    def epoch_end_offset(self, epoch: int) -> tuple[int, int]:
        """The largest epoch not above `epoch`, and where it ends; (-1, -1) when unknown."""
        return self.epochs.end_offset(epoch, self.log_end_offset)

    def assign_epoch(self, epoch: int, start_offset: int) -> None:
        """From `start_offset` on, which is the log's end, batches carry `epoch`. Stored with the first of them."""
        self.epochs.assign(epoch, start_offset)

    def _number_of(self, offset: int) -> int:
        """Of the segment that contains `offset`, if any does."""
        return max(0, bisect_right(self._segments, offset, key=_base_offset) - 1)

    # -- syncing ------------------------------------------------------------------------------------------------------

    @property
    def needs_sync(self) -> bool:
        return bool(self._unsynced or self._swaps or self._offsets_to_store())

    def _offsets_to_store(self) -> dict[str, int]:
        offsets: dict[str, int] = {}
        if self._segments and self.log_start_offset > max(
            self._stored.get(names.LOG_START, 0), self._segments[0].base_offset
        ):
            offsets[names.LOG_START] = self.log_start_offset
        stored_compacted = max(self._stored.get(names.COMPACTED, 0), self.log_start_offset)
        if self._compacted_offset > stored_compacted and not self._swaps:
            offsets[names.COMPACTED] = self._compacted_offset
        return offsets

    def begin_sync(self) -> SyncTicket | None:
        """What to sync now; None when everything is. One ticket at a time."""
        if not self.needs_sync:
            return None
        invariant(self._ticket is None, "a sync of this log is still under way")
        self._ticket = self._unsynced.begin(self.log_end_offset)
        self._swaps.sync_begins()
        self._ticket.offsets = {self._path(name): offset for name, offset in self._offsets_to_store().items()}
        return self._ticket

    def complete_sync(self, ticket: SyncTicket) -> None:
        """The ticket has run: what it covers is on disk."""
        invariant(self._ticket is ticket, "a sync is completed that was not begun")
        self._ticket = None
        self._unsynced.complete(ticket)
        self.synced_offset = max(self.synced_offset, ticket.end_offset)
        for path, offset in ticket.offsets.items():
            self._stored[path.rpartition("/")[2]] = offset
        self._swaps.advance(self.config.file_delete_delay_ms)
        self._drop_segments_before_start()

    def sync(self) -> None:
        """All at once, waiting for the disk."""
        ticket = self.begin_sync()
        if ticket is not None:
            ticket.run()
            self.complete_sync(ticket)

    def close(self) -> None:
        """Syncs, and leaves behind what makes the next start quick."""
        if self._segments:
            self._segments[-1].index.flush()
            if self._bytes_since_snapshot:
                self._snapshot_producers()
        while self.needs_sync:
            self.sync()
        for segment in self._segments:
            self._cache.forget(segment.log_path)
            self._cache.forget(segment.index.path)

    # -- deleting -----------------------------------------------------------------------------------------------------

    def delete_records_before(self, offset: int) -> int:
        """Moves the log's start, durably with the next sync; returns it. Raises OFFSET_OUT_OF_RANGE."""
        if offset > self.log_end_offset:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        self.log_start_offset = max(self.log_start_offset, offset)
        self._compacted_offset = max(self._compacted_offset, offset)
        return self.log_start_offset

    def apply_retention(self, now_ms: int, up_to_offset: int | None = None) -> int:
        """Moves the log's start over segments that are too old or too many; returns how many. They go with a sync.

        `up_to_offset` is the high watermark: what is above it stays. Also forgets producers that have expired.
        """
        self._producers.expire(now_ms, self.config.producer_id_expiration_ms)
        if not self._segments or not self.config.deletes:
            return 0
        live = self._segments[self._number_of(self.log_start_offset) :]
        limit = self.log_end_offset if up_to_offset is None else up_to_offset
        deletable = retention.deletable(live, self.config, self.epochs, now_ms, limit)
        if not deletable:
            return 0
        if deletable[-1] is self._segments[-1]:
            self.roll()
        self.delete_records_before(deletable[-1].end_offset)
        return len(deletable)

    def _drop_segments_before_start(self) -> None:
        start = self._stored.get(names.LOG_START, 0)
        number = 0
        while number < len(self._segments) - 1 and self._segments[number].end_offset <= start:
            number += 1
        if number and self._swaps:
            self._swaps.settle(self.config.file_delete_delay_ms)
        for segment in self._segments[:number]:
            self._doom(segment)
        del self._segments[:number]

    def _doom(self, segment: Segment) -> None:
        self._unsynced.doom(self.folder, segment.log_path, self.config.file_delete_delay_ms)
        self._unsynced.doom(self.folder, segment.index.path, self.config.file_delete_delay_ms)

    # -- compacting ---------------------------------------------------------------------------------------------------

    def begin_compaction(self, now_ms: int, up_to_offset: int | None = None) -> Compaction | None:
        """A compaction to be run elsewhere, and then completed; None when there is not enough to do.

        `up_to_offset` is the high watermark: only what is below it, synced and in closed segments is compacted.
        """
        if not self.config.compacts or self._swaps:
            return None
        limit = self.synced_offset if up_to_offset is None else min(up_to_offset, self.synced_offset)
        closed = [segment for segment in self._segments[:-1] if segment.end_offset <= limit]
        return plan_compaction(
            self._files,
            self.folder,
            self.config,
            self.epochs,
            self._producers,
            closed,
            self._compacted_offset,
            now_ms,
            self._truncations,
        )

    def complete_compaction(self, compaction: Compaction) -> bool:
        """Readers see the compacted segments from now on; the next syncs exchange the files. False when the log was
        truncated or lost segments meanwhile: then everything stays as it is."""
        if compaction.truncations != self._truncations:
            compaction.discard()
            return False
        for cleaned in compaction.results:
            first = self._number_of(cleaned.segment.base_offset)
            last = first + len(cleaned.sources)
            if self._segments[first:last] != cleaned.sources:
                compaction.discard()
                return False
            self._swaps.begin(cleaned.segment, cleaned.sources)
            self._segments[first:last] = [cleaned.segment]
        self._compacted_offset = max(self._compacted_offset, compaction.compacted_offset)
        return True

    # -- truncating ---------------------------------------------------------------------------------------------------

    def truncate_to(self, offset: int) -> int:
        """Cuts off everything from the batch on that contains `offset`; returns the log's end. Waits for the disk."""
        if offset >= self.log_end_offset:
            return self.log_end_offset
        invariant(offset >= self.log_start_offset, "truncation below the log's start")
        invariant(self._ticket is None, "truncation while a sync is under way")
        self._swaps.settle(self.config.file_delete_delay_ms)
        number = self._number_of(offset)
        segment = self._segments[number]
        position, end = self._boundary(segment, offset)
        self._truncations += 1
        if end < self.synced_offset:
            self._lower_recovery_point(end)
            self.synced_offset = end
        for later in self._segments[number + 1 :]:
            self._doom(later)
        del self._segments[number + 1 :]
        self.log_end_offset = end
        segment.truncate(position, end, self.epochs, self.config.index_interval_bytes).fdatasync()
        self._files.sync_folder(self.folder)
        self._truncate_epochs(end)
        self._uncompact(end)
        self._remove_snapshots(self._snapshots.above(end))
        self._reload_producers()
        return end

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Drops everything; the next batch gets `offset`. Waits for the disk."""
        invariant(self._ticket is None, "truncation while a sync is under way")
        self._swaps.settle(self.config.file_delete_delay_ms)
        self._truncations += 1
        if offset < self.synced_offset:
            self._lower_recovery_point(offset)
        for segment in self._segments:
            self._doom(segment)
        self._segments = []
        self._remove_snapshots(self._snapshots.above(-1))
        for folder in [self.folder, *self._files.make_folder(self.folder)]:
            self._files.sync_folder(folder)
        self._truncate_epochs(0)
        self._store(names.LOG_START, offset)
        self.log_start_offset = self.log_end_offset = self.synced_offset = offset
        self._uncompact(offset)
        self._producers = ProducerStates()

    def _truncate_epochs(self, offset: int) -> None:
        self._unsynced.forget(self._path(names.LEADER_EPOCHS))
        self.epochs.drop_from(offset)
        self.epochs.rewrite()

    def _uncompact(self, offset: int) -> None:
        self._compacted_offset = min(self._compacted_offset, offset)
        if self._stored.get(names.COMPACTED, 0) > offset:
            self._store(names.COMPACTED, offset)

    def _store(self, name: str, offset: int) -> None:
        store_offset(self._files, self._path(name), offset)
        self._stored[name] = offset

    def _boundary(self, segment: Segment, offset: int) -> tuple[int, int]:
        """(position, base offset) of the batch that contains `offset`."""
        for piece in segment.walk_from(offset, self.epochs):
            if piece.next_offset > offset:
                return piece.position, piece.base_offset
        return segment.size, segment.end_offset

    # -- producers ----------------------------------------------------------------------------------------------------

    def _snapshot_producers(self) -> None:
        self._unsynced.add_file(self._snapshots.write(self._producers, self.log_end_offset))
        self._unsynced.add_folder(self.folder)
        self._bytes_since_snapshot = 0
        self._remove_snapshots(self._snapshots.stale())

    def _remove_snapshots(self, paths: list[str]) -> None:
        for path in paths:
            self._unsynced.forget(path)
            self._files.remove(path)

    def _reload_producers(self) -> None:
        self._remove_snapshots(self._snapshots.above(self.log_end_offset))
        self._producers = load_producers(self._snapshots, self._segments, self.epochs, self._clock.now_ms())

    def _path(self, name: str) -> str:
        return f"{self.folder}/{name}"


def _base_offset(segment: Segment) -> int:
    return segment.base_offset

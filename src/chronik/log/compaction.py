"""Log compaction, which keeps only the latest record of each key.

The thread that owns the log plans a `Compaction`. After that the compaction does not use the log: it reads closed
segments through its own files and writes new ones, so `steps` can run in slices on an event loop (one batch per step)
and `run` can run in a thread. The owner then replaces the segments (`PartitionLog.complete_compaction`).

Only segments below the last stable offset are compacted. Records of aborted transactions are removed. A transaction
marker is removed when a compaction has found no batch of its transaction and `delete.retention.ms` has passed since.

Where all batches of an offset range are removed, an empty batch covers the range, as in Kafka. Batches of a segment
therefore have contiguous offsets, and a damaged base offset is detected in compacted logs too.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterator, Sequence

import msgspec

from chronik.files import FileCache, FileSystem
from chronik.log.config import LONG_MAX, LogConfig
from chronik.log.files import names
from chronik.log.files.index import SegmentIndex
from chronik.log.leader_epochs import LeaderEpochHistory
from chronik.log.partition_transactions import AbortedTransaction, AbortedTransactions
from chronik.log.producer_state import ProducerStateManager
from chronik.log.segment import NO_TIMESTAMP, LogSegment, ScannedBatch
from chronik.protocol.batch import (
    MAGIC,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    BatchHeader,
    build_batch,
    parse_header,
)
from chronik.protocol.batch_rewrite import filter_batch, set_delete_horizon
from chronik.protocol.budget import DecompressionBudget
from chronik.protocol.control_records import parse_transaction_marker_batch
from chronik.protocol.record_scan import NO_KEY, decompress_within_budget, scan_records
from chronik.protocol.varint import INT32_MAX

# Compacted batches are buffered and written in chunks of this size.
WRITE_BYTES = 1 << 20

# Longer keys are stored as a 128-bit digest. Kafka does this with all keys.
KEY_BYTES_MAX = 16
# Memory per key of the offset map: the bytes object, its dict entry, and the offset.
BYTES_PER_KEY = 200
# Files that a compaction keeps open: the segment it reads, the segment it writes, and their indexes.
OPEN_FILES_MAX = 4


class SegmentReplacement(msgspec.Struct):
    """A compacted segment and the source segments that it replaces."""

    sources: list[LogSegment]
    segment: LogSegment


class CleanedSegmentWriter:
    """A writer of a compacted log segment.

    The file has the suffix `.cleaned` until it is complete; recovery deletes such files.
    """

    def __init__(
        self, cache: FileCache, directory: str, base_offset: int, epochs: LeaderEpochHistory, config: LogConfig
    ) -> None:
        log_name = names.format_offset_file_name(base_offset, names.LOG)
        self._cache = cache
        self._epochs = epochs
        self._interval = config.index_interval_bytes
        self._segment = LogSegment(cache, directory, base_offset, log_name=log_name + names.CLEANED)
        self._segment.index = SegmentIndex(cache, self._segment.index.path + names.CLEANED, base_offset, is_new=True)
        self._buffer = bytearray()
        self._headers: list[BatchHeader] = []
        self._next_offset = base_offset
        self._remove_files()

    def add(self, piece: ScannedBatch, kept: memoryview | bytes | None) -> None:
        """Append the retained part of a batch. Empty batches fill the gaps between offsets."""
        if kept is None:
            return
        if piece.base_offset > self._next_offset:
            self._fill_gap(piece.base_offset)
        self._append_batch(kept)

    def finish(self, end_offset: int) -> LogSegment:
        """Write the buffered batches and return the compacted segment. Its contents are durable, its file name is not
        yet.
        """
        if end_offset > self._next_offset:
            self._fill_gap(end_offset)
        self._flush()
        self._segment.seal()
        self._segment.file.fdatasync()
        self._close_files()
        return self._segment

    def discard(self) -> None:
        self._close_files()
        self._remove_files()

    def _fill_gap(self, end_offset: int) -> None:
        """Append empty batches for the offsets up to `end_offset`, one per leader epoch, to fill a gap.

        A follower's log may end at any batch, and its leader must know the epoch of that batch.
        """
        while self._next_offset < end_offset:
            epoch, epoch_end = self._epochs.find_epoch_at(self._next_offset)
            self._append_batch(
                build_batch(_build_empty_header(self._next_offset, min(end_offset, epoch_end), epoch), b"")
            )

    def _append_batch(self, batch: memoryview | bytes) -> None:
        header = parse_header(batch)
        self._buffer += batch
        self._headers.append(header)
        self._next_offset = header.next_offset
        if len(self._buffer) >= WRITE_BYTES:
            self._flush()

    def _flush(self) -> None:
        if self._headers:
            self._segment.append(self._buffer, self._headers, self._interval)
            self._buffer, self._headers = bytearray(), []

    def _close_files(self) -> None:
        self._cache.close_file(self._segment.log_path)
        self._cache.close_file(self._segment.index.path)

    def _remove_files(self) -> None:
        self._cache.files.remove(self._segment.log_path)
        self._cache.files.remove(self._segment.index.path)


def _build_empty_header(base_offset: int, end_offset: int, epoch: int) -> BatchHeader:
    return BatchHeader(
        base_offset=base_offset,
        batch_length=0,
        partition_leader_epoch=epoch,
        magic=MAGIC,
        crc=0,
        attributes=0,
        last_offset_delta=end_offset - base_offset - 1,
        base_timestamp=NO_TIMESTAMP,
        max_timestamp=NO_TIMESTAMP,
        producer_id=NO_PRODUCER_ID,
        producer_epoch=NO_PRODUCER_EPOCH,
        base_sequence=NO_SEQUENCE,
        record_count=0,
    )


class _TrackedAbortedTransaction:
    """An aborted transaction, and whether any of its batches is still in the log."""

    __slots__ = ("has_batches", "transaction")

    def __init__(self, transaction: AbortedTransaction) -> None:
        self.transaction = transaction
        self.has_batches = False


class CleanedTransactions:
    """The transactions in the segments that are being compacted (Kafka's `CleanedTransactionMetadata`).

    They determine which batches were aborted, and which transaction markers can be removed.

    The compaction passes all transactional batches from `start_offset` on, in order. They are below the last stable
    offset, so a transaction that is not aborted is committed.
    """

    __slots__ = ("_by_producer", "_known_to", "_left", "_near", "_rest", "_written")

    def __init__(self, aborted: AbortedTransactions, start_offset: int) -> None:
        self._rest: Iterator[AbortedTransaction] = aborted.iter_from_marker(start_offset)
        self._known_to = 0
        """Offset below which the first batches of all aborted transactions are known, that is, have been read into
        `_near`."""
        self._near: deque[_TrackedAbortedTransaction] = deque()
        self._by_producer: dict[int, deque[_TrackedAbortedTransaction]] = {}
        self._left = AbortedTransactions()
        self._written: set[int] = set()
        """Ids of the producers that have written a batch since their last transaction marker."""

    def is_aborted(self, header: BatchHeader) -> bool:
        """Return whether the batch belongs to an aborted transaction."""
        self._written.add(header.producer_id)
        self._advance_to_offset(header.base_offset)
        near = self._by_producer.get(header.producer_id)
        if near is None or near[0].transaction.first_offset > header.base_offset:
            return False
        near[0].has_batches = True
        return True

    def is_marker_removable(self, marker: BatchHeader) -> bool:
        """Return whether a transaction marker can be removed, because no batches of its transaction are left."""
        if marker.producer_id not in self._written:
            return True
        self._written.discard(marker.producer_id)
        return False

    def remaining_aborted(self, end_offset: int) -> AbortedTransactions:
        """Return the aborted transactions that ended before `end_offset` and still have batches in the log."""
        self._advance_to_offset(end_offset)
        return self._left

    def _advance_to_offset(self, offset: int) -> None:
        while self._known_to <= offset:
            transaction = next(self._rest, None)
            if transaction is None:
                self._known_to = LONG_MAX
                break
            self._known_to = transaction.last_stable_offset
            found = _TrackedAbortedTransaction(transaction)
            self._near.append(found)
            self._by_producer.setdefault(transaction.producer_id, deque()).append(found)
        while self._near and self._near[0].transaction.marker_offset < offset:
            self._finish_transaction(self._near.popleft())

    def _finish_transaction(self, found: _TrackedAbortedTransaction) -> None:
        """Stop tracking an aborted transaction at its marker, and remember it if it still has batches in the log."""
        producer_id = found.transaction.producer_id
        transactions = self._by_producer[producer_id]
        transactions.popleft()
        if not transactions:
            del self._by_producer[producer_id]
        if found.has_batches:
            self._left.add(found.transaction)


class Compaction(msgspec.Struct, eq=False):
    """A planned or completed compaction of the closed segments of a partition's log."""

    files: FileSystem
    directory: str
    config: LogConfig
    epochs: LeaderEpochHistory
    last_producer_offsets: dict[int, int]
    """The offset of the last record of each producer.

    Compaction retains this batch, if necessary without records, to preserve the producer's sequence.
    """
    producer_epochs_without_batches: dict[int, int]
    """The current epoch of each producer that has not written a batch in that epoch.

    Compaction retains the marker that started the epoch.
    """
    aborted: AbortedTransactions
    removable_markers_end: int
    """The offset below which transaction markers may be removed.

    The log is durably compacted below it, so recovery never uses an older producer snapshot in which the transaction of
    a removed marker is still open.
    """
    clean_segments: list[LogSegment]
    dirty_segments: list[LogSegment]
    now_ms: int
    truncations: int
    compacted_offset: int
    """Offset below which the log counts as compacted, once the compacted segments have replaced the old ones."""
    _cache: FileCache
    _leftovers: CleanedTransactions
    _tombstones_end: int
    """The offset below which tombstones may be removed.

    A durable compaction has removed the records that they delete. Above it, a power failure could restore deleted
    records whose tombstone is lost.
    """
    results: list[SegmentReplacement] = msgspec.field(default_factory=list)
    cleaned_end_offset: int = 0
    remaining_aborted: AbortedTransactions | None = None
    """Aborted transactions below `cleaned_end_offset` whose batches are still in the log; None after skipping damage.
    """
    _offset_map: dict[bytes, int] = msgspec.field(default_factory=dict)
    _is_damaged: bool = False

    def discard(self) -> None:
        """Delete the compacted segments that have not replaced any segments yet."""
        for cleaned in self.results:
            for path in (cleaned.segment.log_path, cleaned.segment.index.path):
                if path.endswith(names.CLEANED):
                    self.files.remove(path)

    def run(self) -> None:
        """Compact all segments in one call."""
        for _ in self.steps():
            pass

    def steps(self) -> Iterator[None]:
        """Compact the segments, yielding after each batch.

        Raises:
            StorageError: A write failed.
            FileNotFoundError: A source segment was deleted during the compaction.
        """
        try:
            sources = list(self.clean_segments)
            for segment in self.dirty_segments:
                sources.append(segment)
                yield from self._add_segment_keys(segment)
                if self._is_offset_map_full:
                    break
            self._leftovers = CleanedTransactions(self.aborted, sources[0].base_offset)
            for group in self._group_segments(sources):
                yield from self._clean_group(group)
            self.cleaned_end_offset = sources[-1].end_offset
            if not self._is_damaged:
                self.remaining_aborted = self._leftovers.remaining_aborted(self.cleaned_end_offset)
        finally:
            self._cache.close()

    # -- offset map ---------------------------------------------------------------------------------------------------

    @property
    def _offset_map_keys_max(self) -> int:
        return self.config.compaction_keys_bytes_max // BYTES_PER_KEY + 1

    @property
    def _is_offset_map_full(self) -> bool:
        return len(self._offset_map) >= self._offset_map_keys_max

    def _add_segment_keys(self, segment: LogSegment) -> Iterator[None]:
        """Add a segment's record keys to the offset map until the map is full.

        Records after that point are retained.
        """
        for piece in self._scan(segment):
            if piece.next_offset <= self.compacted_offset:
                continue
            if piece.batch is not None and not piece.header.is_control and not self._is_aborted(piece.header):
                self._add_batch_keys(piece.batch)
            if self._is_offset_map_full:
                return
            self.compacted_offset = piece.next_offset
            yield

    def _add_batch_keys(self, batch: memoryview) -> None:
        """Add a batch's record keys to the offset map until the map is full."""
        header, body = decompress_within_budget(batch, 0, DecompressionBudget.for_stored_batch(len(batch)))
        view, last_offsets, keys_max = memoryview(body), self._offset_map, self._offset_map_keys_max
        for offset, _, key_start, key_length, _, _, _ in scan_records(header, body):
            if key_length != NO_KEY and offset >= self.compacted_offset:
                last_offsets[_hash_key(view[key_start : key_start + key_length])] = offset
                if len(last_offsets) >= keys_max:
                    self.compacted_offset = offset + 1
                    return

    def _is_aborted(self, header: BatchHeader) -> bool:
        return header.is_transactional and self._leftovers.is_aborted(header)

    def _is_latest_record(self, offset: int, key: memoryview | None) -> bool:
        return key is not None and offset >= self._offset_map.get(_hash_key(key), -1)

    # -- cleaning -----------------------------------------------------------------------------------------------------

    def _group_segments(self, segments: Sequence[LogSegment]) -> Iterator[list[LogSegment]]:
        """Group adjacent segments that fit into one compacted segment, and yield the groups."""
        group: list[LogSegment] = []
        for segment in segments:
            size = sum(member.size for member in group)
            if group and (
                size + segment.size > self.config.segment_bytes
                or segment.end_offset - group[0].base_offset > INT32_MAX
                or segment.base_offset != group[-1].end_offset
            ):
                yield group
                group = []
            group.append(segment)
        if group:
            yield group

    def _clean_group(self, group: list[LogSegment]) -> Iterator[None]:
        output = CleanedSegmentWriter(self._cache, self.directory, group[0].base_offset, self.epochs, self.config)
        changed = len(group) > 1
        for segment in group:
            for piece in self._scan(segment):
                if piece.batch is None:
                    self._skip_damaged_segments(group)
                    output.discard()
                    return
                kept = self._clean_batch(piece)
                output.add(piece, kept)
                changed = changed or kept is not piece.batch
                yield
        if changed:
            self.results.append(SegmentReplacement(group, output.finish(group[-1].end_offset)))
        else:
            output.discard()

    def _skip_damaged_segments(self, damaged: list[LogSegment]) -> None:
        """Leave damaged segments uncompacted, and retain all tombstones and transaction markers after them.

        Compaction must not remove damaged records, so it must retain the tombstones and markers that apply to them.
        """
        self._is_damaged = True
        self._tombstones_end = min(self._tombstones_end, damaged[0].base_offset)
        self.removable_markers_end = min(self.removable_markers_end, damaged[0].base_offset)

    def _clean_batch(self, piece: ScannedBatch) -> memoryview | bytes | None:
        """Return the retained part of a batch: the same object if it is unchanged, None if nothing is retained."""
        assert piece.batch is not None
        header = piece.header
        if header.is_control:
            return self._clean_control_batch(piece.batch, header)
        is_aborted = self._is_aborted(header)
        if header.base_offset >= self.compacted_offset:
            return piece.batch
        horizon = header.delete_horizon_ms
        expired_end = self._tombstones_end if horizon is not None and self.now_ms > horizon else 0

        def keep(offset: int, key: memoryview | None, is_tombstone: bool) -> bool:
            if offset >= self.compacted_offset:
                return True
            if is_aborted:
                return False
            return self._is_latest_record(offset, key) and not (is_tombstone and offset < expired_end)

        kept = filter_batch(
            piece.batch,
            0,
            keep,
            DecompressionBudget.for_stored_batch(len(piece.batch)),
            keep_empty=self.last_producer_offsets.get(header.producer_id) == header.last_offset,
            delete_horizon_ms=self.now_ms + self.config.delete_retention_ms,
        )
        assert not isinstance(kept, bytearray)
        return kept

    def _clean_control_batch(self, batch: memoryview, header: BatchHeader) -> memoryview | bytes | None:
        if parse_transaction_marker_batch(batch) is None or not self._leftovers.is_marker_removable(header):
            return batch
        if header.base_offset >= self.compacted_offset:
            return batch
        if self.producer_epochs_without_batches.get(header.producer_id) == header.producer_epoch:
            return batch
        horizon = header.delete_horizon_ms
        if horizon is None:
            return set_delete_horizon(batch, 0, self.now_ms + self.config.delete_retention_ms)
        return None if self.now_ms > horizon and header.base_offset < self.removable_markers_end else batch

    def _scan(self, segment: LogSegment) -> Iterator[ScannedBatch]:
        own = LogSegment.open_existing(self._cache, self.directory, segment.base_offset, segment.end_offset)
        return own.scan(0, own.base_offset, self.epochs)


def plan_compaction(
    files: FileSystem,
    directory: str,
    config: LogConfig,
    epochs: LeaderEpochHistory,
    producers: ProducerStateManager,
    segments: Sequence[LogSegment],
    dirty_offset: int,
    markers_end: int,
    now_ms: int,
    truncations: int,
) -> Compaction | None:
    """Plan the compaction of a partition's log, or return None if too little of the log is uncompacted.

    Args:
        segments: The closed segments below the last stable offset.
    """
    cleanable: list[LogSegment] = []
    for segment in segments:
        segment.ensure_index(epochs)
        if segment.max_timestamp > now_ms - config.min_compaction_lag_ms and config.min_compaction_lag_ms > 0:
            break
        cleanable.append(segment)
    clean = [segment for segment in cleanable if segment.end_offset <= dirty_offset]
    dirty = cleanable[len(clean) :]
    if not dirty:
        return None
    dirty_bytes = sum(segment.size for segment in dirty)
    total_bytes = dirty_bytes + sum(segment.size for segment in clean)
    is_overdue = 0 <= dirty[0].max_timestamp < now_ms - config.max_compaction_lag_ms
    if dirty_bytes < config.min_cleanable_dirty_ratio * total_bytes and not is_overdue:
        return None
    ends, marker_epochs = {}, {}
    for producer_id, producer in producers.items():
        if producer.batches:
            ends[producer_id] = producer.batches[-1].last_offset
        else:
            marker_epochs[producer_id] = producer.epoch
    aborted = producers.transactions.aborted.copy()
    return Compaction(
        files,
        directory,
        config,
        epochs.copy(),
        ends,
        marker_epochs,
        aborted,
        markers_end,
        clean,
        dirty,
        now_ms,
        truncations,
        dirty_offset,
        FileCache(files, OPEN_FILES_MAX),
        CleanedTransactions(aborted, dirty_offset),
        dirty_offset,
    )


def _hash_key(key: memoryview) -> bytes:
    return bytes(key) if len(key) < KEY_BYTES_MAX else hashlib.blake2b(key, digest_size=KEY_BYTES_MAX).digest()

"""The segment that a compaction writes, and the segments that it replaces."""

from __future__ import annotations

import msgspec

from chronik.files import FileCache
from chronik.log.config import LogConfig
from chronik.log.files import names
from chronik.log.files.index import SegmentIndex
from chronik.log.leader_epochs import LeaderEpochHistory
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

# Compacted batches are buffered and written in chunks of this size.
WRITE_BYTES = 1 << 20


class SegmentReplacement(msgspec.Struct):
    """A compacted segment and the source segments that it replaces."""

    sources: list[LogSegment]
    segment: LogSegment


class CleanedSegmentWriter:
    """A writer of a compacted segment.

    The file has the suffix `.cleaned` until it is complete; recovery deletes such files.
    """

    def __init__(
        self, cache: FileCache, directory: str, base_offset: int, epochs: LeaderEpochHistory, config: LogConfig
    ) -> None:
        log_name = names.offset_file_name(base_offset, names.LOG)
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
        """Add what compaction keeps of a batch. Offsets without records are covered by empty batches."""
        if kept is None:
            return
        if piece.base_offset > self._next_offset:
            self._fill_gap(piece.base_offset)
        self._append_batch(kept)

    def finish(self, end_offset: int) -> LogSegment:
        """Write the buffered batches and return the segment. Its contents are durable; its name is not yet."""
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
        """Add empty batches for the offsets up to `end_offset`, one per leader epoch.

        A follower's log may end at any batch, and its leader must know the epoch of that batch.
        """
        while self._next_offset < end_offset:
            epoch, epoch_end = self._epochs.epoch_at(self._next_offset)
            self._append_batch(build_batch(_empty_header(self._next_offset, min(end_offset, epoch_end), epoch), b""))

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


def _empty_header(base_offset: int, end_offset: int, epoch: int) -> BatchHeader:
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

"""Lookup of records by timestamp: first the batch, by its header, then the record in the batch.

Finding the batch uses the log and is fast. Finding the record needs only the batch, which may have to be decompressed,
and may take long. Producers write the headers. If a header is wrong or the records cannot be decoded, the lookup
returns the start of the batch: a consumer that starts there misses no record, and the lookup never scans the whole log.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final, NamedTuple

from chronik.log.leader_epochs import LeaderEpochHistory
from chronik.log.segment import NO_TIMESTAMP, LogSegment, ScannedBatch
from chronik.protocol.batch import LENGTH_END, LOG_APPEND_TIME_FLAG, parse_header
from chronik.protocol.budget import DecompressionBudget
from chronik.protocol.errors import RecordsTooLarge
from chronik.protocol.record_scan import scan_records_lazily

MAX_TIMESTAMP_SEARCH_BYTES = 16 << 20
"""Maximum number of bytes at a segment's end that are searched for the largest timestamp."""

HEADER_READ_BYTES: Final = 8192
"""Number of bytes that a lookup reads at once from a segment file to find a batch header."""

HEADER_READS_MAX: Final = 16
"""Maximum number of reads from a segment file to find a batch header."""

_UNCHECKED_HEADER: Final = struct.Struct(">qi5xIhiqq")
"""Layout of a batch header: base offset, length, CRC, attributes, last offset delta, first and max timestamp."""


class TimestampedOffset(NamedTuple):
    """The offset of a record with its timestamp and leader epoch."""

    offset: int
    timestamp: int
    leader_epoch: int


class TimestampedBatch(NamedTuple):
    """A batch that, according to its header, has a record at or after `timestamp`."""

    batch: memoryview
    timestamp: int
    start_offset: int
    """The offset below which records are ignored."""

    @property
    def is_fully_retained(self) -> bool:
        """Whether all records of the batch are at or above `start_offset`."""
        return parse_header(self.batch).base_offset >= self.start_offset

    @property
    def end_offset(self) -> int:
        return parse_header(self.batch).next_offset

    @property
    def batch_start(self) -> TimestampedOffset:
        """The first offset of the batch at or above `start_offset`, a substitute when the exact record is unknown."""
        header = parse_header(self.batch)
        return TimestampedOffset(
            max(header.base_offset, self.start_offset), header.max_timestamp, header.partition_leader_epoch
        )


def find_batch_by_timestamp(
    segments: Iterable[LogSegment], epochs: LeaderEpochHistory, timestamp: int, start_offset: int
) -> TimestampedBatch | None:
    """Return the first batch with a record at or after `timestamp`."""
    for segment in segments:
        if not segment.size or segment.end_offset <= start_offset:
            continue
        segment.ensure_index(epochs)
        if segment.max_timestamp < timestamp:
            continue
        for piece in segment.scan_from_timestamp(timestamp, epochs):
            if _find_max_timestamp(piece, start_offset) >= timestamp:
                return _build_batch(piece, timestamp, start_offset)
    return None


def find_batch_with_max_timestamp(
    segments: Iterable[LogSegment], epochs: LeaderEpochHistory, start_offset: int
) -> TimestampedBatch | None:
    """Return the first batch that contains the largest record timestamp of all segments."""
    best, best_timestamp = None, NO_TIMESTAMP
    for segment in segments:
        if not segment.size or segment.end_offset <= start_offset:
            continue
        segment.ensure_index(epochs)
        if segment.max_timestamp > best_timestamp:
            for piece in segment.scan_from_offset(
                _find_max_timestamp_search_offset(segment, start_offset, epochs), epochs
            ):
                timestamp = _find_max_timestamp(piece, start_offset)
                if timestamp > best_timestamp:
                    best, best_timestamp = _build_batch(piece, timestamp, start_offset), timestamp
                    if timestamp == segment.max_timestamp:
                        break
    return best


def _find_max_timestamp_search_offset(segment: LogSegment, start_offset: int, epochs: LeaderEpochHistory) -> int:
    """Return the offset from which a segment is searched for its largest timestamp.

    This is the batch with the largest timestamp or, if that batch is empty, a batch near the segment's end.

    Indexes of older versions also refer to batches that compaction has emptied.
    """
    newest_offset = segment.max_timestamp_offset
    if newest_offset >= start_offset and _has_records_at(segment, newest_offset, epochs):
        return newest_offset
    return max(start_offset, segment.find_indexed_offset_before(segment.size - MAX_TIMESTAMP_SEARCH_BYTES, epochs))


def _has_records_at(segment: LogSegment, offset: int, epochs: LeaderEpochHistory) -> bool:
    piece = next((each for each in segment.scan_from_offset(offset, epochs) if each.next_offset > offset), None)
    return piece is not None and _find_max_timestamp(piece, offset) > NO_TIMESTAMP


def _find_max_timestamp(piece: ScannedBatch, start_offset: int) -> int:
    """Return the largest timestamp of the batch's records, or NO_TIMESTAMP for empty batches."""
    if piece.batch is None or piece.next_offset <= start_offset:
        return NO_TIMESTAMP
    header = piece.header
    return header.max_timestamp if header.record_count else NO_TIMESTAMP


def _build_batch(piece: ScannedBatch, timestamp: int, start_offset: int) -> TimestampedBatch:
    assert piece.batch is not None
    return TimestampedBatch(piece.batch, timestamp, start_offset)


def find_record(timed: TimestampedBatch, budget: DecompressionBudget) -> TimestampedOffset | None:
    """Return the first record in the batch at or after the timestamp, or None if it was deleted.

    Raises:
        CorruptRecords: The batch is damaged.
        RecordsTooLarge: `budget` was exceeded before the record was found.
    """
    start_offset, wanted = timed.start_offset, timed.timestamp
    for record in scan_records_lazily(timed.batch, budget):
        if record[1] >= wanted and record[0] >= start_offset:
            return TimestampedOffset(record[0], record[1], parse_header(timed.batch).partition_leader_epoch)
    return timed.batch_start if timed.is_fully_retained else None


def find_record_or_batch_start(timed: TimestampedBatch, budget: DecompressionBudget) -> TimestampedOffset | None:
    """Return the first record at or after the timestamp, or the batch's first offset if the search is too expensive."""
    try:
        return find_record(timed, budget)
    except RecordsTooLarge:
        return timed.batch_start


def read_batch_timestamp(segment: LogSegment, epochs: LeaderEpochHistory, offset: int) -> int | None:
    """Return the timestamp in the header of the batch that contains `offset`, or None if unknown.

    This is the first timestamp, or the append time if the topic uses `LogAppendTime`. It serves metrics: it takes one
    small read, and nothing is validated.
    """
    position, _ = segment.find_indexed_batch(offset, epochs)
    found: int | None = None
    for _ in range(HEADER_READS_MAX):
        view, local = segment.read_bytes(position, HEADER_READ_BYTES), 0
        while local + _UNCHECKED_HEADER.size <= len(view):
            base_offset, length, _, attributes, last_delta, first, largest = _UNCHECKED_HEADER.unpack_from(view, local)
            if length <= 0:
                return None  # damage, which readers report
            found = largest if attributes & LOG_APPEND_TIME_FLAG else first
            if base_offset + last_delta >= offset:
                return found
            local += length + LENGTH_END
        if not local:
            return None
        position += local
    return found

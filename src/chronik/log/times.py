"""Finding records by their time: first the batch, by what its header says, then the record in it.

Finding the batch needs the log and little time; finding the record needs the batch alone, which may have to be opened,
and that may take long. Producers write the headers. Where one is not true, or where the records cannot be looked at,
the search ends at the batch nevertheless: whoever reads from there misses nothing, and no lie makes a search go
through the whole log.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final, NamedTuple

from chronik.log.epochs import EpochHistory
from chronik.log.segment import NO_TIMESTAMP, Piece, Segment
from chronik.protocol.batch import LENGTH_END, LOG_APPEND_TIME_FLAG, parse_header
from chronik.protocol.budget import Budget
from chronik.protocol.errors import RecordsTooLarge
from chronik.protocol.skim import skim_as_far

NEWEST_SEARCH_BYTES_MAX = 16 << 20
"""When the newest record of a segment was deleted, the newest of the others is looked for in this much of its end."""

AGE_READ_BYTES: Final = 8192
"""The index leads to a batch some 4 kB before the wanted one: one read has both."""

AGE_READS_MAX: Final = 16
"""Large batches take a read each. Who sets `index.interval.bytes` high is told less exactly."""

_UNCHECKED_HEADER: Final = struct.Struct(">qi5xIhiqq")
"""Base offset, length, CRC, attributes, last offset delta, first and largest timestamp."""


class TimedOffset(NamedTuple):
    offset: int
    timestamp: int
    leader_epoch: int


class TimedBatch(NamedTuple):
    """A batch whose header says that it has a record not older than `timestamp`."""

    batch: memoryview
    timestamp: int
    start_offset: int
    """Records before this offset do not count: they are deleted."""

    @property
    def is_whole(self) -> bool:
        return parse_header(self.batch).base_offset >= self.start_offset

    @property
    def end_offset(self) -> int:
        return parse_header(self.batch).next_offset

    @property
    def start(self) -> TimedOffset:
        """Where a client that looks for the record should begin to read, if nobody can tell more."""
        header = parse_header(self.batch)
        return TimedOffset(
            max(header.base_offset, self.start_offset), header.max_timestamp, header.partition_leader_epoch
        )


def batch_not_before(
    segments: Iterable[Segment], epochs: EpochHistory, timestamp: int, start_offset: int
) -> TimedBatch | None:
    """Returns the first batch with a record not older than `timestamp`."""
    for segment in segments:
        if not segment.size or segment.end_offset <= start_offset:
            continue
        segment.check_index(epochs)
        if segment.max_timestamp < timestamp:
            continue
        for piece in segment.walk_from_time(timestamp, epochs):
            if _max_timestamp(piece, start_offset) >= timestamp:
                return _timed(piece, timestamp, start_offset)
    return None


def batch_with_max(segments: Iterable[Segment], epochs: EpochHistory, start_offset: int) -> TimedBatch | None:
    """Returns the first batch with a record of the largest timestamp of all."""
    best, best_timestamp = None, NO_TIMESTAMP
    for segment in segments:
        if not segment.size or segment.end_offset <= start_offset:
            continue
        segment.check_index(epochs)
        if segment.max_timestamp > best_timestamp:
            for piece in segment.walk_from(_newest_search_offset(segment, start_offset, epochs), epochs):
                timestamp = _max_timestamp(piece, start_offset)
                if timestamp > best_timestamp:
                    best, best_timestamp = _timed(piece, timestamp, start_offset), timestamp
                    if timestamp == segment.max_timestamp:
                        break
    return best


def _newest_search_offset(segment: Segment, start_offset: int, epochs: EpochHistory) -> int:
    """Returns the offset of the batch that has the maximum; if its records are gone, one not too far before the
    segment's end. Indexes of older versions name batches that compaction has emptied, too."""
    newest_offset = segment.max_timestamp_offset
    if newest_offset >= start_offset and _has_records_at(segment, newest_offset, epochs):
        return newest_offset
    return max(start_offset, segment.offset_before(segment.size - NEWEST_SEARCH_BYTES_MAX, epochs))


def _has_records_at(segment: Segment, offset: int, epochs: EpochHistory) -> bool:
    piece = next((each for each in segment.walk_from(offset, epochs) if each.next_offset > offset), None)
    return piece is not None and _max_timestamp(piece, offset) > NO_TIMESTAMP


def _max_timestamp(piece: Piece, start_offset: int) -> int:
    """Returns that of its records. Empty batches, which hold a producer's last sequence, keep their old time."""
    if piece.batch is None or piece.next_offset <= start_offset:
        return NO_TIMESTAMP
    header = piece.header
    return header.max_timestamp if header.record_count else NO_TIMESTAMP


def _timed(piece: Piece, timestamp: int, start_offset: int) -> TimedBatch:
    assert piece.batch is not None
    return TimedBatch(piece.batch, timestamp, start_offset)


def first_in(timed: TimedBatch, budget: Budget) -> TimedOffset | None:
    """Returns the first record of the batch that is not older; None when it was among those that are deleted.

    It does not need the log. Raises CorruptRecords, and RecordsTooLarge when `budget` ends before the record."""
    start_offset, wanted = timed.start_offset, timed.timestamp
    for record in skim_as_far(timed.batch, budget):
        if record[1] >= wanted and record[0] >= start_offset:
            return TimedOffset(record[0], record[1], parse_header(timed.batch).partition_leader_epoch)
    return timed.start if timed.is_whole else None


def first_or_start(timed: TimedBatch, budget: Budget) -> TimedOffset | None:
    """Does as `first_in`, but returns the batch's start when the budget is too small."""
    try:
        return first_in(timed, budget)
    except RecordsTooLarge:
        return timed.start


def batch_time(segment: Segment, epochs: EpochHistory, offset: int) -> int | None:
    """Returns the time of the batch with that offset as its header says: that of its first record, or of its arrival
    where that is what counts. None when there is none. It is for metrics: one small read, and nothing is checked."""
    position, _ = segment.start_for(offset, epochs)
    found: int | None = None
    for _ in range(AGE_READS_MAX):
        view, local = segment.view(position, AGE_READ_BYTES), 0
        while local + _UNCHECKED_HEADER.size <= len(view):
            base_offset, length, _, attributes, last_delta, first, largest = _UNCHECKED_HEADER.unpack_from(view, local)
            if length <= 0:
                return None  # damage, of which whoever reads it is told
            found = largest if attributes & LOG_APPEND_TIME_FLAG else first
            if base_offset + last_delta >= offset:
                return found
            local += length + LENGTH_END
        if not local:
            return None
        position += local
    return found

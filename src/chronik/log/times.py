"""Finding records by their time."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from chronik.log.epochs import EpochHistory
from chronik.log.segment import NO_TIMESTAMP, Piece, Segment
from chronik.protocol.records import decode_batch


class TimedOffset(NamedTuple):
    offset: int
    timestamp: int
    leader_epoch: int


def first_not_before(
    segments: Iterable[Segment], epochs: EpochHistory, timestamp: int, log_start_offset: int
) -> TimedOffset | None:
    for segment in segments:
        if not segment.size or segment.end_offset <= log_start_offset:
            continue
        segment.check_index(epochs)
        if segment.max_timestamp < timestamp:
            continue
        for piece in segment.walk_from_time(timestamp, epochs):
            found = _first_in(piece, timestamp, log_start_offset)
            if found is not None:
                return found
    return None


def first_with_max(segments: Iterable[Segment], epochs: EpochHistory, log_start_offset: int) -> TimedOffset | None:
    best: TimedOffset | None = None
    for segment in segments:
        if not segment.size or segment.end_offset <= log_start_offset:
            continue
        segment.check_index(epochs)
        if segment.max_timestamp > (best.timestamp if best else NO_TIMESTAMP):
            best = _max_in(segment, epochs, log_start_offset, best)
    return best


def _max_in(
    segment: Segment, epochs: EpochHistory, log_start_offset: int, best: TimedOffset | None
) -> TimedOffset | None:
    """From the batch on that has the maximum; from the log's start on when that one was deleted."""
    for piece in segment.walk_from(max(segment.max_timestamp_offset, log_start_offset), epochs):
        if piece.batch is None or piece.next_offset <= log_start_offset:
            continue
        if piece.header.max_timestamp <= (best.timestamp if best else NO_TIMESTAMP):
            continue
        best = _first_in(piece, piece.header.max_timestamp, log_start_offset) or best
        if best is not None and best.timestamp == segment.max_timestamp:
            return best
    return best


def _first_in(piece: Piece, timestamp: int, log_start_offset: int) -> TimedOffset | None:
    if piece.batch is None or piece.next_offset <= log_start_offset or piece.header.max_timestamp < timestamp:
        return None
    for record in decode_batch(piece.batch):
        if record.timestamp >= timestamp and record.offset >= log_start_offset:
            return TimedOffset(record.offset, record.timestamp, piece.header.partition_leader_epoch)
    return None

"""Retention: the selection of segments that are too old or exceed the size limit."""

from __future__ import annotations

from collections.abc import Sequence

from chronik.log.config import LogConfig
from chronik.log.leader_epochs import LeaderEpochHistory
from chronik.log.segment import LogSegment


def find_deletable_segments(
    segments: Sequence[LogSegment], config: LogConfig, epochs: LeaderEpochHistory, now_ms: int, up_to_offset: int
) -> list[LogSegment]:
    """Return the leading segments that retention deletes, including the active one if all of its records expired."""
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

"""Makes what a leader sends continue a follower's log: its first batch may begin before the offset that is due.

Batches are read whole. A log's start may lie inside its first batch, and compaction covers the offsets of batches of
which nothing is left with one empty batch, which may overlap with what a follower has already.
"""

from __future__ import annotations

from chronik.files import Buffer
from chronik.protocol.batch import parse_header, seal


def first_offset(records: Buffer) -> int:
    """Raises CorruptRecords."""
    return parse_header(records).base_offset


def continued_at(records: Buffer, offset: int) -> Buffer:
    """Drops the offsets below `offset` that an empty first batch covers. Anything else is left as it was: whether it
    continues the log is for the log to decide.

    Raises CorruptRecords.
    """
    header = parse_header(records)
    if not header.base_offset < offset < header.next_offset or header.record_count > 0:
        return records
    rest = header._replace(base_offset=offset, last_offset_delta=header.next_offset - offset - 1)
    return seal(rest, b"") + bytes(memoryview(records)[header.size :])

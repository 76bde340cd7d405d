"""Adjustment of a leader's batches to a follower's log: the first batch may start before the follower's log end.

The leader reads complete batches. Its log start offset may lie inside the first batch, and compaction covers removed
offsets with an empty batch, which may overlap with the follower's log.
"""

from __future__ import annotations

from chronik.files import Buffer
from chronik.protocol.batch import build_batch, parse_header


def first_base_offset(records: Buffer) -> int:
    """Return the base offset of the first batch.

    Raises:
        CorruptRecords: The batch header is invalid.
    """
    return parse_header(records).base_offset


def trim_first_batch(records: Buffer, offset: int) -> Buffer:
    """Trim an empty first batch so that it starts at `offset`. Any other batch is returned unchanged.

    The log itself rejects batches that do not continue it.

    Raises:
        CorruptRecords: The batch header is invalid.
    """
    header = parse_header(records)
    if not header.base_offset < offset < header.next_offset or header.record_count > 0:
        return records
    rest = header._replace(base_offset=offset, last_offset_delta=header.next_offset - offset - 1)
    return build_batch(rest, b"") + bytes(memoryview(records)[header.size :])

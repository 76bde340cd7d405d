"""How old the record at an offset is, for metrics: one small read, and nothing is checked, opened or decoded."""

from __future__ import annotations

import struct
from typing import Final

from chronik.log.epochs import EpochHistory
from chronik.log.segment import Segment
from chronik.protocol.batch import LENGTH_END, LOG_APPEND_TIME_FLAG

READ_BYTES: Final = 8192
"""The index leads to a batch some 4 kB before the wanted one: one read has both."""

READS_MAX: Final = 16
"""Large batches take a read each. Who sets `index.interval.bytes` high is told less exactly."""

_HEADER: Final = struct.Struct(">qi5xIhiqq")
"""Base offset, length, CRC, attributes, last offset delta, first and largest timestamp."""


def batch_time(segment: Segment, epochs: EpochHistory, offset: int) -> int | None:
    """Returns the time of the batch with that offset as its header says: that of its first record, or of its arrival
    where that is what counts. None when there is none."""
    position, _ = segment.start_for(offset, epochs)
    found: int | None = None
    for _ in range(READS_MAX):
        view, local = segment.view(position, READ_BYTES), 0
        while local + _HEADER.size <= len(view):
            base_offset, length, _, attributes, last_delta, first, largest = _HEADER.unpack_from(view, local)
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

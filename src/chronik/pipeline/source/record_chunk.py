"""Record chunks, the unit in which a transport passes batches to the decoder, and the report of lost records."""

from __future__ import annotations

import logging
from typing import Final, NamedTuple

from chronik.limits import MIB
from chronik.pipeline.errors import DataLossError
from chronik.pipeline.records.batches import AbortedProducerRange, StoredBatch
from chronik.pipeline.source.offset_ranges import OffsetRange
from chronik.protocol.batch import Bytes

logger = logging.getLogger("chronik.pipeline")

CHUNK_BYTES: Final = 8 * MIB
"""Target size of a chunk in bytes.

A task holds two chunks in memory, one being decoded and one in flight. Each is large enough to make the cost of its
request negligible.
"""


class RecordChunk(NamedTuple):
    """Consecutive record batches of one partition. The first and last batch may extend beyond the range to read."""

    buffer: Bytes
    batches: list[StoredBatch]
    start: int
    """Offset of the first visible record. The first batch may contain earlier records, deleted or already read."""
    aborted: tuple[AbortedProducerRange, ...] = ()

    @property
    def next_offset(self) -> int:
        return self.batches[-1].last_offset + 1


def report_data_loss(target: OffsetRange, first: int, end: int, reason: str, *, fail: bool) -> None:
    """Raise DataLossError for unreadable offsets if `fail` is set; otherwise log a warning."""
    message = f"{target.topic_partition}: offsets {first} to {end - 1} cannot be read: {reason}"
    if fail:
        raise DataLossError(f"{message}; set failOnDataLoss = false to skip them")
    logger.warning("data loss: %s; skipping these offsets", message)

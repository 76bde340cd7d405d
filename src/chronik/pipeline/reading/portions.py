"""What a transport hands to the decoder, and what to do about records that are gone."""

from __future__ import annotations

import logging
from typing import Final, NamedTuple

from chronik.limits import MIB
from chronik.pipeline.errors import DataLoss
from chronik.pipeline.reading.ranges import OffsetRange
from chronik.pipeline.records.batches import Aborted, StoredBatch
from chronik.protocol.batch import Bytes

logger = logging.getLogger("chronik.pipeline")

PORTION_BYTES: Final = 8 * MIB
"""How much is read at a time: two of them, one being decoded and one on its way, are a small share of a task's memory,
and each is long enough that asking for it costs nothing."""


class Portion(NamedTuple):
    """Consecutive batches of one partition; the first and the last may reach beyond the range that is read."""

    buffer: Bytes
    batches: list[StoredBatch]
    start: int
    """Records before this offset are not to be seen: they are in the first batch, but not in the partition any more, or
    were in the portion before."""
    aborted: tuple[Aborted, ...] = ()

    @property
    def next_offset(self) -> int:
        return self.batches[-1].last_offset + 1


def report_loss(target: OffsetRange, first: int, end: int, why: str, *, fail: bool) -> None:
    """Raises DataLoss if it is to `fail`, and warns otherwise."""
    told = f"{target.source}: offsets {first} to {end - 1} cannot be read: {why}"
    if fail:
        raise DataLoss(f"{told} (failOnDataLoss = false reads on without them)")
    logger.warning("%s", told)

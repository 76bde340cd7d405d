"""Which offsets a micro-batch of a stream begins and ends at. Knows nothing of Spark.

An offset of the stream is what Spark's Kafka source writes, `{"topic": {"0": 23}}`, plus, under a name that no topic
can have, where the micro-batch that ends there begins. A checkpoint therefore holds both ends of every range: a
micro-batch that is run again reads the same records, also the very first one and those that begin a new partition.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

from chronik.client.records import TopicPartition
from chronik.pipeline.reading.options import SourceOptions
from chronik.pipeline.reading.portions import report_loss
from chronik.pipeline.reading.positions import Positions
from chronik.pipeline.reading.ranges import (
    OffsetRange,
    Offsets,
    OffsetsJson,
    limited,
    offsets_from_json,
    offsets_to_json,
    ranges_between,
)

FROM: Final = "#from"


class MicroBatches:
    """Decides, for one stream, where each micro-batch ends."""

    def __init__(
        self, options: SourceOptions, positions: Positions, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._options = options
        self._positions = positions
        self._monotonic = monotonic
        self._advanced_at = monotonic()
        self._target: Offsets | None = None
        self._latest: Offsets = {}

    def initial(self) -> OffsetsJson:
        """Returns where a stream without a checkpoint begins. Raises OptionError, ClientError or KafkaError."""
        partitions = self._positions.partitions(self._options.subscription)
        return offsets_to_json(
            self._positions.resolve(
                self._options.starting,
                partitions,
                name="starting",
                latest_if_no_timestamp=self._options.latest_if_no_timestamp,
            )
        )

    def stop_at_latest(self) -> None:
        """Has nothing read that comes after this moment."""
        self._target = self._ask_latest()

    def advance(self, start: OffsetsJson, records_max: int | None, records_min: int | None = None) -> OffsetsJson:
        """Returns where a micro-batch from `start` on ends: `start` itself if there is nothing to read, or too little.

        Raises DataLoss when a partition is gone or has become shorter, if that is to fail.
        """
        starts = reached(start)
        ends = self._ask_latest() if self._target is None else self._target
        self._latest = ends
        begins = self._begins(starts, ends)
        available = sum(max(0, ends[each] - begins[each]) for each in ends)
        if self._target is None and records_min is not None and available < records_min and not self._is_due():
            return start
        if records_max is not None:
            ends = limited(begins, ends, records_max)
        if ends == starts:
            return start
        self._advanced_at = self._monotonic()
        return offsets_to_json(ends) | {FROM: offsets_to_json(begins)}

    def latest(self) -> OffsetsJson | None:
        """Returns the ends of the partitions as last seen; None before that."""
        return offsets_to_json(self._latest) if self._latest else None

    def _ask_latest(self) -> Offsets:
        return self._positions.latest(self._positions.partitions(self._options.subscription))

    def _is_due(self) -> bool:
        return self._monotonic() - self._advanced_at >= self._options.trigger_delay_s_max

    def _begins(self, starts: Offsets, ends: Offsets) -> Offsets:
        """Returns where the next micro-batch begins, for every partition that there is now; new ones begin at their
        first record."""
        for partition in starts.keys() - ends.keys():
            self._lose(partition, starts[partition], starts[partition] + 1, "the partition no longer exists")
        for partition in starts.keys() & ends.keys():
            if ends[partition] < starts[partition]:
                why = f"the partition now ends at {ends[partition]}"
                self._lose(partition, ends[partition], starts[partition], why)
        earliest = self._positions.earliest(ends.keys() - starts.keys())
        for partition, offset in earliest.items():
            if offset > 0:
                self._lose(partition, 0, offset, f"the partition is new here, and starts at {offset} already")
        return {partition: starts.get(partition, earliest.get(partition, 0)) for partition in ends}

    def _lose(self, partition: TopicPartition, first: int, end: int, why: str) -> None:
        fail = self._options.read.fail_on_data_loss
        report_loss(OffsetRange(*partition, first, end), first, end, why, fail=fail)


def reached(offset: OffsetsJson) -> Offsets:
    """Returns how far a stream is at this offset."""
    return offsets_from_json({topic: partitions for topic, partitions in offset.items() if topic != FROM})


def ranges_of(start: OffsetsJson, end: OffsetsJson) -> list[OffsetRange]:
    """Returns what the micro-batch that ends at `end` reads: what is recorded there, whatever `start` is by now."""
    recorded: Any = end.get(FROM)
    ends = reached(end)
    begins = reached(start) if recorded is None else offsets_from_json(recorded)
    return ranges_between(ends | begins, ends)

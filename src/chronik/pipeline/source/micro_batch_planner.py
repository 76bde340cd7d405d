"""Planning of a stream's micro-batches: the offsets at which each one starts and ends. Independent of Spark.

A stream offset has the format of Spark's Kafka source, `{"topic": {"0": 23}}`, plus the start offsets of the
micro-batch under a key that is not a valid topic name. The checkpoint therefore holds both ends of every range, and a
retried micro-batch reads the same records, even the first micro-batch of the stream or of a new partition.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

from chronik.client.records import TopicPartition
from chronik.pipeline.source.offset_ranges import (
    OffsetRange,
    Offsets,
    OffsetsJson,
    build_ranges,
    limit_end_offsets,
    offsets_from_json,
    offsets_to_json,
)
from chronik.pipeline.source.offset_resolver import OffsetResolver
from chronik.pipeline.source.options import SourceOptions
from chronik.pipeline.source.record_chunk import report_data_loss

START_OFFSETS_KEY: Final = "#from"


class MicroBatchPlanner:
    """The planner of one stream's micro-batches."""

    def __init__(
        self, options: SourceOptions, positions: OffsetResolver, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._options = options
        self._positions = positions
        self._monotonic = monotonic
        self._advanced_at = monotonic()
        self._target: Offsets | None = None
        self._latest: Offsets = {}

    def initial_offset(self) -> OffsetsJson:
        """Return the offsets at which a stream without a checkpoint starts.

        Raises:
            OptionError, ClientError, KafkaError: The starting offsets are invalid or cannot be resolved.
        """
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
        """Set the current end offsets as the end of the stream (Trigger.AvailableNow)."""
        self._target = self._fetch_latest_offsets()

    def plan_next_batch(
        self, start: OffsetsJson, records_max: int | None, records_min: int | None = None
    ) -> OffsetsJson:
        """Return the end offset of the micro-batch that starts at `start`, or `start` if too few records are available.

        Raises:
            DataLossError: A partition was deleted or truncated, and the options do not allow skipping the records.
        """
        starts = parse_end_offsets(start)
        ends = self._fetch_latest_offsets() if self._target is None else self._target
        self._latest = ends
        start_offsets = self._resolve_start_offsets(starts, ends)
        available = sum(max(0, ends[each] - start_offsets[each]) for each in ends)
        if (
            self._target is None
            and records_min is not None
            and available < records_min
            and not self._is_trigger_overdue()
        ):
            return start
        if records_max is not None:
            ends = limit_end_offsets(start_offsets, ends, records_max)
        if ends == starts:
            return start
        self._advanced_at = self._monotonic()
        return offsets_to_json(ends) | {START_OFFSETS_KEY: offsets_to_json(start_offsets)}

    def latest_offset(self) -> OffsetsJson | None:
        """Return the end offsets that the brokers last reported, or None if they were never requested."""
        return offsets_to_json(self._latest) if self._latest else None

    def _fetch_latest_offsets(self) -> Offsets:
        return self._positions.fetch_latest_offsets(self._positions.partitions(self._options.subscription))

    def _is_trigger_overdue(self) -> bool:
        return self._monotonic() - self._advanced_at >= self._options.max_trigger_delay_s

    def _resolve_start_offsets(self, starts: Offsets, ends: Offsets) -> Offsets:
        """Return the start offset of every current partition; new partitions start at their first record."""
        for partition in starts.keys() - ends.keys():
            self._report_data_loss(
                partition, starts[partition], starts[partition] + 1, "the partition no longer exists"
            )
        for partition in starts.keys() & ends.keys():
            if ends[partition] < starts[partition]:
                reason = f"the partition now ends at {ends[partition]}"
                self._report_data_loss(partition, ends[partition], starts[partition], reason)
        earliest = self._positions.fetch_earliest_offsets(ends.keys() - starts.keys())
        for partition, offset in earliest.items():
            if offset > 0:
                self._report_data_loss(partition, 0, offset, f"the new partition starts at {offset} already")
        return {partition: starts.get(partition, earliest.get(partition, 0)) for partition in ends}

    def _report_data_loss(self, partition: TopicPartition, first: int, end: int, reason: str) -> None:
        fail = self._options.read.fail_on_data_loss
        report_data_loss(OffsetRange(*partition, first, end), first, end, reason, fail=fail)


def parse_end_offsets(offset: OffsetsJson) -> Offsets:
    """Return the end offset of each partition in a stream offset."""
    return offsets_from_json({topic: partitions for topic, partitions in offset.items() if topic != START_OFFSETS_KEY})


def plan_micro_batch_ranges(start: OffsetsJson, end: OffsetsJson) -> list[OffsetRange]:
    """Return the offset ranges of a micro-batch. Start offsets recorded in `end` take precedence over `start`."""
    recorded: Any = end.get(START_OFFSETS_KEY)
    ends = parse_end_offsets(end)
    start_offsets = parse_end_offsets(start) if recorded is None else offsets_from_json(recorded)
    return build_ranges(ends | start_offsets, ends)

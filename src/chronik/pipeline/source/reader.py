"""Readers of the Spark source, `spark.read.format("chronik")` and `readStream`.

They plan ranges on the driver and read them in tasks.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from chronik.client.cluster import ClusterClient
from chronik.client.errors import ClientError
from chronik.client.groups import commit_offsets
from chronik.pipeline import CLIENT_ID
from chronik.pipeline.source.error_reports import MessageFirst
from chronik.pipeline.source.micro_batch_planner import MicroBatchPlanner, parse_end_offsets, plan_micro_batch_ranges
from chronik.pipeline.source.offset_ranges import OffsetRange, build_ranges, split_ranges_evenly
from chronik.pipeline.source.offset_resolver import OffsetResolver
from chronik.pipeline.source.options import ReadSettings, SourceOptions, check_starts_before_ends
from chronik.pipeline.source.range_reader import read_range
from chronik.protocol.errors import KafkaError

logger = logging.getLogger("chronik.pipeline")


class RangePartition(InputPartition):  # type: ignore[misc]
    """A Spark input partition with the offset range of one task."""

    def __init__(self, target: OffsetRange) -> None:
        super().__init__(target)
        self.target = target


class ChronikReader(DataSourceReader):  # type: ignore[misc]
    """The batch reader of the Spark source."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    @MessageFirst()
    def partitions(self) -> Sequence[InputPartition]:
        with ClusterClient(self._options.read.bootstrap, client_id=CLIENT_ID) as cluster:
            return build_input_partitions(plan_batch_query(cluster, self._options), self._options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(partition, self._options.read)


def plan_batch_query(cluster: ClusterClient, options: SourceOptions) -> list[OffsetRange]:
    """Plan a batch query: return the offset range to read from each partition.

    Raises:
        OptionError, ClientError, KafkaError: The bounds are invalid or cannot be resolved.
    """
    assert options.ending is not None, "a batch query has an end"
    positions = OffsetResolver(cluster, options.read.isolation)
    partitions = positions.partitions(options.subscription)
    starts = positions.resolve(
        options.starting, partitions, name="starting", latest_if_no_timestamp=options.latest_if_no_timestamp
    )
    ends = positions.resolve(options.ending, partitions, name="ending", latest_if_no_timestamp=True)
    check_starts_before_ends(
        starts, ends, (options.starting.option_name("starting"), options.ending.option_name("ending"))
    )
    return build_ranges(starts, ends)


def build_input_partitions(ranges: Iterable[OffsetRange], options: SourceOptions) -> list[InputPartition]:
    """Split the ranges according to the options, and return one input partition for each task."""
    parts = split_ranges_evenly(
        ranges, partitions_min=options.partitions_min, records_max=options.records_per_partition_max
    )
    # Without input partitions, Spark would create one of its own and pass None to the task that reads it.
    return [RangePartition(target) for target in parts] or [InputPartition(None)]


def read_partition(partition: InputPartition, settings: ReadSettings) -> Iterator[pa.RecordBatch]:
    if isinstance(partition, RangePartition):
        with MessageFirst():
            yield from read_range(partition.target, settings)


class ChronikStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """The streaming reader of the Spark source. It runs on the driver; tasks receive only its options."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._cluster: ClusterClient | None = None
        self._batches: MicroBatchPlanner | None = None
        self._committed_offset: dict[str, Any] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"_options": self._options, "_cluster": None, "_batches": None, "_committed_offset": None}

    # Planning of micro-batches

    @MessageFirst()
    def initialOffset(self) -> dict[str, Any]:
        return self._get_or_create_planner().initial_offset()

    def getDefaultReadLimit(self) -> ReadLimit:
        if self._options.records_per_trigger_max is not None:
            return ReadMaxRows(self._options.records_per_trigger_max)
        if self._options.records_per_trigger_min is not None:
            return ReadMinRows(self._options.records_per_trigger_min)
        return ReadAllAvailable()

    @MessageFirst()
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        # Spark calls this when the previous micro-batch is done. It calls `commit` only when another one follows, so
        # the last micro-batch of a query that ends by itself would never be committed to the group.
        self._commit_offsets_to_group(start)
        # Spark passes a single limit, so a minimum in addition to a maximum comes from the options.
        records_min = None if isinstance(limit, ReadAllAvailable) else self._options.records_per_trigger_min
        records_max = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return self._get_or_create_planner().plan_next_batch(start, records_max, records_min)

    @MessageFirst()
    def prepareForTriggerAvailableNow(self) -> None:
        self._get_or_create_planner().stop_at_latest()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return self._get_or_create_planner().latest_offset()

    # Reading

    @MessageFirst()
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return build_input_partitions(plan_micro_batch_ranges(start, end), self._options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(partition, self._options.read)

    # Progress

    def commit(self, end: dict[str, Any]) -> None:
        self._commit_offsets_to_group(end)

    def _commit_offsets_to_group(self, offset: dict[str, Any]) -> None:
        """Commit the stream's offsets to the consumer group, for lag monitoring.

        The stream itself relies on its checkpoint, so a failure only leaves the group's offsets stale until the next
        commit.
        """
        offsets = parse_end_offsets(offset)
        if self._options.group is None or not offsets or offset == self._committed_offset:
            return
        try:
            commit_offsets(self._connect(), self._options.group, offsets)
            self._committed_offset = offset
        except (ClientError, KafkaError) as error:
            logger.warning(
                "group %s: offset commit failed: %s; the group's lag is outdated until the next successful commit",
                self._options.group,
                error,
            )

    def stop(self) -> None:
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None

    def _connect(self) -> ClusterClient:
        if self._cluster is None:
            self._cluster = ClusterClient(self._options.read.bootstrap, client_id=CLIENT_ID)
        return self._cluster

    def _get_or_create_planner(self) -> MicroBatchPlanner:
        if self._batches is None:
            self._batches = MicroBatchPlanner(
                self._options, OffsetResolver(self._connect(), self._options.read.isolation)
            )
        return self._batches

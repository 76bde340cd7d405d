"""Batch reader of the Spark source, `spark.read.format("chronik")`: plans ranges on the driver, reads them in tasks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from chronik.client.cluster import ClusterClient
from chronik.pipeline import CLIENT_ID
from chronik.pipeline.source.offset_ranges import OffsetRange, ranges_between, split_ranges_evenly
from chronik.pipeline.source.offset_resolver import OffsetResolver
from chronik.pipeline.source.options import ReadSettings, SourceOptions
from chronik.pipeline.source.range_reader import read_range


class RangePartition(InputPartition):  # type: ignore[misc]
    """A Spark input partition that holds the offset range of one task."""

    def __init__(self, target: OffsetRange) -> None:
        super().__init__(target)
        self.target = target


class ChronikReader(DataSourceReader):  # type: ignore[misc]
    """The batch reader of the Spark source."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        with ClusterClient(self._options.read.bootstrap, client_id=CLIENT_ID) as cluster:
            return build_input_partitions(plan_batch_query(cluster, self._options), self._options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(partition, self._options.read)


def plan_batch_query(cluster: ClusterClient, options: SourceOptions) -> list[OffsetRange]:
    """Return the offset ranges of a batch query.

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
    return ranges_between(starts, ends)


def build_input_partitions(ranges: Iterable[OffsetRange], options: SourceOptions) -> list[InputPartition]:
    """Split the ranges according to the options, and return one input partition for each task."""
    parts = split_ranges_evenly(
        ranges, partitions_min=options.partitions_min, records_max=options.records_per_partition_max
    )
    # Without input partitions, Spark would create one of its own and pass None to the task that reads it.
    return [RangePartition(target) for target in parts] or [InputPartition(None)]


def read_partition(partition: InputPartition, settings: ReadSettings) -> Iterator[pa.RecordBatch]:
    if isinstance(partition, RangePartition):
        yield from read_range(partition.target, settings)

"""`spark.read.format("chronik")`: the rows of topics, planned on the driver and read by tasks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from chronik.client.cluster import Cluster
from chronik.pipeline import CLIENT_ID
from chronik.pipeline.reading.options import ReadSettings, SourceOptions
from chronik.pipeline.reading.positions import Positions
from chronik.pipeline.reading.ranges import OffsetRange, ranges_between, split
from chronik.pipeline.reading.reader import read_range


class RangePartition(InputPartition):  # type: ignore[misc]
    """A range on its way to the task that reads it."""

    def __init__(self, target: OffsetRange) -> None:
        super().__init__(target)
        self.target = target


class ChronikReader(DataSourceReader):  # type: ignore[misc]
    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        with Cluster(self._options.read.bootstrap, client_id=CLIENT_ID) as cluster:
            return input_partitions(plan_batch(cluster, self._options), self._options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(partition, self._options.read)


def plan_batch(cluster: Cluster, options: SourceOptions) -> list[OffsetRange]:
    """Returns the ranges of a batch query. Raises OptionError, ClientError or KafkaError."""
    assert options.ending is not None, "a batch query has an end"
    positions = Positions(cluster, options.read.isolation)
    partitions = positions.partitions(options.subscription)
    starts = positions.resolve(
        options.starting, partitions, name="starting", latest_if_no_timestamp=options.latest_if_no_timestamp
    )
    ends = positions.resolve(options.ending, partitions, name="ending", latest_if_no_timestamp=True)
    return ranges_between(starts, ends)


def input_partitions(ranges: Iterable[OffsetRange], options: SourceOptions) -> list[InputPartition]:
    """Cuts them as the options say, one for each task."""
    pieces = split(ranges, partitions_min=options.partitions_min, records_max=options.records_per_partition_max)
    # Without any, Spark would make up a partition of its own, and hand None to the task that reads it.
    return [RangePartition(target) for target in pieces] or [InputPartition(None)]


def read_partition(partition: InputPartition, settings: ReadSettings) -> Iterator[pa.RecordBatch]:
    if isinstance(partition, RangePartition):
        yield from read_range(partition.target, settings)

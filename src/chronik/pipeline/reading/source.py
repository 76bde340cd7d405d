"""`spark.read.format("chronik")`: the rows of topics, planned on the driver and read by tasks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from chronik.client.cluster import Cluster
from chronik.pipeline.reading.options import ReadSettings, SourceOptions
from chronik.pipeline.reading.planning import plan_batch
from chronik.pipeline.reading.ranges import OffsetRange
from chronik.pipeline.reading.reader import CLIENT_ID, read_range


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
            return input_partitions(plan_batch(cluster, self._options))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(partition, self._options.read)


def input_partitions(ranges: Sequence[OffsetRange]) -> list[InputPartition]:
    # Without any, Spark would make up a partition of its own, and hand None to the task that reads it.
    return [RangePartition(target) for target in ranges] or [InputPartition(None)]


def read_partition(partition: InputPartition, settings: ReadSettings) -> Iterator[pa.RecordBatch]:
    if isinstance(partition, RangePartition):
        yield from read_range(partition.target, settings)

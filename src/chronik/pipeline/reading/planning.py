"""What a query reads: partitions, where each begins and ends, and who reads what."""

from __future__ import annotations

from collections.abc import Iterable

from chronik.client.cluster import Cluster
from chronik.pipeline.reading.options import SourceOptions
from chronik.pipeline.reading.positions import Positions
from chronik.pipeline.reading.ranges import OffsetRange, ranges_between, split


def plan_batch(cluster: Cluster, options: SourceOptions) -> list[OffsetRange]:
    """The ranges of a batch query. Raises OptionError, ClientError or KafkaError."""
    assert options.ending is not None, "a batch query has an end"
    positions = Positions(cluster, options.read.isolation)
    partitions = positions.partitions(options.subscription)
    starts = positions.resolve(
        options.starting, partitions, name="starting", latest_if_no_timestamp=options.latest_if_no_timestamp
    )
    ends = positions.resolve(options.ending, partitions, name="ending", latest_if_no_timestamp=True)
    return cut(ranges_between(starts, ends), options)


def cut(ranges: Iterable[OffsetRange], options: SourceOptions) -> list[OffsetRange]:
    return split(
        ranges, partitions_min=options.partitions_min, records_max=options.records_per_partition_max
    )

"""`spark.readStream.format("chronik")`: micro-batches, whose ends `micro_batches` decides."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from chronik.client.cluster import Cluster
from chronik.client.errors import ClientError
from chronik.client.groups import commit_offsets
from chronik.pipeline import CLIENT_ID
from chronik.pipeline.reading.micro_batches import MicroBatches, ranges_of, reached
from chronik.pipeline.reading.options import SourceOptions
from chronik.pipeline.reading.positions import Positions
from chronik.pipeline.reading.source import input_partitions, read_partition
from chronik.protocol.errors import KafkaError

logger = logging.getLogger("chronik.pipeline")


class ChronikStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """Lives on the driver as long as the query; only the options travel to the tasks."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._cluster: Cluster | None = None
        self._batches: MicroBatches | None = None
        self._told: dict[str, Any] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"_options": self._options, "_cluster": None, "_batches": None, "_told": None}

    # Where micro-batches end

    def initialOffset(self) -> dict[str, Any]:
        return self._plan().initial()

    def getDefaultReadLimit(self) -> ReadLimit:
        if self._options.records_per_trigger_max is not None:
            return ReadMaxRows(self._options.records_per_trigger_max)
        if self._options.records_per_trigger_min is not None:
            return ReadMinRows(self._options.records_per_trigger_min)
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        # Spark asks when the micro-batch before is done. It confirms that with `commit` only when another one follows:
        # the last one of a query that ends by itself would never be told.
        self._tell_group(start)
        # Spark hands one limit over, so the minimum beside a maximum is our own affair.
        records_min = None if isinstance(limit, ReadAllAvailable) else self._options.records_per_trigger_min
        records_max = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return self._plan().advance(start, records_max, records_min)

    def prepareForTriggerAvailableNow(self) -> None:
        self._plan().stop_at_latest()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return self._plan().latest()

    # What they read

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return input_partitions(ranges_of(start, end), self._options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(partition, self._options.read)

    # When one is done

    def commit(self, end: dict[str, Any]) -> None:
        self._tell_group(end)

    def _tell_group(self, offset: dict[str, Any]) -> None:
        """Tells the group how far the stream is. The checkpoint is what counts: a failure here only makes lag tools
        show old figures until the next time."""
        offsets = reached(offset)
        if self._options.group is None or not offsets or offset == self._told:
            return
        try:
            commit_offsets(self._connected(), self._options.group, offsets)
            self._told = offset
        except (ClientError, KafkaError) as error:
            logger.warning("group %s is not told how far the stream is: %s", self._options.group, error)

    def stop(self) -> None:
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None

    def _connected(self) -> Cluster:
        if self._cluster is None:
            self._cluster = Cluster(self._options.read.bootstrap, client_id=CLIENT_ID)
        return self._cluster

    def _plan(self) -> MicroBatches:
        if self._batches is None:
            self._batches = MicroBatches(self._options, Positions(self._connected(), self._options.read.isolation))
        return self._batches

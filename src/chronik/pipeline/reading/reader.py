"""Reads one range as Arrow record batches, whatever way its bytes come: what every task of a source or job does."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import closing

import pyarrow as pa

from chronik.client.cluster import Cluster
from chronik.pipeline import CLIENT_ID
from chronik.pipeline.errors import DataLoss
from chronik.pipeline.reading.fetching import fetched_portions
from chronik.pipeline.reading.options import IsolationLevel, ReadSettings, Transport
from chronik.pipeline.reading.positions import Positions
from chronik.pipeline.reading.ranges import OffsetRange
from chronik.pipeline.reading.schema import record_batch, wanted_of
from chronik.pipeline.reading.segments import segment_portions
from chronik.pipeline.records.batches import visible_batches
from chronik.pipeline.records.columns import Columns, Wanted
from chronik.pipeline.records.decode import decode

logger = logging.getLogger("chronik.pipeline")


def read_columns(target: OffsetRange, settings: ReadSettings, wanted: Wanted) -> Iterator[Columns]:
    """Yields its records in order, each portion as columns, without aborted ones if only committed ones are read.

    Raises DataLoss, OptionError, CorruptRecords, ClientError or KafkaError.
    """
    transport = segment_portions if settings.transport is Transport.SEGMENTS else fetched_portions
    with (
        Cluster(settings.bootstrap, client_id=CLIENT_ID) as cluster,
        closing(transport(cluster, target, settings)) as portions,
    ):
        for portion in portions:
            visible = visible_batches(portion.buffer, portion.batches, portion.aborted)
            yield from decode(portion.buffer, visible, portion.start, target.end, wanted)


def read_past_gaps(target: OffsetRange, settings: ReadSettings, wanted: Wanted) -> Iterator[Columns]:
    """Does as `read_columns` with settings that fail on data loss, but leaves out what retention has deleted since:
    what is before the partition's start by now.

    Raises DataLoss for whatever else cannot be read, since it may still come. (Spark's `failOnDataLoss = false` passes
    over that too. A table that did so would never take it in later: its next offset is past it.)
    """
    position = target.start
    while position < target.end:
        try:
            for records in read_columns(target._replace(start=position), settings, wanted):
                if len(records):
                    position = records.offset[-1].as_py() + 1
                yield records
            return
        except DataLoss:
            log_start = _log_start(target, settings)
            if log_start <= position:
                raise
            there = min(log_start, target.end)
            logger.warning("%s: offsets %d to %d are gone", target.source, position, there - 1)
            position = there


def _log_start(target: OffsetRange, settings: ReadSettings) -> int:
    with Cluster(settings.bootstrap, client_id=CLIENT_ID) as cluster:
        positions = Positions(cluster, IsolationLevel.READ_UNCOMMITTED)
        return positions.earliest([target.source])[target.source]


def read_range(target: OffsetRange, settings: ReadSettings) -> Iterator[pa.RecordBatch]:
    """Does as `read_columns`, with record batches of the columns that `settings` names."""
    for columns in read_columns(target, settings, wanted_of(settings.columns)):
        yield record_batch(target.source, columns, settings.columns)

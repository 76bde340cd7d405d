"""Range reader: returns the records of one offset range as Arrow record batches, over either transport."""

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
    """Yield the records of a range in order, each chunk as columns; read_committed excludes aborted transactions.

    Raises:
        DataLossError: Records were deleted, and the settings do not allow skipping them.
        OptionError, CorruptRecords, ClientError, KafkaError: The range cannot be read.
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
    """Yield the records of a range like `read_columns`, skipping only those that retention has deleted.

    Other missing records raise DataLossError because they may still arrive. (`failOnDataLoss = false` would skip them
    too, and a table that skipped them could never add them later: its next offset is beyond them.)
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
            resume_offset = min(log_start, target.end)
            logger.warning(
                "%s: records deleted by retention: skipping offsets=%d-%d", target.source, position, resume_offset - 1
            )
            position = resume_offset


def _log_start(target: OffsetRange, settings: ReadSettings) -> int:
    with Cluster(settings.bootstrap, client_id=CLIENT_ID) as cluster:
        positions = Positions(cluster, IsolationLevel.READ_UNCOMMITTED)
        return positions.earliest([target.source])[target.source]


def read_range(target: OffsetRange, settings: ReadSettings) -> Iterator[pa.RecordBatch]:
    """Yield the records of a range as Arrow record batches with the columns of `settings`."""
    for columns in read_columns(target, settings, wanted_of(settings.columns)):
        yield record_batch(target.source, columns, settings.columns)

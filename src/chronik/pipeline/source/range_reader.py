"""Range reader: returns the records of one offset range as Arrow record batches, over either transport."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, nullcontext

import pyarrow as pa

from chronik.client.cluster import ClusterClient
from chronik.pipeline import CLIENT_ID
from chronik.pipeline.errors import DataLossError
from chronik.pipeline.records.batches import filter_visible_batches
from chronik.pipeline.records.columns import ColumnSelection, RecordColumns
from chronik.pipeline.records.decoder import decode_batches
from chronik.pipeline.source.fetch_transport import fetch_chunks
from chronik.pipeline.source.offset_ranges import OffsetRange
from chronik.pipeline.source.offset_resolver import OffsetResolver
from chronik.pipeline.source.options import IsolationLevel, ReadSettings, Transport
from chronik.pipeline.source.schema import build_record_batch, select_columns
from chronik.pipeline.source.segment_transport import read_segment_chunks
from chronik.pipeline.source.typed_columns import TypedRecordReader

logger = logging.getLogger("chronik.pipeline")


def read_columns(
    target: OffsetRange, settings: ReadSettings, wanted: ColumnSelection, shared: ClusterClient | None = None
) -> Iterator[RecordColumns]:
    """Yield the records of a range in order, each chunk as columns; read_committed excludes aborted transactions.

    `shared` is a client to use instead of one for this range alone, for callers that read many small ranges.

    Raises:
        DataLossError: Records were deleted, and the settings do not allow skipping them.
        OptionError, CorruptRecords, ClientError, KafkaError: The range cannot be read.
    """
    transport = read_segment_chunks if settings.transport is Transport.SEGMENTS else fetch_chunks
    with (
        nullcontext(shared)
        if shared is not None
        else ClusterClient(settings.bootstrap, client_id=CLIENT_ID) as cluster,
        closing(transport(cluster, target, settings)) as portions,
    ):
        for portion in portions:
            visible = filter_visible_batches(portion.buffer, portion.batches, portion.aborted)
            yield from decode_batches(portion.buffer, visible, portion.start, target.end, wanted)


def _open_client(settings: ReadSettings, shared: ClusterClient | None) -> AbstractContextManager[ClusterClient]:
    return ClusterClient(settings.bootstrap, client_id=CLIENT_ID) if shared is None else nullcontext(shared)


def read_skipping_deleted(
    target: OffsetRange, settings: ReadSettings, wanted: ColumnSelection, shared: ClusterClient | None = None
) -> Iterator[RecordColumns]:
    """Yield the records of a range like `read_columns`, skipping records that retention has deleted.

    Other missing records raise DataLossError because they may still arrive. (`failOnDataLoss = false` would skip them
    too, and a table that skipped them could never add them later: its next offset is beyond them.)
    """
    position = target.start
    while position < target.end:
        try:
            for records in read_columns(target._replace(start=position), settings, wanted, shared):
                if len(records):
                    position = records.offset[-1].as_py() + 1
                yield records
            return
        except DataLossError:
            log_start = _fetch_log_start_offset(target, settings)
            if log_start <= position:
                raise
            resume_offset = min(log_start, target.end)
            logger.warning(
                "%s: records deleted by retention: skipping offsets=%d-%d",
                target.topic_partition,
                position,
                resume_offset - 1,
            )
            position = resume_offset


def _fetch_log_start_offset(target: OffsetRange, settings: ReadSettings) -> int:
    with ClusterClient(settings.bootstrap, client_id=CLIENT_ID) as cluster:
        positions = OffsetResolver(cluster, IsolationLevel.READ_UNCOMMITTED)
        return positions.fetch_earliest_offsets([target.topic_partition])[target.topic_partition]


def read_range(target: OffsetRange, settings: ReadSettings) -> Iterator[pa.RecordBatch]:
    """Yield the records of a range as Arrow record batches with the columns of `settings`."""
    reader = None if settings.typed is None else TypedRecordReader(settings.typed)
    for columns in read_columns(target, settings, select_columns(settings.columns, settings.typed)):
        if reader is None:
            yield build_record_batch(target.topic_partition, columns, settings.columns, None)
            continue
        for part, typed in reader.read_in_parts(target, columns):
            yield build_record_batch(target.topic_partition, part, settings.columns, typed)

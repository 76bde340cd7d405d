"""One range as Arrow record batches, whatever way its bytes come: what every task of a source or a job does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pyarrow as pa

from chronik.client.cluster import Cluster
from chronik.pipeline.reading.fetching import fetched_portions
from chronik.pipeline.reading.options import ReadSettings, Transport
from chronik.pipeline.reading.ranges import OffsetRange
from chronik.pipeline.reading.schema import record_batch, wanted_of
from chronik.pipeline.reading.segments import segment_portions
from chronik.pipeline.records.batches import visible_batches
from chronik.pipeline.records.columns import Columns, Wanted
from chronik.pipeline.records.decode import decode

CLIENT_ID = "chronik-pipeline"


def read_columns(target: OffsetRange, settings: ReadSettings, wanted: Wanted) -> Iterator[Columns]:
    """Its records in order, each portion as columns; aborted ones are left out if committed are read.

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


def read_range(target: OffsetRange, settings: ReadSettings) -> Iterator[pa.RecordBatch]:
    """As `read_columns`, as record batches of the columns that `settings` names."""
    for columns in read_columns(target, settings, wanted_of(settings.columns)):
        yield record_batch(target.source, columns, settings.columns)

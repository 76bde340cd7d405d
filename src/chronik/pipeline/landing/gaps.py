"""Reading on when retention was quicker, for who allows that; whatever else is missing may still come, and is an error.

Spark's `failOnDataLoss = false` also passes over what a partition does not have yet. A table that did so would never
take it in later: its next offset is past it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

from chronik.client.cluster import Cluster
from chronik.pipeline.errors import DataLoss
from chronik.pipeline.reading.options import IsolationLevel, ReadSettings
from chronik.pipeline.reading.positions import Positions
from chronik.pipeline.reading.ranges import OffsetRange
from chronik.pipeline.reading.reader import CLIENT_ID, read_columns
from chronik.pipeline.records.columns import Columns, Wanted

logger = logging.getLogger("chronik.pipeline")


def read_past_gaps(target: OffsetRange, settings: ReadSettings) -> Iterator[Columns]:
    """As `read_columns` with settings that fail on data loss, but without what is before the partition's start by now.

    Raises DataLoss for anything else that cannot be read.
    """
    position = target.start
    while position < target.end:
        try:
            for records in read_columns(target._replace(start=position), settings, Wanted()):
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

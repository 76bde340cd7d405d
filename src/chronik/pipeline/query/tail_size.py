"""Size of the live tail in bytes, as brokers return it.

Brokers do not report the bytes of offset ranges. The batches of the ranges are therefore fetched, without decoding
them, up to a limit.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from typing import Final

from chronik.client.cluster import ClusterClient
from chronik.client.errors import ClientError
from chronik.limits import MIB
from chronik.pipeline.errors import DataLossError
from chronik.pipeline.source.fetch_transport import fetch_chunks
from chronik.pipeline.source.offset_ranges import OffsetRange
from chronik.pipeline.source.options import ReadSettings
from chronik.protocol.errors import CorruptRecords, KafkaError

MEASURED_BYTES_MAX: Final = 16 * MIB
"""Maximum size in bytes of a tail that is measured. The command fetches all of it."""


def measure_ranges(
    cluster: ClusterClient,
    ranges: Iterable[OffsetRange],
    settings: ReadSettings,
    bytes_max: int = MEASURED_BYTES_MAX,
) -> int | None:
    """Return the size of the batches with records of the ranges, or None if it exceeds the limit or is unknown."""
    total = 0
    for target in ranges:
        try:
            with closing(fetch_chunks(cluster, target, settings)) as chunks:
                for chunk in chunks:
                    position = chunk.start
                    for batch in chunk.batches:
                        total += batch.size if position < target.end else 0
                        position = batch.last_offset + 1
                    if total > bytes_max:
                        return None
        except (ClientError, KafkaError, DataLossError, CorruptRecords):
            return None
    return total

"""Writes the rows of a task exactly once, however often Spark runs the task.

All rows of an attempt are in one transaction, and so is the offset that says which epoch they are of. An attempt takes
the task's transactional id over before it looks at that offset: an earlier attempt has committed by then, which the
offset tells, or never will. So a second attempt either writes nothing or all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from typing import Final

import pyarrow as pa

from chronik.client.cluster import Cluster
from chronik.client.errors import ClientError
from chronik.client.transactional import Transaction
from chronik.pipeline.errors import EpochDiffers
from chronik.pipeline.writing.epochs import Epoch, ensure_place, to_commit, way_out, written_records
from chronik.pipeline.writing.publishing import Publisher, PublishSettings
from chronik.protocol.errors import KafkaError

QUERY_PREFIX: Final = "chronik-sink"

TRANSACTION_TIMEOUT_MS: Final = 15 * 60 * 1000
"""The longest that brokers accept unless they are told otherwise: a task that reads much writes for minutes, and the
transaction of one that dies is ended by the next attempt, long before."""


@dataclass(frozen=True)
class OnceSettings:
    name: str = QUERY_PREFIX
    """Of a stream it stands before the query's own id; a batch has no other name."""
    timeout_ms: int = TRANSACTION_TIMEOUT_MS
    epoch: int = 0
    """Of a batch; a stream has its own."""


def write_once(
    cluster: Cluster, settings: PublishSettings, epoch: Epoch, timeout_ms: int, batches: Iterable[pa.RecordBatch]
) -> int:
    """Returns how many records were written now: none if an earlier attempt has written them.

    Raises EpochDiffers, SchemaError, ClientError or KafkaError; then nothing is written that a reader of committed
    records sees, unless it was the answer to the commit that did not come.
    """
    filled = (batch for batch in batches if batch.num_rows)
    first = next(filled, None)
    if first is None:
        return 0  # nor does any other attempt have rows: there is nothing to keep apart
    rows = chain([first], filled)
    ensure_place(cluster, epoch)
    transaction = Transaction(cluster, epoch.transactional_id, timeout_ms=timeout_ms)
    transaction.begin()
    written = written_records(cluster, epoch)
    if written is not None:
        _check_rows(epoch, written, rows)
        return 0
    try:
        publisher = Publisher(cluster, settings, transaction)
        records = sum(publisher.publish(batch) for batch in rows)
        transaction.commit_offsets(epoch.query, to_commit(epoch, records))
    except BaseException:
        # Also when Spark ends the attempt: until someone does it, readers wait for the end of the transaction.
        with suppress(ClientError, KafkaError):
            transaction.abort()
        raise
    transaction.commit()
    return records


def _check_rows(epoch: Epoch, written: int, rows: Iterator[pa.RecordBatch]) -> None:
    """More rows than were written are rows that are lost; of fewer, some may be gone from where they came from."""
    there = sum(batch.num_rows for batch in rows)
    if there > written > 0:
        raise EpochDiffers(
            f"task {epoch.task} of epoch {epoch.number} has {there} rows, and had {written} when they were written:"
            f" a query that is run again must have the same tasks, and these the same rows. {way_out(epoch.query)}"
        )

"""Exactly-once writes: the rows of a task are committed once, however often Spark runs the task.

An attempt writes all its rows and the offset that identifies their epoch in one transaction. It first initialises the
task's transactional id, which fences earlier attempts: they have either committed by then, as the offset shows, or
never will. A later attempt therefore writes either all rows or none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from typing import Final

import pyarrow as pa

from chronik.client.cluster import ClusterClient
from chronik.client.errors import ClientError
from chronik.client.transaction import ProducerTransaction
from chronik.pipeline.errors import EpochMismatchError
from chronik.pipeline.sink.epoch_commits import (
    TaskEpoch,
    committed_record_count,
    ensure_epochs_partition,
    epoch_commit_offset,
    recovery_hint,
)
from chronik.pipeline.sink.publisher import Publisher, PublishSettings
from chronik.protocol.errors import KafkaError

DEFAULT_ID_PREFIX: Final = "chronik-sink"
"""Default transactional id prefix of streaming queries."""

TRANSACTION_TIMEOUT_MS: Final = 15 * 60 * 1000
"""Default transaction timeout, the longest that brokers accept by default. A task may write for minutes; the next
attempt aborts the transaction of a failed one long before the timeout."""


@dataclass(frozen=True)
class ExactlyOnceSettings:
    """The settings of an exactly-once write."""

    transactional_id_prefix: str = DEFAULT_ID_PREFIX
    """Transactional id prefix. Streams append the query id; a batch uses it as is."""
    timeout_ms: int = TRANSACTION_TIMEOUT_MS
    epoch: int = 0
    """Epoch of a batch; a stream uses its micro-batch number."""


def write_exactly_once(
    cluster: ClusterClient,
    settings: PublishSettings,
    epoch: TaskEpoch,
    timeout_ms: int,
    batches: Iterable[pa.RecordBatch],
) -> int:
    """Write a task's rows in a transaction, and return the number of records: 0 if an earlier attempt committed them.

    Raises:
        EpochMismatchError: An earlier attempt committed fewer rows.
        SchemaError, ClientError, KafkaError: The write failed. No rows are committed, unless only the response to the
            commit was lost.
    """
    filled = (batch for batch in batches if batch.num_rows)
    first = next(filled, None)
    if first is None:
        return 0  # other attempts have no rows either, so there is nothing to fence
    rows = chain([first], filled)
    ensure_epochs_partition(cluster, epoch)
    transaction = ProducerTransaction(cluster, epoch.transactional_id, timeout_ms=timeout_ms)
    transaction.begin()
    written = committed_record_count(cluster, epoch)
    if written is not None:
        _check_rows(epoch, written, rows)
        return 0
    try:
        publisher = Publisher(cluster, settings, transaction)
        records = sum(publisher.publish(batch) for batch in rows)
        transaction.commit_offsets(epoch.query, epoch_commit_offset(epoch, records))
    except BaseException:
        # Also when Spark cancels the attempt: until the transaction ends, read_committed consumers wait for it.
        with suppress(ClientError, KafkaError):
            transaction.abort()
        raise
    transaction.commit()
    return records


def _check_rows(epoch: TaskEpoch, written: int, rows: Iterator[pa.RecordBatch]) -> None:
    """Raise EpochMismatchError if the task has more rows than were written; fewer may be due to retention."""
    row_count = sum(batch.num_rows for batch in rows)
    if row_count > written > 0:
        raise EpochMismatchError(
            f"task {epoch.task} of epoch {epoch.number} has {row_count} rows, but an earlier attempt wrote {written}:"
            f" a retried query must have the same tasks with the same rows. {recovery_hint(epoch.query)}"
        )

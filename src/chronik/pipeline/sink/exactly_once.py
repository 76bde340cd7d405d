"""Exactly-once writes: the rows of a task are committed once, however often Spark runs the task.

An attempt writes all its rows and the offset that identifies their epoch in one transaction. It first initialises the
task's transactional id, which fences earlier attempts: they have either committed by then, as the offset shows, or
never will. A later attempt therefore writes either all rows or none.

The epochs (micro-batches) that each task of a query has written are kept as committed consumer group offsets: partition
N of an otherwise empty topic stands for task N, and the offset that the query's group has committed for it is the last
epoch that the task has written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from typing import Final, NamedTuple

import pyarrow as pa

from chronik.client.admin import NewTopic, create_partitions, create_topics
from chronik.client.cluster import ClusterClient
from chronik.client.errors import ClientError
from chronik.client.groups import GroupOffset, fetch_stable_offset, list_committed_offsets
from chronik.client.records import TopicPartition
from chronik.client.transaction import ProducerTransaction
from chronik.pipeline.errors import EpochMismatchError
from chronik.pipeline.sink.publisher import Publisher, PublishSettings
from chronik.protocol.errors import ErrorCode, KafkaError

EPOCHS_TOPIC: Final = "__chronik_epochs"
"""Name of an empty topic. Committed offsets of its partitions store the last epoch that each task of a query wrote."""

PARTITIONS_MIN: Final = 16
"""Initial number of partitions of the epochs topic. Queries with more tasks add partitions."""

_RECORDS: Final = "records="

DEFAULT_ID_PREFIX: Final = "chronik-sink"
"""Default transactional id prefix of streaming queries."""

TRANSACTION_TIMEOUT_MS: Final = 15 * 60 * 1000
"""Default transaction timeout, the longest that brokers accept by default. A task may write for minutes; the next
attempt aborts the transaction of a failed one long before the timeout."""


class TaskEpoch(NamedTuple):
    """The identity of one task's share of a micro-batch, which is the same in every attempt to write it."""

    query: str
    """Consumer group that stores the query's epochs. It is also the prefix of the query's transactional ids."""
    number: int
    task: int

    @property
    def transactional_id(self) -> str:
        return f"{self.query}-{self.task}"

    @property
    def epochs_partition(self) -> TopicPartition:
        return TopicPartition(EPOCHS_TOPIC, self.task)


def build_epoch_commit(epoch: TaskEpoch, records: int) -> dict[TopicPartition, GroupOffset]:
    """Return the offset to commit to mark a task's epoch as written, with the record count as metadata."""
    return {epoch.epochs_partition: GroupOffset(epoch.number, f"{_RECORDS}{records}")}


def fetch_committed_record_count(cluster: ClusterClient, epoch: TaskEpoch) -> int | None:
    """Return the number of records that the task has committed in this epoch: None if not committed, 0 if unknown.

    Call this only when no earlier attempt can still commit.

    Raises:
        ClientError, KafkaError: The group's offsets cannot be read.
    """
    found = fetch_stable_offset(cluster, epoch.query, epoch.epochs_partition)
    if found is None or found.offset < epoch.number:
        return None
    record_count = found.metadata.removeprefix(_RECORDS)
    return int(record_count) if found.offset == epoch.number and record_count.isdecimal() else 0


def check_task_count(cluster: ClusterClient, query: str, number: int, tasks: int) -> None:
    """Check that no earlier attempt of the epoch committed rows with a larger number of tasks.

    Raises:
        EpochMismatchError: Tasks beyond the current number have committed rows of this epoch.
        ClientError, KafkaError: The group's offsets cannot be read.
    """
    extra_tasks = [
        place.partition
        for place, committed in list_committed_offsets(cluster, query).items()
        if place.topic == EPOCHS_TOPIC and place.partition >= tasks and committed.offset == number
    ]
    if extra_tasks:
        raise EpochMismatchError(
            f"epoch {number} has {tasks} tasks, but an earlier attempt had {max(extra_tasks) + 1} or more, some of"
            f" which have committed rows: these are now duplicated. {format_recovery_hint(query)}"
        )


def format_recovery_hint(query: str) -> str:
    return f"To accept that, delete the group {query}: the epoch is then written again, and the query continues"


def ensure_epochs_partition(cluster: ClusterClient, epoch: TaskEpoch) -> None:
    """Create the epochs topic or add partitions, so that the task has its own partition.

    Raises:
        ClientError, KafkaError: The topic cannot be created or extended.
    """
    (topic,) = cluster.retry(lambda: cluster.metadata([EPOCHS_TOPIC])).topics
    exists = topic.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if exists and epoch.task < len(topic.partitions):
        return
    partition_count = max(PARTITIONS_MIN, 1 << epoch.task.bit_length())
    try:
        if exists:
            create_partitions(cluster, EPOCHS_TOPIC, partition_count)
        else:
            create_topics(cluster, [NewTopic(EPOCHS_TOPIC, partition_count)])
    except KafkaError as error:
        # Another task may have created it concurrently.
        if error.code not in (ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.INVALID_PARTITIONS):
            raise
    cluster.retry(lambda: _check_partition_exists(cluster, epoch.epochs_partition))


def _check_partition_exists(cluster: ClusterClient, place: TopicPartition) -> None:
    if place not in cluster.partitions(place.topic):
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{place}: partition not created yet")


@dataclass(frozen=True)
class ExactlyOnceSettings:
    """The settings of an exactly-once write."""

    transactional_id_prefix: str = DEFAULT_ID_PREFIX
    """Transactional id prefix. Streams append the query id; batch writes use it unchanged."""
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
    """Write a task's rows in a transaction and return their number, or 0 if an earlier attempt committed them.

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
    written = fetch_committed_record_count(cluster, epoch)
    if written is not None:
        _check_row_count(epoch, written, rows)
        return 0
    try:
        publisher = Publisher(cluster, settings, transaction)
        records = sum(publisher.publish(batch) for batch in rows)
        transaction.commit_offsets(epoch.query, build_epoch_commit(epoch, records))
    except BaseException:
        # Also when Spark cancels the attempt: until the transaction ends, read_committed consumers wait for it.
        with suppress(ClientError, KafkaError):
            transaction.abort()
        raise
    transaction.commit()
    return records


def _check_row_count(epoch: TaskEpoch, written: int, rows: Iterator[pa.RecordBatch]) -> None:
    """Raise EpochMismatchError if the task has more rows than an earlier attempt wrote. Retention may explain fewer."""
    row_count = sum(batch.num_rows for batch in rows)
    if row_count > written > 0:
        raise EpochMismatchError(
            f"task {epoch.task} of epoch {epoch.number} has {row_count} rows, but an earlier attempt wrote {written}:"
            f" a retried query must have the same tasks with the same rows. {format_recovery_hint(epoch.query)}"
        )

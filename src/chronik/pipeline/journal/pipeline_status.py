"""Status of pipelines, from their drivers' last reports and the current ends of the topics; pause and resume.

for topic in status("127.0.0.1:9092"):
    print(topic.topic, topic.state, topic.lag)
pause("127.0.0.1:9092", "chronik-pipeline-tables", ["orders"])

Records from an open transaction's first offset on cannot land until it ends, so the status shows such transactions.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from chronik.client.access.settings import Bootstrap
from chronik.client.cluster import ClusterClient
from chronik.client.errors import ApiNotSupported
from chronik.client.offsets import (
    LATEST_TIMESTAMP,
    READ_COMMITTED,
    list_earliest_offsets,
    list_latest_offsets,
    list_offsets,
)
from chronik.client.records import TopicPartition
from chronik.client.transactions import list_open_transactions, list_transactions
from chronik.errors import ChronikError
from chronik.pipeline.journal.journal_client import read_journal, write_pause_requests
from chronik.pipeline_journal import (
    ALL_TOPICS,
    DRIVER_SILENT_SECONDS,
    LandingState,
    PipelineJournalState,
    PipelineTopicKey,
    ReceivedProgress,
)
from chronik.protocol.errors import ErrorCode, KafkaError

CLIENT_ID: Final = "chronik-pipeline-status"

SILENT: Final = "silent"
"""The state of a topic whose driver no longer reports."""

PartitionBounds = Mapping[TopicPartition, tuple[int, int]]
"""The start and end offset of each partition."""

NO_TRANSACTIONS: Final[BlockingTransactions] = {}


@dataclass(frozen=True, slots=True)
class BlockingTransaction:
    """The open transaction that starts at a partition's last stable offset, and its producer."""

    producer_id: int
    producer_epoch: int
    start_offset: int
    """Offset of the transaction's first record in the partition; it equals the last stable offset."""
    last_ms: int
    """Timestamp of the transaction's last record in milliseconds, or -1 if unknown."""
    transactional_id: str | None = None
    """The transactional id, or None if no coordinator knows the producer."""


BlockingTransactions = Mapping[TopicPartition, BlockingTransaction]


def fetch_blocking_transactions(
    cluster: ClusterClient, ends: Mapping[TopicPartition, int]
) -> dict[TopicPartition, BlockingTransaction]:
    """Return the blocking transaction of each partition whose last stable offset is below its end offset.

    Brokers before Kafka 2.8 do not report producers, and those before 3.0 no transactional ids.

    Raises:
        ClientError: No broker responds.
        KafkaError: A broker rejects a request.
    """
    try:
        stable = list_offsets(cluster, dict.fromkeys(ends, LATEST_TIMESTAMP), READ_COMMITTED)
        unstable = [each for each, end in ends.items() if stable[each] < end]
        return _find_first_transactions(cluster, unstable) if unstable else {}
    except ApiNotSupported:
        return {}
    except KafkaError as error:
        if error.code.retriable:  # a leader is unavailable: the rest of the status is still useful
            return {}
        raise


def _find_first_transactions(
    cluster: ClusterClient, partitions: list[TopicPartition]
) -> dict[TopicPartition, BlockingTransaction]:
    found = list_open_transactions(cluster, partitions)
    transactional_ids = _fetch_transactional_ids(cluster, {each.producer.producer_id for each in found})
    first: dict[TopicPartition, BlockingTransaction] = {}
    for partition, producer in sorted(found, key=lambda each: -each.producer.current_txn_start_offset):
        first[partition] = BlockingTransaction(
            producer.producer_id,
            producer.producer_epoch,
            producer.current_txn_start_offset,
            producer.last_timestamp,
            transactional_ids.get(producer.producer_id),
        )
    return first


def _fetch_transactional_ids(cluster: ClusterClient, producer_ids: set[int]) -> dict[int, str]:
    if not producer_ids:
        return {}
    try:
        listed = list_transactions(cluster, producer_ids=sorted(producer_ids))
    except ApiNotSupported:
        return {}
    return {each.transaction.producer_id: each.transaction.transactional_id for each in listed}


class UnknownPipelineError(ChronikError):
    """No pipeline has this name, or the pipeline is ambiguous. The message lists the known pipelines."""


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    """The progress of landing one partition, that is, of writing its records to the topic's table."""

    partition: int
    next_offset: int | None
    """The offset below which all records were written to the table, or None if none were written yet."""
    high_watermark: int | None
    """The high watermark, or None if the partition's leader is unavailable."""
    lag: int | None
    held_by: BlockingTransaction | None = None
    """The open transaction, if any, that must end before further records can be written to the table."""


@dataclass(frozen=True, slots=True)
class TopicStatus:
    """The progress of landing one topic, that is, of writing its records to a table, in one pipeline."""

    pipeline: str
    topic: str
    table: str
    state: str
    """The reported state: landing, waiting, paused, failing or stopped; or `silent` if the driver no longer reports."""
    pause_asked: bool
    """Whether a pause was requested; it takes effect after the current round."""
    partitions: tuple[PartitionStatus, ...]
    rows_per_second: float
    """Rows per second written to the table in the last round that wrote any."""
    total_rows: int
    total_dead_letters: int
    """Number of dead-letter records since the driver started."""
    last_error: str | None
    last_error_ms: int | None
    host: str
    pid: int
    started_ms: int
    heard_ms: int
    quiet_seconds: float
    """Seconds since the last report."""
    round_rows: int = 0
    """Number of rows written in the last landing round that wrote any."""
    misfits: Mapping[str, int] = field(default_factory=dict)
    """Number of values that did not fit their column in the last round with rows, for columns with many such values."""

    @property
    def lag(self) -> int | None:
        """Number of offsets that are not in the table yet, or None if no partition's lag is known."""
        known = [each.lag for each in self.partitions if each.lag is not None]
        return sum(known) if known else None

    @property
    def is_silent(self) -> bool:
        return self.state == SILENT


def build_topic_statuses(
    journal: PipelineJournalState, ends: PartitionBounds, now_ms: int, held: BlockingTransactions = NO_TRANSACTIONS
) -> list[TopicStatus]:
    """Build the status of each topic. Deleted topics are omitted unless a driver still reports them."""
    found = []
    existing_topics = {partition.topic for partition in ends}
    for key, received in sorted(journal.progress.items()):
        topic_status = _build_status(key, received, journal.is_paused(key), ends, held, now_ms)
        if key.topic in existing_topics or topic_status.state not in (SILENT, LandingState.STOPPED):
            found.append(topic_status)
    return found


def _build_status(
    key: PipelineTopicKey,
    received: ReceivedProgress,
    pause_asked: bool,
    ends: PartitionBounds,
    held: BlockingTransactions,
    now_ms: int,
) -> TopicStatus:
    reported = received.progress
    quiet_seconds = max(0.0, (now_ms - received.at_ms) / 1000)
    is_driver_silent = quiet_seconds > DRIVER_SILENT_SECONDS and reported.state != LandingState.STOPPED
    partition_numbers = {each.partition for each in ends if each.topic == key.topic}
    return TopicStatus(
        pipeline=key.pipeline,
        topic=key.topic,
        table=reported.table,
        state=SILENT if is_driver_silent else reported.state,
        pause_asked=pause_asked,
        partitions=tuple(
            _build_partition_status(number, reported.next_offsets.get(number), ends.get(each), held.get(each))
            for number in sorted(partition_numbers | reported.next_offsets.keys())
            if (each := TopicPartition(key.topic, number))
        ),
        rows_per_second=reported.rows_per_second,
        total_rows=reported.total_rows,
        total_dead_letters=reported.total_dead_letters,
        last_error=reported.last_error,
        last_error_ms=reported.last_error_ms,
        host=reported.host,
        pid=reported.pid,
        started_ms=reported.started_ms,
        heard_ms=received.at_ms,
        quiet_seconds=quiet_seconds,
        round_rows=reported.round_rows,
        misfits=reported.round_misfits,
    )


def _build_partition_status(
    number: int, next_offset: int | None, ends: tuple[int, int] | None, held_by: BlockingTransaction | None
) -> PartitionStatus:
    if ends is None:
        return PartitionStatus(number, next_offset, None, None)
    start, end = ends
    # A partition that never landed starts with its first record. (0 is a valid offset.)
    lag = max(0, end - (start if next_offset is None else next_offset))
    return PartitionStatus(number, next_offset, end, lag, held_by)


# Queries


def status(
    bootstrap: Bootstrap, *, pipeline: str | None = None, topics: Collection[str] | None = None, timeout_s: float = 30.0
) -> list[TopicStatus]:
    """Return the status of all topics, or only those of the given pipeline or in `topics`.

    Raises:
        ClientError: No broker responds.
        KafkaError: A broker rejects a request.
    """
    with ClusterClient(bootstrap, client_id=CLIENT_ID, timeout_s=timeout_s) as cluster:
        return fetch_pipeline_status(cluster, pipeline=pipeline, topics=topics)


def fetch_pipeline_status(
    cluster: ClusterClient, *, pipeline: str | None = None, topics: Collection[str] | None = None
) -> list[TopicStatus]:
    """Return the same result as `status`, over an existing connection.

    Raises:
        ClientError: No broker responds.
        KafkaError: A broker rejects a request.
    """
    journal = read_journal(cluster)
    journal.progress = {
        key: received
        for key, received in journal.progress.items()
        if (pipeline is None or key.pipeline == pipeline) and (topics is None or key.topic in topics)
    }
    ends = _fetch_partition_bounds(cluster, {key.topic for key in journal.progress})
    held = fetch_blocking_transactions(cluster, {each: end for each, (_, end) in ends.items()})
    return build_topic_statuses(journal, ends, time.time_ns() // 1_000_000, held)


def _fetch_partition_bounds(cluster: ClusterClient, topics: Iterable[str]) -> dict[TopicPartition, tuple[int, int]]:
    """Return the start and end offsets of partitions; skip topics that do not exist or have no available leader."""
    found: dict[TopicPartition, tuple[int, int]] = {}
    for topic in sorted(topics):
        try:
            partitions = cluster.retry(lambda name=topic: cluster.partitions(name))  # type: ignore[misc]
            starts, ends = list_earliest_offsets(cluster, partitions), list_latest_offsets(cluster, partitions)
        except KafkaError as error:
            if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and not error.code.retriable:
                raise
            continue
        found |= {each: (starts[each], ends[each]) for each in partitions}
    return found


# Pause requests


def pause(
    bootstrap: Bootstrap, pipeline: str | None = None, topics: Sequence[str] = (), timeout_s: float = 30.0
) -> list[PipelineTopicKey]:
    """Pause writing these topics, or all topics of the pipeline, to their tables after the current round.

    The request stays in effect for drivers that start later. Without `pipeline`, the only existing pipeline is meant.
    Returns what was paused.

    Raises:
        UnknownPipelineError: No pipeline or more than one could be meant.
        ClientError: No broker responds.
        KafkaError: A broker rejects a request.
    """
    return _write_pause_state(bootstrap, pipeline, topics, True, timeout_s)


def resume(
    bootstrap: Bootstrap, pipeline: str | None = None, topics: Sequence[str] = (), timeout_s: float = 30.0
) -> list[PipelineTopicKey]:
    """Resume writing these topics, or all topics of the pipeline, to their tables.

    Raises:
        UnknownPipelineError: No pipeline or more than one could be meant.
        ClientError: No broker responds.
        KafkaError: A broker rejects a request.
    """
    return _write_pause_state(bootstrap, pipeline, topics, False, timeout_s)


def _write_pause_state(
    bootstrap: Bootstrap, pipeline: str | None, topics: Sequence[str], paused: bool, timeout_s: float
) -> list[PipelineTopicKey]:
    with ClusterClient(bootstrap, client_id=CLIENT_ID, timeout_s=timeout_s) as cluster:
        if pipeline is None:
            pipeline = resolve_pipeline(read_journal(cluster), topics)
        topic_keys = [PipelineTopicKey(pipeline, topic) for topic in topics or (ALL_TOPICS,)]
        write_pause_requests(cluster, dict.fromkeys(topic_keys, paused))
    return topic_keys


def list_reported_pipelines(bootstrap: Bootstrap, timeout_s: float = 30.0) -> list[str]:
    """Return the names of all pipelines for which a driver has ever reported.

    Raises:
        ClientError: No broker responds.
        KafkaError: A broker rejects a request.
    """
    with ClusterClient(bootstrap, client_id=CLIENT_ID, timeout_s=timeout_s) as cluster:
        return sorted({key.pipeline for key in read_journal(cluster).progress})


def resolve_pipeline(journal: PipelineJournalState, topics: Collection[str] = ()) -> str:
    """Return the name of the only pipeline that has reported, optionally considering only these topics.

    Raises:
        UnknownPipelineError: There is none, or more than one.
    """
    names = sorted({key.pipeline for key in journal.progress if not topics or key.topic in topics})
    if len(names) == 1:
        return names[0]
    of = f" for {', '.join(topics)}" if topics else ""
    if not names:
        raise UnknownPipelineError(f"no pipeline has reported{of}: name it with --pipeline")
    raise UnknownPipelineError(f"several pipelines have reported{of}: select one with --pipeline ({', '.join(names)})")

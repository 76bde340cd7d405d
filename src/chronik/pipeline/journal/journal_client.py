"""Readers and writers of the pipeline journal, the topic `__chronik_pipelines`; the first writer creates it.

`chronik.pipeline_journal` defines the records.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from chronik.client.admin import NewTopic, create_topics
from chronik.client.cluster import ClusterClient
from chronik.client.consumer import Consumer
from chronik.client.errors import RequestTimedOut
from chronik.client.offsets import list_earliest_offsets, list_latest_offsets
from chronik.client.producer import Producer
from chronik.client.records import OutgoingRecord, TopicPartition
from chronik.limits import KIB, MIB
from chronik.metadata.names import PIPELINES_TOPIC
from chronik.pipeline_journal import (
    CONTROL,
    PROGRESS,
    SCHEMA,
    ColumnInfo,
    PauseControl,
    PipelineJournalState,
    PipelineTopicKey,
    TableColumns,
    TopicProgress,
    encode_journal_key,
)
from chronik.protocol.errors import ErrorCode, KafkaError

JOURNAL_PARTITION: Final = TopicPartition(PIPELINES_TOPIC, 0)
OFFSETS_TOPIC: Final = "__consumer_offsets"
REPLICAS_MAX: Final = 3

SCHEMA_BYTES_MAX: Final = 256 * KIB
"""Maximum size of a schema record in bytes. A record that brokers reject would block later ones."""

TOPIC_CONFIGS: Final = {
    "cleanup.policy": "compact",
    # Two reports a second are 100 MB a day. Small segments are compacted early, which keeps reading the topic fast.
    "segment.bytes": str(8 * MIB),
    # Timestamps by the broker's clock make the age of reports comparable between machines.
    "message.timestamp.type": "LogAppendTime",
}


def encode_progress(topic_key: PipelineTopicKey, progress: TopicProgress | None) -> OutgoingRecord:
    """Encode a topic's progress as a journal record, or as a tombstone if `progress` is None."""
    return _encode_record(PROGRESS, topic_key, progress)


def encode_schema(topic_key: PipelineTopicKey, schema: TableColumns) -> OutgoingRecord:
    """Encode the schema of a topic's table as a journal record."""
    return _encode_record(SCHEMA, topic_key, schema)


def build_journal_schema(columns: Sequence[ColumnInfo]) -> TableColumns:
    """Build the journal's schema record, keeping only the leading columns that fit into SCHEMA_BYTES_MAX."""
    remaining_bytes = SCHEMA_BYTES_MAX
    for count, column in enumerate(columns):
        remaining_bytes -= len(msgspec.json.encode(column))
        if remaining_bytes < 0:
            return TableColumns(tuple(columns[:count]), len(columns) - count)
    return TableColumns(tuple(columns))


def encode_pause_control(topic_key: PipelineTopicKey, paused: bool) -> OutgoingRecord:
    """Encode a journal record that requests to pause or resume a topic."""
    return _encode_record(CONTROL, topic_key, PauseControl(paused))


def _encode_record(kind: str, topic_key: PipelineTopicKey, value: msgspec.Struct | None) -> OutgoingRecord:
    return OutgoingRecord(
        None if value is None else msgspec.json.encode(value),
        encode_journal_key(kind, topic_key),
        partition=JOURNAL_PARTITION.partition,
    )


class JournalReader:
    """An incremental reader of the pipeline journal, the topic with the progress of all pipelines.

    The first read covers the whole topic, later ones new records.
    """

    def __init__(self, cluster: ClusterClient) -> None:
        self._cluster = cluster
        self._consumer: Consumer | None = None
        self.journal = PipelineJournalState()

    def catch_up(self, monotonic: Callable[[], float] = time.monotonic) -> PipelineJournalState:
        """Read the journal up to its current end; do nothing if the topic does not exist.

        Raises:
            ClientError: No broker responds, or reading takes too long.
            KafkaError: A broker rejects a request.
        """
        deadline = monotonic() + self._cluster.timeout_s
        if self._consumer is None and not journal_exists(self._cluster):
            return self.journal
        try:
            end = list_latest_offsets(self._cluster, [JOURNAL_PARTITION])[JOURNAL_PARTITION]
            consumer = self._open_consumer(end)
            while consumer.positions[JOURNAL_PARTITION] < end:
                for record in consumer.poll():
                    self.journal.apply_record(record)
                if monotonic() > deadline:
                    raise RequestTimedOut(f"reading {PIPELINES_TOPIC} timed out after {self._cluster.timeout_s:g} s")
        except KafkaError as error:
            if error.code not in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.OFFSET_OUT_OF_RANGE):
                raise
            self._reset_consumer()
        return self.journal

    def _open_consumer(self, end: int) -> Consumer:
        if self._consumer is not None and self._consumer.positions[JOURNAL_PARTITION] > end:
            self._reset_consumer()  # the topic was deleted and created again
        if self._consumer is None:
            self._consumer = Consumer(self._cluster, list_earliest_offsets(self._cluster, [JOURNAL_PARTITION]))
        return self._consumer

    def _reset_consumer(self) -> None:
        self._consumer, self.journal = None, PipelineJournalState()


class JournalWriter:
    """A writer of records to the pipeline journal, which creates the journal topic if it does not exist."""

    def __init__(self, cluster: ClusterClient) -> None:
        self._cluster = cluster
        self._producer = Producer(cluster)
        self._has_topic = False

    def write(self, records: Iterable[OutgoingRecord]) -> None:
        """Write records to the journal and wait until the brokers acknowledge them.

        Raises:
            ClientError: No broker responds.
            KafkaError: A broker rejects a request.
        """
        if not self._has_topic:
            ensure_journal_topic(self._cluster)
            self._has_topic = True
        try:
            self._producer.send(PIPELINES_TOPIC, records)
        except KafkaError:
            self._has_topic = False  # the topic may have been deleted
            raise


def journal_exists(cluster: ClusterClient) -> bool:
    """Return whether the journal topic exists.

    Raises:
        ClientError: No broker responds.
        KafkaError: A broker rejects a request.
    """
    (topic,) = cluster.retry(lambda: cluster.metadata([PIPELINES_TOPIC])).topics
    return topic.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def ensure_journal_topic(cluster: ClusterClient) -> None:
    """Create the journal topic if it does not exist.

    Raises:
        ClientError: No broker responds.
        KafkaError: A broker rejects a request.
    """
    found = {topic.name: topic for topic in cluster.retry(lambda: cluster.metadata(None)).topics}
    if PIPELINES_TOPIC in found:
        return
    offsets_topic = found.get(OFFSETS_TOPIC)
    # Use the replication factor of the offsets topic, which the operator has chosen.
    replica_counts = [len(partition.replica_nodes) for partition in offsets_topic.partitions] if offsets_topic else []
    replicas = max(replica_counts, default=min(REPLICAS_MAX, len(cluster.metadata([]).brokers)))
    try:
        create_topics(cluster, [NewTopic(PIPELINES_TOPIC, 1, replicas, TOPIC_CONFIGS)])
    except KafkaError as error:
        if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
            raise


def read_journal(cluster: ClusterClient) -> PipelineJournalState:
    """Read the pipeline journal to its end, and return the reported state of all pipelines.

    Raises:
        ClientError: No broker responds.
        KafkaError: A broker rejects a request.
    """
    return JournalReader(cluster).catch_up()


def write_pause_requests(cluster: ClusterClient, controls: Mapping[PipelineTopicKey, bool]) -> None:
    """Write control records that pause (True) or resume (False) topics.

    Raises:
        ClientError: No broker responds.
        KafkaError: A broker rejects a request.
    """
    JournalWriter(cluster).write([encode_pause_control(topic_key, paused) for topic_key, paused in controls.items()])

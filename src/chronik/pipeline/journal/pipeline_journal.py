"""The pipeline journal: the compacted topic `__chronik_pipelines` with progress reports and pause requests.

    progress/<pipeline>/<topic>    landing progress of a topic, written by its driver
    schema/<pipeline>/<topic>      columns of the topic's table, written by its driver when they change
    control/<pipeline>/<topic>     whether the topic is paused, written by operators; topic `*` means the whole pipeline

Values are JSON; the last record of a key is valid. The topic has one partition, so that records are ordered. The first
writer creates it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

import msgspec

from chronik.client.admin import NewTopic, create_topics
from chronik.client.cluster import ClusterClient
from chronik.client.consumer import Consumer
from chronik.client.errors import RequestTimedOut
from chronik.client.offsets import list_earliest_offsets, list_latest_offsets
from chronik.client.producer import Producer
from chronik.client.records import ConsumedRecord, OutgoingRecord, TopicPartition
from chronik.limits import KIB, MIB
from chronik.metadata.names import PIPELINES_TOPIC
from chronik.pipeline.journal.reports import ColumnInfo
from chronik.protocol.errors import ErrorCode, KafkaError

T = TypeVar("T")

JOURNAL_PARTITION: Final = TopicPartition(PIPELINES_TOPIC, 0)
OFFSETS_TOPIC: Final = "__consumer_offsets"
REPLICAS_MAX: Final = 3

ALL_TOPICS: Final = "*"
"""The topic in a key that means all topics of a pipeline; it is not a valid topic name."""

PROGRESS, SCHEMA, CONTROL = "progress", "schema", "control"
"""Kinds of records, the first part of a key. Readers ignore unknown kinds, as versions before 0.6 ignore schemas."""

SCHEMA_BYTES_MAX: Final = 256 * KIB
"""Maximum size of a schema record. A record that brokers reject would block the other records."""

TOPIC_CONFIGS: Final = {
    "cleanup.policy": "compact",
    # Two reports a second are 100 MB a day. Small segments are compacted early, which keeps reading the topic fast.
    "segment.bytes": str(8 * MIB),
    # Timestamps by the broker's clock make the age of reports comparable between machines.
    "message.timestamp.type": "LogAppendTime",
}


class PipelineTopicKey(NamedTuple):
    """The key of a topic in a pipeline."""

    pipeline: str
    topic: str


class TopicProgress(msgspec.Struct, frozen=True, omit_defaults=True):
    """The last reported progress of a topic. New fields need defaults, to decode records of older drivers."""

    state: str
    table: str = ""
    next_offsets: dict[int, int] = {}
    high_watermarks: dict[int, int] = {}
    """End offsets as of the last planned round."""
    round_rows: int = 0
    """Rows of the last round that landed records."""
    round_seconds: float = 0.0
    total_rows: int = 0
    total_dead_letters: int = 0
    """Dead-letter records since the driver started."""
    last_error: str | None = None
    last_error_ms: int | None = None
    host: str = ""
    pid: int = 0
    started_ms: int = 0
    at_ms: int = 0
    """Time of the report by the driver's clock."""

    @property
    def rows_per_second(self) -> float:
        return self.round_rows / self.round_seconds if self.round_seconds > 0 else 0.0


class TableSchema(msgspec.Struct, frozen=True):
    """The columns of a topic's table. A separate record, since progress changes often and columns rarely."""

    columns: tuple[ColumnInfo, ...]
    left_out: int = 0
    """Number of further columns that did not fit into the record."""


class PauseControl(msgspec.Struct, frozen=True):
    """Whether landing of a topic is paused."""

    paused: bool


class ReceivedProgress(NamedTuple):
    """Progress, with the time at which the broker received it."""

    progress: TopicProgress
    at_ms: int


class PauseRequest(NamedTuple):
    """A control record and its offset in the journal, which decides between two of them."""

    paused: bool
    offset: int


class JournalState:
    """The latest record of each key in the pipeline journal."""

    def __init__(self) -> None:
        self.progress: dict[PipelineTopicKey, ReceivedProgress] = {}
        self.schemas: dict[PipelineTopicKey, TableSchema] = {}
        self.controls: dict[PipelineTopicKey, PauseRequest] = {}

    def apply_record(self, record: ConsumedRecord) -> None:
        """Update the journal with a record; ignore records in an unknown format, since any client may write."""
        kind, topic_key = _parse_key(record.key)
        if topic_key is None:
            return
        if kind == PROGRESS:
            progress = _decode_value(record.value, TopicProgress)
            _set_or_remove(
                self.progress, topic_key, None if progress is None else ReceivedProgress(progress, record.timestamp)
            )
        elif kind == SCHEMA:
            _set_or_remove(self.schemas, topic_key, _decode_value(record.value, TableSchema))
        elif kind == CONTROL:
            control = _decode_value(record.value, PauseControl)
            _set_or_remove(
                self.controls, topic_key, None if control is None else PauseRequest(control.paused, record.offset)
            )

    def is_paused(self, topic_key: PipelineTopicKey) -> bool:
        """Return whether a topic is paused, by the later one of its own control record and the pipeline's."""
        control_records = [self.controls.get(each) for each in (topic_key, topic_key._replace(topic=ALL_TOPICS))]
        return max(
            (each for each in control_records if each is not None), key=lambda each: each.offset, default=_NOT_PAUSED
        ).paused


_NOT_PAUSED: Final = PauseRequest(False, -1)


def encode_progress(topic_key: PipelineTopicKey, progress: TopicProgress | None) -> OutgoingRecord:
    """Encode a progress record, or a tombstone if `progress` is None."""
    return _encode_record(PROGRESS, topic_key, progress)


def encode_schema(topic_key: PipelineTopicKey, schema: TableSchema) -> OutgoingRecord:
    """Encode a schema record."""
    return _encode_record(SCHEMA, topic_key, schema)


def build_schema(columns: Sequence[ColumnInfo]) -> TableSchema:
    """Build a schema from as many leading columns as fit; column names come from records and may be long."""
    remaining_bytes = SCHEMA_BYTES_MAX
    for count, column in enumerate(columns):
        remaining_bytes -= len(msgspec.json.encode(column))
        if remaining_bytes < 0:
            return TableSchema(tuple(columns[:count]), len(columns) - count)
    return TableSchema(tuple(columns))


def encode_control(topic_key: PipelineTopicKey, paused: bool) -> OutgoingRecord:
    """Encode a control record that pauses or resumes a topic."""
    return _encode_record(CONTROL, topic_key, PauseControl(paused))


def _encode_record(kind: str, topic_key: PipelineTopicKey, value: msgspec.Struct | None) -> OutgoingRecord:
    key = f"{kind}/{topic_key.pipeline}/{topic_key.topic}".encode()
    return OutgoingRecord(
        None if value is None else msgspec.json.encode(value), key, partition=JOURNAL_PARTITION.partition
    )


def _parse_key(key: bytes | None) -> tuple[str, PipelineTopicKey | None]:
    """Split a record key. The pipeline's name may contain slashes, a topic's name cannot."""
    kind, _, rest = (key or b"").decode(errors="replace").partition("/")
    pipeline, slash, topic = rest.rpartition("/")
    return kind, PipelineTopicKey(pipeline, topic) if slash and pipeline and topic else None


def _decode_value(value: bytes | None, type: type[T]) -> T | None:
    try:
        return None if value is None else msgspec.json.decode(value, type=type)
    except msgspec.DecodeError:
        return None


def _set_or_remove(into: dict[PipelineTopicKey, T], topic_key: PipelineTopicKey, value: T | None) -> None:
    if value is None:
        into.pop(topic_key, None)
    else:
        into[topic_key] = value


class JournalReader:
    """An incremental reader of the pipeline journal: the first read reads the whole topic, later ones new records."""

    def __init__(self, cluster: ClusterClient) -> None:
        self._cluster = cluster
        self._consumer: Consumer | None = None
        self.journal = JournalState()

    def catch_up(self, monotonic: Callable[[], float] = time.monotonic) -> JournalState:
        """Read all records that exist now; none if the topic does not exist.

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
            self._reset()
        return self.journal

    def _open_consumer(self, end: int) -> Consumer:
        if self._consumer is not None and self._consumer.positions[JOURNAL_PARTITION] > end:
            self._reset()  # the topic was deleted and created again
        if self._consumer is None:
            self._consumer = Consumer(self._cluster, list_earliest_offsets(self._cluster, [JOURNAL_PARTITION]))
        return self._consumer

    def _reset(self) -> None:
        self._consumer, self.journal = None, JournalState()


class JournalWriter:
    """A writer of the pipeline journal, which creates the topic if necessary."""

    def __init__(self, cluster: ClusterClient) -> None:
        self._cluster = cluster
        self._producer = Producer(cluster)
        self._has_topic = False

    def write(self, records: Iterable[OutgoingRecord]) -> None:
        """Write records and wait until they are acknowledged.

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


def read_journal(cluster: ClusterClient) -> JournalState:
    """Read the pipeline journal.

    Raises:
        ClientError: No broker responds.
        KafkaError: A broker rejects a request.
    """
    return JournalReader(cluster).catch_up()


def write_pause_requests(cluster: ClusterClient, controls: Mapping[PipelineTopicKey, bool]) -> None:
    """Write pause requests: by topic, whether it is paused.

    Raises:
        ClientError: No broker responds.
        KafkaError: A broker rejects a request.
    """
    JournalWriter(cluster).write([encode_control(topic_key, paused) for topic_key, paused in controls.items()])

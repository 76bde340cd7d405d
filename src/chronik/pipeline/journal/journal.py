"""What pipelines say about themselves, and what they are told: the compacted topic `__chronik_pipelines`.

    progress/<pipeline>/<topic>    how far a topic is, written by the driver that lands it
    schema/<pipeline>/<topic>      which columns its table has, written by the driver when they change
    control/<pipeline>/<topic>     whether it is to pause, written by people; topic `*` means all of the pipeline

Values are JSON; the last one of a key counts. One partition, so that what was said later stands later. The topic is
made by whoever writes first.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

import msgspec

from chronik.client.admin import NewTopic, create_topics
from chronik.client.cluster import Cluster
from chronik.client.consumer import Consumer
from chronik.client.errors import RequestTimedOut
from chronik.client.offsets import earliest_offsets, latest_offsets
from chronik.client.producer import Producer
from chronik.client.records import ConsumedRecord, OutgoingRecord, TopicPartition
from chronik.limits import KIB, MIB
from chronik.metadata.names import PIPELINES_TOPIC
from chronik.pipeline.journal.reporting import Column
from chronik.protocol.errors import ErrorCode, KafkaError

T = TypeVar("T")

PARTITION: Final = TopicPartition(PIPELINES_TOPIC, 0)
OFFSETS_TOPIC: Final = "__consumer_offsets"
REPLICAS_MAX: Final = 3

EVERY_TOPIC: Final = "*"
"""Stands in the place of a topic. No topic has this name."""

PROGRESS, SCHEMA, CONTROL = "progress", "schema", "control"
"""Readers pass over kinds that they do not know, as those of before 0.6 do with schemas."""

SCHEMA_BYTES_MAX: Final = 256 * KIB
"""A table has 500 columns at most. A record that brokers refuse would keep the others from being written."""

CONFIGS: Final = {
    "cleanup.policy": "compact",
    # Two reports a second are 100 MB a day: closed early, they are compacted early, and reading all takes no time.
    "segment.bytes": str(8 * MIB),
    # The age of news is then told by one clock, whatever machines the drivers run on.
    "message.timestamp.type": "LogAppendTime",
}


class Place(NamedTuple):
    pipeline: str
    topic: str


class Progress(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a driver last said of a topic. Fields are only ever added, with defaults: older drivers stay readable."""

    state: str
    table: str = ""
    next_offsets: dict[int, int] = {}
    high_watermarks: dict[int, int] = {}
    """As of the round that the driver planned last."""
    round_rows: int = 0
    """Rows of the last round that landed something."""
    round_seconds: float = 0.0
    total_rows: int = 0
    total_dead_letters: int = 0
    """Counted since the driver started."""
    last_error: str | None = None
    last_error_ms: int | None = None
    host: str = ""
    pid: int = 0
    started_ms: int = 0
    at_ms: int = 0
    """The driver's own clock, when it said so."""

    @property
    def rows_per_second(self) -> float:
        return self.round_rows / self.round_seconds if self.round_seconds > 0 else 0.0


class Schema(msgspec.Struct, frozen=True):
    """The columns of a topic's table. A record of its own: progress is told twice a second, columns hardly ever."""

    columns: tuple[Column, ...]
    left_out: int = 0
    """Further columns, for which a record has no room."""


class Control(msgspec.Struct, frozen=True):
    paused: bool


class Heard(NamedTuple):
    """Progress, and when the broker got it."""

    progress: Progress
    at_ms: int


class Said(NamedTuple):
    """A control record and its place in the journal: of two, the later one counts."""

    paused: bool
    offset: int


class Journal:
    """The last record of each key. Fed by whoever reads the topic."""

    def __init__(self) -> None:
        self.progress: dict[Place, Heard] = {}
        self.schemas: dict[Place, Schema] = {}
        self.controls: dict[Place, Said] = {}

    def take(self, record: ConsumedRecord) -> None:
        """Ignores records that are not ours: anyone may write to a topic."""
        kind, place = _parsed_key(record.key)
        if place is None:
            return
        if kind == PROGRESS:
            progress = _decoded(record.value, Progress)
            _put(self.progress, place, None if progress is None else Heard(progress, record.timestamp))
        elif kind == SCHEMA:
            _put(self.schemas, place, _decoded(record.value, Schema))
        elif kind == CONTROL:
            control = _decoded(record.value, Control)
            _put(self.controls, place, None if control is None else Said(control.paused, record.offset))

    def paused(self, place: Place) -> bool:
        """Goes by what was said of the topic or of all topics, whichever was said last."""
        said = [self.controls.get(each) for each in (place, place._replace(topic=EVERY_TOPIC))]
        return max((each for each in said if each is not None), key=lambda each: each.offset, default=_NEVER).paused


_NEVER: Final = Said(False, -1)


def progress_record(place: Place, progress: Progress | None) -> OutgoingRecord:
    """With None the place is forgotten."""
    return _record(PROGRESS, place, progress)


def schema_record(place: Place, schema: Schema) -> OutgoingRecord:
    return _record(SCHEMA, place, schema)


def schema_told(columns: Sequence[Column]) -> Schema:
    """Keeps the first of them, as far as they fit: their names come from records, and may be of any length."""
    room = SCHEMA_BYTES_MAX
    for count, column in enumerate(columns):
        room -= len(msgspec.json.encode(column))
        if room < 0:
            return Schema(tuple(columns[:count]), len(columns) - count)
    return Schema(tuple(columns))


def control_record(place: Place, paused: bool) -> OutgoingRecord:
    return _record(CONTROL, place, Control(paused))


def _record(kind: str, place: Place, value: msgspec.Struct | None) -> OutgoingRecord:
    key = f"{kind}/{place.pipeline}/{place.topic}".encode()
    return OutgoingRecord(None if value is None else msgspec.json.encode(value), key, partition=PARTITION.partition)


def _parsed_key(key: bytes | None) -> tuple[str, Place | None]:
    """A pipeline's name may have slashes in it, a topic's has none."""
    kind, _, rest = (key or b"").decode(errors="replace").partition("/")
    pipeline, slash, topic = rest.rpartition("/")
    return kind, Place(pipeline, topic) if slash and pipeline and topic else None


def _decoded(value: bytes | None, type: type[T]) -> T | None:
    try:
        return None if value is None else msgspec.json.decode(value, type=type)
    except msgspec.DecodeError:
        return None


def _put(into: dict[Place, T], place: Place, value: T | None) -> None:
    if value is None:
        into.pop(place, None)
    else:
        into[place] = value


class JournalReader:
    """Keeps a journal up to date: the first look reads all of the topic, later ones what was added."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._consumer: Consumer | None = None
        self.journal = Journal()

    def catch_up(self, monotonic: Callable[[], float] = time.monotonic) -> Journal:
        """Reads all that was there at the call; nothing if there is no such topic. Raises ClientError or KafkaError."""
        deadline = monotonic() + self._cluster.timeout_s
        if self._consumer is None and not is_there(self._cluster):
            return self.journal
        try:
            end = latest_offsets(self._cluster, [PARTITION])[PARTITION]
            consumer = self._opened(end)
            while consumer.positions[PARTITION] < end:
                for record in consumer.poll():
                    self.journal.take(record)
                if monotonic() > deadline:
                    raise RequestTimedOut(f"{PIPELINES_TOPIC} could not be read within {self._cluster.timeout_s:g} s")
        except KafkaError as error:
            if error.code not in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.OFFSET_OUT_OF_RANGE):
                raise
            self._start_over()
        return self.journal

    def _opened(self, end: int) -> Consumer:
        if self._consumer is not None and self._consumer.positions[PARTITION] > end:
            self._start_over()  # the topic was deleted and made again
        if self._consumer is None:
            self._consumer = Consumer(self._cluster, earliest_offsets(self._cluster, [PARTITION]))
        return self._consumer

    def _start_over(self) -> None:
        self._consumer, self.journal = None, Journal()


class JournalWriter:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._producer = Producer(cluster)
        self._topic_is_there = False

    def write(self, records: Iterable[OutgoingRecord]) -> None:
        """Returns when the records are acknowledged. Raises ClientError or KafkaError."""
        if not self._topic_is_there:
            ensure_topic(self._cluster)
            self._topic_is_there = True
        try:
            self._producer.send(PIPELINES_TOPIC, records)
        except KafkaError:
            self._topic_is_there = False  # somebody may have deleted it
            raise


def is_there(cluster: Cluster) -> bool:
    """Whether anybody has ever written. Raises ClientError or KafkaError."""
    (topic,) = cluster.retrying(lambda: cluster.metadata([PIPELINES_TOPIC])).topics
    return topic.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def ensure_topic(cluster: Cluster) -> None:
    """Makes the topic unless it is there. Raises ClientError or KafkaError."""
    found = {topic.name: topic for topic in cluster.retrying(lambda: cluster.metadata(None)).topics}
    if PIPELINES_TOPIC in found:
        return
    offsets_topic = found.get(OFFSETS_TOPIC)
    # As many copies as of committed offsets: whoever runs the cluster has decided how much those are worth.
    copies = [len(partition.replica_nodes) for partition in offsets_topic.partitions] if offsets_topic else []
    replicas = max(copies, default=min(REPLICAS_MAX, len(cluster.metadata([]).brokers)))
    try:
        create_topics(cluster, [NewTopic(PIPELINES_TOPIC, 1, replicas, CONFIGS)])
    except KafkaError as error:
        if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
            raise


def read_journal(cluster: Cluster) -> Journal:
    """Raises ClientError or KafkaError."""
    return JournalReader(cluster).catch_up()


def write_controls(cluster: Cluster, controls: Mapping[Place, bool]) -> None:
    """Tells whether each is to pause. Raises ClientError or KafkaError."""
    JournalWriter(cluster).write([control_record(place, paused) for place, paused in controls.items()])

"""The format of the pipeline journal, the compacted topic `__chronik_pipelines`: progress reports and pause requests.

    progress/<pipeline>/<topic>    landing progress of a topic, written by its driver
    schema/<pipeline>/<topic>      columns of the topic's table, written by its driver when they change
    control/<pipeline>/<topic>     whether the topic is paused, written by operators; topic `*` means the whole pipeline

Values are JSON; the last record of a key is valid. The topic has one partition, so that records are ordered.

Pipelines write the journal, and nodes read it for the admin API. This module is therefore below both of them, and needs
none of the pipeline's libraries. The sample rows that nodes request from drivers are defined here for the same reason.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple, Protocol, TypeVar

import msgspec

T = TypeVar("T")

ALL_TOPICS: Final = "*"
"""Placeholder for the topic name in a record key, which stands for all topics of a pipeline."""

PROGRESS, SCHEMA, CONTROL = "progress", "schema", "control"
"""Types of journal records. Readers ignore unknown types."""

DRIVER_SILENT_SECONDS: Final = 30.0
"""Seconds without reports after which a driver is considered silent: three heartbeat intervals."""


class LandingState(StrEnum):
    """The state of writing a topic to its table, as the pipeline's driver reports it."""

    LANDING = "landing"
    """The driver is writing records to the table, and more records remain."""
    WAITING = "waiting"
    """All existing records have been written to the table."""
    PAUSED = "paused"
    FAILING = "failing"
    """The last attempt to write records to the table failed with `last_error` and will be retried."""
    STOPPED = "stopped"
    """The driver has stopped after a final report."""


@dataclass(frozen=True, slots=True)
class ColumnInfo:
    """A column of a topic's table."""

    name: str
    type: str
    """The Spark SQL type, such as `bigint`."""


class PipelineTopicKey(NamedTuple):
    """The names of a pipeline and of one of its topics, used as a key."""

    pipeline: str
    topic: str


class TableMaintenance(msgspec.Struct, frozen=True, omit_defaults=True):
    """The last maintenance of a topic's table or dead-letter table by the driver. New fields need defaults."""

    table: str
    """URI of the table."""
    action: str
    """`compaction`, `metadata`, `vacuum`, or `examination` if the table could not be examined."""
    outcome: str
    """`done`, `abandoned` because of a concurrent commit, or `failed`."""
    at_ms: int = 0
    seconds: float = 0.0
    files_removed: int = 0
    files_added: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    files_deleted: int = 0
    versions_expired: int = 0
    error: str | None = None


class TopicProgress(msgspec.Struct, frozen=True, omit_defaults=True):
    """The last reported progress of a topic. New fields need defaults, to decode records of older drivers."""

    state: str
    table: str = ""
    next_offsets: dict[int, int] = {}
    high_watermarks: dict[int, int] = {}
    """End offset of each partition when the last round was planned."""
    round_rows: int = 0
    """Number of rows written in the last round that wrote any."""
    round_seconds: float = 0.0
    total_rows: int = 0
    total_dead_letters: int = 0
    """Number of dead-letter records since the driver started."""
    last_error: str | None = None
    last_error_ms: int | None = None
    host: str = ""
    pid: int = 0
    started_ms: int = 0
    at_ms: int = 0
    """Time of the report according to the driver's clock, in milliseconds since the epoch."""
    round_engine: str = ""
    """Where the last round with rows ran: `driver` or `spark`."""
    round_bytes_max: int = 0
    """Maximum bytes of a landing round of all topics while it is reduced, because the store is slow; 0 otherwise."""
    round_misfits: dict[str, int] = {}
    """Number of values in the last round that did not fit their column, for columns with more than 1 % of them."""
    maintenance: TableMaintenance | None = None
    """The last maintenance since the driver started, or None."""

    @property
    def rows_per_second(self) -> float:
        return self.round_rows / self.round_seconds if self.round_seconds > 0 else 0.0


class TableColumns(msgspec.Struct, frozen=True):
    """The columns of a topic's table, stored separately from the progress because they change rarely."""

    columns: tuple[ColumnInfo, ...]
    left_out: int = 0
    """Number of columns that did not fit into the record."""


class PauseControl(msgspec.Struct, frozen=True):
    """A control record that pauses or resumes writing a topic to its table."""

    paused: bool


class ReceivedProgress(NamedTuple):
    """A driver's progress report with the time at which the broker received it."""

    progress: TopicProgress
    at_ms: int


class PauseRequest(NamedTuple):
    """A request to pause or resume a topic, with its offset in the journal. The latest request applies."""

    paused: bool
    offset: int


class JournalRecord(Protocol):
    """The interface of a record of the pipeline journal, whichever Kafka client has read it."""

    @property
    def offset(self) -> int: ...
    @property
    def timestamp(self) -> int: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...


class PipelineJournalState:
    """The latest journal record of each key: progress, columns and pause requests of all pipelines."""

    def __init__(self) -> None:
        self.progress: dict[PipelineTopicKey, ReceivedProgress] = {}
        self.schemas: dict[PipelineTopicKey, TableColumns] = {}
        self.controls: dict[PipelineTopicKey, PauseRequest] = {}

    def apply_record(self, record: JournalRecord) -> None:
        """Apply a journal record. Ignore records in an unknown format, because any client may write to the topic."""
        kind, topic_key = _parse_key(record.key)
        if topic_key is None:
            return
        if kind == PROGRESS:
            progress = _decode_value(record.value, TopicProgress)
            _set_or_remove_key(
                self.progress, topic_key, None if progress is None else ReceivedProgress(progress, record.timestamp)
            )
        elif kind == SCHEMA:
            _set_or_remove_key(self.schemas, topic_key, _decode_value(record.value, TableColumns))
        elif kind == CONTROL:
            control = _decode_value(record.value, PauseControl)
            _set_or_remove_key(
                self.controls, topic_key, None if control is None else PauseRequest(control.paused, record.offset)
            )

    def is_paused(self, topic_key: PipelineTopicKey) -> bool:
        """Return whether a topic is paused, by the latest request for the topic or for its whole pipeline."""
        control_records = [self.controls.get(each) for each in (topic_key, topic_key._replace(topic=ALL_TOPICS))]
        return max(
            (each for each in control_records if each is not None), key=lambda each: each.offset, default=_NOT_PAUSED
        ).paused


_NOT_PAUSED: Final = PauseRequest(False, -1)


def encode_journal_key(kind: str, topic_key: PipelineTopicKey) -> bytes:
    """Return the key of a journal record, built from its type, pipeline and topic."""
    return f"{kind}/{topic_key.pipeline}/{topic_key.topic}".encode()


def _parse_key(key: bytes | None) -> tuple[str, PipelineTopicKey | None]:
    """Split a record key. A pipeline name may contain slashes; a topic name cannot."""
    kind, _, rest = (key or b"").decode(errors="replace").partition("/")
    pipeline, slash, topic = rest.rpartition("/")
    return kind, PipelineTopicKey(pipeline, topic) if slash and pipeline and topic else None


def _decode_value(value: bytes | None, type: type[T]) -> T | None:
    try:
        return None if value is None else msgspec.json.decode(value, type=type)
    except msgspec.DecodeError:
        return None


def _set_or_remove_key(into: dict[PipelineTopicKey, T], topic_key: PipelineTopicKey, value: T | None) -> None:
    if value is None:
        into.pop(topic_key, None)
    else:
        into[topic_key] = value


class TableSample(msgspec.Struct, omit_defaults=True):
    """Sample rows of a table as reported by a driver (JSON). New fields need defaults."""

    columns: list[str] = []
    rows: list[list[str | None]] = []
    columns_left_out: int = 0
    error: str | None = None
    """The reason why there are no rows, or None."""

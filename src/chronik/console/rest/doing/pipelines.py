"""Pipelines: what their drivers have written to the journal, `__chronik_pipelines`."""

from __future__ import annotations

import time
from typing import Any, Final, NamedTuple

import msgspec

from chronik.broker.requests.samples import PIPELINES_TOPIC
from chronik.client.offsets import LATEST
from chronik.client.records import TopicPartition
from chronik.console.rest.call import Call, missing
from chronik.console.rest.doing.positions import bounds, partitions_of
from chronik.console.rest.doing.reading import Reader
from chronik.console.rest.doing.shared import led_by, metadata_of, offsets_now, paged
from chronik.console.rest.shapes.common import NoQuestion, Page, Searching
from chronik.console.rest.shapes.pipelines import Pipeline, PipelineDetails, PipelineTopic, TableColumn
from chronik.protocol.errors import ErrorCode, KafkaError

EVERY_TOPIC: Final = "*"
READ_SECONDS_MAX: Final = 4.0


class Progress(msgspec.Struct):
    """What a driver says of a topic: see `chronik.pipeline.journal`, which stands above this room."""

    state: str
    table: str = ""
    next_offsets: dict[int, int] = {}
    high_watermarks: dict[int, int] = {}
    round_rows: int = 0
    round_seconds: float = 0.0
    total_rows: int = 0
    total_dead_letters: int = 0
    last_error: str | None = None
    last_error_ms: int | None = None
    host: str = ""
    pid: int = 0
    started_ms: int = 0


class Schema(msgspec.Struct):
    """A record of its own, which drivers write when it changes; those from before 0.6 do not."""

    columns: list[TableColumn]
    left_out: int = 0


class Control(msgspec.Struct):
    paused: bool


class Place(NamedTuple):
    pipeline: str
    topic: str


class Journal:
    def __init__(self) -> None:
        self.progress: dict[Place, tuple[Progress, int]] = {}
        self.schemas: dict[Place, Schema] = {}
        self.controls: dict[Place, tuple[int, bool]] = {}

    def take(self, offset: int, timestamp: int, key: bytes | None, value: bytes | None) -> None:
        """Ignores records that are not drivers': anyone may write to a topic."""
        kind, _, rest = (key or b"").decode(errors="replace").partition("/")
        pipeline, _, topic = rest.rpartition("/")
        place = Place(pipeline, topic)
        if kind == "progress":
            progress = _decoded(value, Progress)
            self.progress.pop(place, None)
            if progress is not None:
                self.progress[place] = progress, timestamp
        elif kind == "schema":
            schema = _decoded(value, Schema)
            self.schemas.pop(place, None)
            if schema is not None:
                self.schemas[place] = schema
        elif kind == "control":
            control = _decoded(value, Control)
            self.controls[place] = offset, control is not None and control.paused

    def is_paused(self, place: Place) -> bool:
        said = [self.controls.get(each, (-1, False)) for each in (place, Place(place.pipeline, EVERY_TOPIC))]
        return max(said)[1]


def _decoded(value: bytes | None, shape: type[Any]) -> Any:
    try:
        return None if value is None else msgspec.json.decode(value, type=shape)
    except msgspec.DecodeError:
        return None


def read_journal(call: Call) -> Journal:
    """Returns an empty one where no driver has ever written. Raises KafkaError, ClientError."""
    journal = Journal()
    (found,) = call.cluster.retrying(lambda: call.cluster.metadata([PIPELINES_TOPIC])).topics
    if found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return journal
    topic, partitions = partitions_of(call, PIPELINES_TOPIC, None)
    starts, ends = bounds(call, topic, partitions, 0)
    reader = Reader(call, starts, committed=False)
    deadline = time.monotonic() + READ_SECONDS_MAX
    while left := [each for each in starts if reader.positions[each] < ends[each]]:
        for batch in reader.fetch(left):
            for record in batch.records():
                journal.take(record.offset, record.timestamp, record.key, record.value)
        if time.monotonic() > deadline:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"{PIPELINES_TOPIC} could not be read in time")
    return journal


def list_all(call: Call, asked: Searching) -> Page[Pipeline]:
    journal = read_journal(call)
    page = paged({place.pipeline for place in journal.progress}, asked.search, asked.after, asked.limit)
    items = []
    for name in page.items:
        topics = _topics(call, journal, name)
        lags = [each.lag for each in topics]
        failed = max(
            (each for each in topics if each.last_error), key=lambda each: each.last_error_ms or 0, default=None
        )
        items.append(
            Pipeline(
                name,
                len(topics),
                sorted({each.state for each in topics}),
                None if None in lags else sum(each or 0 for each in lags),
                failed.last_error if failed is not None else None,
                max(each.updated_ms for each in topics),
            )
        )
    return Page(items, page.next, page.total)


def show(call: Call, asked: NoQuestion) -> PipelineDetails:
    name = call.path["pipeline"]
    topics = _topics(call, read_journal(call), name)
    if not topics:
        raise missing(f"no driver has told of a pipeline {name!r}")
    return PipelineDetails(name, topics)


def _topics(call: Call, journal: Journal, name: str) -> list[PipelineTopic]:
    found = {place for place in journal.progress if place.pipeline == name}
    ends = _ends(call, sorted({place.topic for place in found}))
    return [_topic(journal, place, ends) for place in sorted(found)]


def _ends(call: Call, topics: list[str]) -> dict[TopicPartition, int]:
    """Of those that the principal may describe."""
    known = metadata_of(call.cluster, topics)
    return {each: offset for each, (offset, _) in offsets_now(call, led_by(known.values()), LATEST).items()}


def _topic(journal: Journal, place: Place, ends: dict[TopicPartition, int]) -> PipelineTopic:
    told, at_ms = journal.progress[place]
    schema = journal.schemas.get(place)
    known = {each.partition: end for each, end in ends.items() if each.topic == place.topic}
    marks = known or told.high_watermarks
    lag = sum(max(0, end - told.next_offsets.get(index, 0)) for index, end in marks.items()) if marks else None
    return PipelineTopic(
        place.topic,
        told.state,
        told.table,
        journal.is_paused(place),
        lag,
        told.next_offsets,
        told.high_watermarks,
        round(told.round_rows / told.round_seconds, 1) if told.round_seconds > 0 else 0.0,
        told.total_rows,
        told.total_dead_letters,
        told.last_error,
        told.last_error_ms,
        told.host,
        told.pid,
        told.started_ms,
        at_ms,
        None if schema is None else schema.columns,
        0 if schema is None else schema.left_out,
    )

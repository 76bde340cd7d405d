"""Pipelines: what their drivers have written to the journal, `__chronik_pipelines`, and rows of their tables, which the
drivers read: the node itself reads no tables."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any, Final, NamedTuple

import msgspec

from chronik.client.cluster import raise_for
from chronik.client.offsets import LATEST
from chronik.client.records import TopicPartition
from chronik.console.rest.call import Call, missing
from chronik.console.rest.doing.positions import bounds, partitions_of
from chronik.console.rest.doing.reading import Reader
from chronik.console.rest.doing.shared import led_by, metadata_of, offsets_now, paged
from chronik.console.rest.refusals import Refusal
from chronik.console.rest.shapes.common import NoQuestion, Page, Searching
from chronik.console.rest.shapes.pipelines import (
    Pipeline,
    PipelineDetails,
    PipelineTopic,
    Sample,
    SampleRows,
    TableColumn,
)
from chronik.metadata.names import PIPELINES_TOPIC
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.protocol.messages.sample_table import SampleTableRequest, SampleTableResponse

EVERY_TOPIC: Final = "*"
READ_SECONDS_MAX: Final = 4.0

SAMPLE_SECONDS_MAX: Final = 10.0
"""A driver hears a question at once, and reads a table on any store in less."""

SILENT_SECONDS: Final = 30.0
"""Drivers tell of themselves every ten: see `chronik.pipeline.journal.status`."""

ASKED_AT_ONCE_MAX: Final = 4
"""Half of the threads that operations have: drivers that do not answer hold up nothing else."""
ASKED_PER_ACCOUNT_MAX: Final = 2
"""Those of one account."""

_asking: Final[Counter[str]] = Counter()
_asking_lock: Final = threading.Lock()


@contextmanager
def _asking_driver(account: str) -> Iterator[None]:
    """Count a request to a driver. Raises Refusal when too many are waiting."""
    with _asking_lock:
        if _asking.total() >= ASKED_AT_ONCE_MAX or _asking[account] >= ASKED_PER_ACCOUNT_MAX:
            raise Refusal(HTTPStatus.TOO_MANY_REQUESTS, "too many ask drivers for rows: try again")
        _asking[account] += 1
    try:
        yield
    finally:
        with _asking_lock:
            _asking[account] -= 1
            if not _asking[account]:
                del _asking[account]


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


def _read(call: Call) -> Journal:
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
    journal = _read(call)
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
    topics = _topics(call, _read(call), name)
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


# Rows


class Told(msgspec.Struct):
    """What a driver answers: see `chronik.pipeline.tables.showing`, which stands above this room."""

    columns: list[str] = []
    rows: list[list[str | None]] = []
    columns_left_out: int = 0
    error: str | None = None


def sample(call: Call, asked: SampleRows) -> Sample:
    place = Place(call.path["pipeline"], asked.topic)
    check_driver(_read(call), place, time.time())
    with _asking_driver(call.account):
        told = _ask(call, place, asked.rows)
    try:
        found = msgspec.json.decode(told, type=Told)
    except msgspec.DecodeError as error:
        raise Refusal(HTTPStatus.SERVICE_UNAVAILABLE, f"the driver's answer cannot be read: {error}") from None
    if found.error is not None:
        raise Refusal(HTTPStatus.SERVICE_UNAVAILABLE, f"the driver has no rows to show: {found.error}")
    return Sample(found.columns, found.columns_left_out, found.rows)


def check_driver(journal: Journal, place: Place, now_s: float) -> None:
    """Raises Refusal when there is none that could answer."""
    heard = journal.progress.get(place)
    if heard is None:
        raise missing(f"no driver has told of topic {place.topic!r} in pipeline {place.pipeline!r}")
    progress, at_ms = heard
    if progress.state == "stopped":
        told = f"the driver of {place.pipeline} has stopped: rows are shown while it runs"
        raise Refusal(HTTPStatus.SERVICE_UNAVAILABLE, told)
    quiet_s = now_s - at_ms / 1000
    if quiet_s > SILENT_SECONDS:
        told = f"the driver of {place.pipeline} was last heard {quiet_s:,.0f} s ago: rows are shown while it runs"
        raise Refusal(HTTPStatus.SERVICE_UNAVAILABLE, told)


def _ask(call: Call, place: Place, rows: int) -> bytes:
    """Asks where drivers come for questions. Raises KafkaError, ClientError."""
    cluster = call.cluster
    request = SampleTableRequest(
        pipeline=place.pipeline, topic=place.topic, rows=rows, timeout_ms=int(SAMPLE_SECONDS_MAX * 1000)
    )

    def ask() -> SampleTableResponse:
        leader = cluster.leader(TopicPartition(PIPELINES_TOPIC, 0))
        response = leader.request(request, SampleTableResponse, wait_s=SAMPLE_SECONDS_MAX)
        raise_for(response.error_code, f"rows of topic {place.topic}", response.error_message)
        return response

    return bytes(cluster.retrying(ask).sample)

"""Rows of a table, through the driver that lands it: the node itself reads no tables."""

from __future__ import annotations

import threading
import time
from http import HTTPStatus
from typing import Final

import msgspec

from chronik.broker.requests.samples import PIPELINES_TOPIC
from chronik.client.cluster import raise_for
from chronik.client.records import TopicPartition
from chronik.console.rest.call import Call, missing
from chronik.console.rest.doing.pipelines import Journal, Place, read_journal
from chronik.console.rest.refusals import Refusal
from chronik.console.rest.shapes.pipelines import Sample, SampleRows
from chronik.protocol.messages.sample_table import SampleTableRequest, SampleTableResponse

WAIT_SECONDS: Final = 10.0
"""A driver hears a question at once, and reads a table on any store in less."""

SILENT_SECONDS: Final = 30.0
"""Drivers tell of themselves every ten: see `chronik.pipeline.journal.status`."""

ASKED_AT_ONCE_MAX: Final = 4
"""Half of the threads that operations have: drivers that do not answer hold up nothing else."""

_asking: Final = threading.BoundedSemaphore(ASKED_AT_ONCE_MAX)


class Told(msgspec.Struct):
    """What a driver answers: see `chronik.pipeline.tables.showing`, which stands above this room."""

    columns: list[str] = []
    rows: list[list[str | None]] = []
    columns_left_out: int = 0
    error: str | None = None


def sample(call: Call, asked: SampleRows) -> Sample:
    place = Place(call.path["pipeline"], asked.topic)
    check_driver(read_journal(call), place, time.time())
    if not _asking.acquire(blocking=False):
        raise Refusal(HTTPStatus.TOO_MANY_REQUESTS, "too many ask drivers for rows: try again")
    try:
        told = _ask(call, place, asked.rows)
    finally:
        _asking.release()
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
        pipeline=place.pipeline, topic=place.topic, rows=rows, timeout_ms=int(WAIT_SECONDS * 1000)
    )

    def ask() -> SampleTableResponse:
        leader = cluster.leader(TopicPartition(PIPELINES_TOPIC, 0))
        response = leader.request(request, SampleTableResponse, wait_s=WAIT_SECONDS)
        raise_for(response.error_code, f"rows of topic {place.topic}", response.error_message)
        return response

    return bytes(cluster.retrying(ask).sample)

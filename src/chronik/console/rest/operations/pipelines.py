"""Operations on pipelines, read from the pipeline journal `__chronik_pipelines`.

Sample rows are read by the drivers; the node itself reads no tables.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from typing import Final

import msgspec

from chronik.client.cluster import raise_for_code
from chronik.client.offsets import LATEST_TIMESTAMP
from chronik.client.records import TopicPartition
from chronik.console.rest.context import OperationContext, build_not_found_error
from chronik.console.rest.errors import RestError
from chronik.console.rest.models.common import NoQuestion, Page, Searching
from chronik.console.rest.models.pipelines import (
    Pipeline,
    PipelineDetails,
    PipelineTopic,
    Sample,
    SampleRows,
    TableColumn,
)
from chronik.console.rest.operations.batch_reader import BatchReader
from chronik.console.rest.operations.positions import fetch_available_partitions, fetch_offset_bounds
from chronik.console.rest.operations.shared import (
    fetch_available_offsets,
    fetch_topic_metadata,
    group_partitions_by_leader,
    paginate_names,
)
from chronik.metadata.names import PIPELINES_TOPIC
from chronik.pipeline_journal import (
    DRIVER_SILENT_SECONDS,
    LandingState,
    PipelineJournalState,
    PipelineTopicKey,
    TableSample,
)
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.protocol.messages.sample_table import SampleTableRequest, SampleTableResponse

READ_SECONDS_MAX: Final = 4.0
FIRST_TOPICS_MAX: Final = 10
"""Maximum number of topics of a pipeline that the list of pipelines names."""

SAMPLE_SECONDS_MAX: Final = 10.0
"""Timeout in seconds of a request to a driver, the process that runs a pipeline, for sample rows of a table."""

DRIVER_REQUESTS_MAX: Final = 4
"""Maximum number of concurrent requests to drivers: half of the API's threads, so that unresponsive drivers cannot
block other operations."""
DRIVER_REQUESTS_PER_ACCOUNT_MAX: Final = 2
"""Maximum number of concurrent requests to drivers per account."""

_driver_requests: Final[Counter[str]] = Counter()
_driver_requests_lock: Final = threading.Lock()


@contextmanager
def _limit_driver_requests(account: str) -> Iterator[None]:
    """Limit the number of concurrent requests to pipeline drivers. Raise RestError if there are too many."""
    with _driver_requests_lock:
        if (
            _driver_requests.total() >= DRIVER_REQUESTS_MAX
            or _driver_requests[account] >= DRIVER_REQUESTS_PER_ACCOUNT_MAX
        ):
            raise RestError(HTTPStatus.TOO_MANY_REQUESTS, "too many requests for sample rows: try again later")
        _driver_requests[account] += 1
    try:
        yield
    finally:
        with _driver_requests_lock:
            _driver_requests[account] -= 1
            if not _driver_requests[account]:
                del _driver_requests[account]


def _read_journal(context: OperationContext) -> PipelineJournalState:
    """Read the pipeline journal, the topic with the drivers' status reports. If it does not exist, return an empty one.

    Raises:
        KafkaError: The topic cannot be read, or not in time.
        ClientError: A broker cannot be reached.
    """
    journal = PipelineJournalState()
    (found,) = context.cluster.retry(lambda: context.cluster.metadata([PIPELINES_TOPIC])).topics
    if found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return journal
    topic, partitions = fetch_available_partitions(context, PIPELINES_TOPIC, None)
    starts, ends = fetch_offset_bounds(context, topic, partitions, 0)
    reader = BatchReader(context, starts, committed=False)
    deadline = time.monotonic() + READ_SECONDS_MAX
    while left := [each for each in starts if reader.positions[each] < ends[each]]:
        for batch in reader.fetch(left):
            for record in batch.records():
                journal.apply_record(record)
        if time.monotonic() > deadline:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"reading topic {PIPELINES_TOPIC} timed out")
    return journal


def list_all(context: OperationContext, params: Searching) -> Page[Pipeline]:
    """List pipelines by name. The search finds the names of pipelines and of their topics."""
    journal = _read_journal(context)
    wanted = params.search.lower()
    names = {
        each.pipeline for each in journal.progress if wanted in each.pipeline.lower() or wanted in each.topic.lower()
    }
    page = paginate_names(names, "", params.after, params.limit)
    items = []
    for name in page.items:
        topics = _build_topics(context, journal, name)
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
                sorted(each.topic for each in topics)[:FIRST_TOPICS_MAX],
            )
        )
    return Page(items, page.next, page.total)


def show(context: OperationContext, params: NoQuestion) -> PipelineDetails:
    """Describe a pipeline and its topics."""
    name = context.path_parameters["pipeline"]
    topics = _build_topics(context, _read_journal(context), name)
    if not topics:
        raise build_not_found_error(f"pipeline {name!r} does not exist: no driver has reported it")
    return PipelineDetails(name, topics)


def _build_topics(context: OperationContext, journal: PipelineJournalState, name: str) -> list[PipelineTopic]:
    found = {journal_key for journal_key in journal.progress if journal_key.pipeline == name}
    ends = _fetch_end_offsets(context, sorted({journal_key.topic for journal_key in found}))
    return [_build_topic(journal, journal_key, ends) for journal_key in sorted(found)]


def _fetch_end_offsets(context: OperationContext, topics: list[str]) -> dict[TopicPartition, int]:
    """Return the end offsets of the topics that the principal may describe."""
    known = fetch_topic_metadata(context.cluster, topics)
    return {
        each: offset
        for each, (offset, _) in fetch_available_offsets(
            context, group_partitions_by_leader(known.values()), LATEST_TIMESTAMP
        ).items()
    }


def _build_topic(
    journal: PipelineJournalState, journal_key: PipelineTopicKey, ends: dict[TopicPartition, int]
) -> PipelineTopic:
    progress, at_ms = journal.progress[journal_key]
    schema = journal.schemas.get(journal_key)
    known = {each.partition: end for each, end in ends.items() if each.topic == journal_key.topic}
    marks = known or progress.high_watermarks
    lag = sum(max(0, end - progress.next_offsets.get(index, 0)) for index, end in marks.items()) if marks else None
    return PipelineTopic(
        journal_key.topic,
        progress.state,
        progress.table,
        journal.is_paused(journal_key),
        lag,
        progress.next_offsets,
        progress.high_watermarks,
        round(progress.rows_per_second, 1),
        progress.total_rows,
        progress.total_dead_letters,
        progress.last_error,
        progress.last_error_ms,
        progress.host,
        progress.pid,
        progress.started_ms,
        at_ms,
        None if schema is None else [TableColumn(column.name, column.type) for column in schema.columns],
        0 if schema is None else schema.left_out,
        marks,
        progress.round_rows,
        progress.round_misfits,
    )


# Sample rows


def sample(context: OperationContext, params: SampleRows) -> Sample:
    """Return sample rows of a topic's table, read by the driver."""
    journal_key = PipelineTopicKey(context.path_parameters["pipeline"], params.topic)
    require_running_driver(_read_journal(context), journal_key, time.time())
    with _limit_driver_requests(context.account):
        encoded = _request_sample(context, journal_key, params.rows)
    try:
        found = msgspec.json.decode(encoded, type=TableSample)
    except msgspec.DecodeError as error:
        raise RestError(HTTPStatus.SERVICE_UNAVAILABLE, f"the driver's response is not valid: {error}") from None
    if found.error is not None:
        raise RestError(HTTPStatus.SERVICE_UNAVAILABLE, f"the driver cannot read the table: {found.error}")
    return Sample(found.columns, found.columns_left_out, found.rows)


def require_running_driver(journal: PipelineJournalState, journal_key: PipelineTopicKey, now_s: float) -> None:
    """Raise RestError unless a driver of the pipeline is running."""
    report = journal.progress.get(journal_key)
    if report is None:
        raise build_not_found_error(
            f"no driver has reported topic {journal_key.topic!r} of pipeline {journal_key.pipeline!r}"
        )
    progress, at_ms = report
    if progress.state == LandingState.STOPPED:
        message = f"the driver of {journal_key.pipeline} has stopped: sample rows are available while it runs"
        raise RestError(HTTPStatus.SERVICE_UNAVAILABLE, message)
    silent_s = now_s - at_ms / 1000
    if silent_s > DRIVER_SILENT_SECONDS:
        message = f"the driver of {journal_key.pipeline} last reported {silent_s:,.0f} s ago: is it still running?"
        raise RestError(HTTPStatus.SERVICE_UNAVAILABLE, message)


def _request_sample(context: OperationContext, journal_key: PipelineTopicKey, rows: int) -> bytes:
    """Request sample rows of a table from the driver, through the broker that leads the pipeline journal.

    Raises:
        KafkaError: The driver does not respond.
        ClientError: A broker cannot be reached.
    """
    cluster = context.cluster
    request = SampleTableRequest(
        pipeline=journal_key.pipeline, topic=journal_key.topic, rows=rows, timeout_ms=int(SAMPLE_SECONDS_MAX * 1000)
    )

    def send() -> SampleTableResponse:
        leader = cluster.leader(TopicPartition(PIPELINES_TOPIC, 0))
        response = leader.request(request, SampleTableResponse, wait_s=SAMPLE_SECONDS_MAX)
        raise_for_code(response.error_code, f"sample rows of topic {journal_key.topic}", response.error_message)
        return response

    return bytes(cluster.retry(send).sample)

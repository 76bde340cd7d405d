"""The pipeline journal and its reporter: progress, schemas and pause requests, written and read back."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from chronik.client.admin import delete_topics, describe_topic_configs
from chronik.client.cluster import ClusterClient
from chronik.client.consumer import read_all
from chronik.client.producer import Producer
from chronik.client.records import ConsumedRecord, OutgoingRecord
from chronik.metadata.names import PIPELINES_TOPIC
from chronik.pipeline.journal.journal_client import (
    SCHEMA_BYTES_MAX,
    JournalReader,
    JournalWriter,
    build_journal_schema,
    encode_pause_control,
    encode_progress,
    encode_schema,
    ensure_journal_topic,
    read_journal,
    write_pause_requests,
)
from chronik.pipeline.journal.journal_reporter import JournalReporter
from chronik.pipeline.journal.reports import ProgressReporter, TopicReport
from chronik.pipeline_journal import (
    ALL_TOPICS,
    ColumnInfo,
    LandingState,
    PipelineJournalState,
    PipelineTopicKey,
    TableColumns,
    TopicProgress,
)
from chronik.testing import Broker
from chronik.testing.plugin import BrokerFactory, ClusterFactory

SECONDS_MAX = 30.0
ORDERS = PipelineTopicKey("chronik-pipeline-tables", "orders")
COLUMNS = ColumnInfo("_offset", "bigint"), ColumnInfo("euros", "double")
LANDING = TopicProgress("landing", "/tables/orders", {0: 5, 1: 0}, {0: 9, 1: 4}, 5, 2.0, 5, host="here", pid=7)


def build_journal(*records: OutgoingRecord) -> PipelineJournalState:
    journal = PipelineJournalState()
    for offset, record in enumerate(records):
        journal.apply_record(ConsumedRecord(PIPELINES_TOPIC, 0, offset, 1000 + offset, record.key, record.value, ()))
    return journal


def build_report(
    topic: str,
    state: LandingState = LandingState.LANDING,
    rows: int = 0,
    last_error: str | None = None,
    columns: tuple[ColumnInfo, ...] = (),
) -> TopicReport:
    return TopicReport(
        pipeline=ORDERS.pipeline,
        topic=topic,
        table=f"/tables/{topic}",
        state=state,
        next_offsets={0: rows},
        high_watermarks={0: 10},
        round_rows=rows,
        round_seconds=0.5,
        total_rows=rows,
        last_error=last_error,
        columns=columns,
    )


def wait_until(done: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not done():
        assert time.monotonic() < deadline, f"not in time: {what}"
        time.sleep(0.02)


@contextmanager
def reporting(bootstrap: str, heartbeat_s: float = 10.0) -> Iterator[JournalReporter]:
    reporter = JournalReporter(bootstrap, ORDERS.pipeline, heartbeat_s=heartbeat_s)
    listener: ProgressReporter = reporter  # lets the type checker verify the interface
    try:
        yield reporter
    finally:
        listener.close()


# Without brokers


def test_last_progress_record_of_a_topic_is_valid() -> None:
    journal = build_journal(encode_progress(ORDERS, TopicProgress("waiting")), encode_progress(ORDERS, LANDING))
    assert journal.progress[ORDERS].progress == LANDING
    assert journal.progress[ORDERS].at_ms == 1001
    assert LANDING.rows_per_second == 2.5


def test_pipeline_names_may_contain_slashes_and_record_kinds() -> None:
    odd, plain = PipelineTopicKey("control/a/b", "orders"), PipelineTopicKey("control", "orders")
    journal = build_journal(
        encode_progress(odd, LANDING), encode_pause_control(odd, True), encode_progress(plain, LANDING)
    )
    assert set(journal.progress) == {odd, plain}
    assert journal.is_paused(odd)
    assert not journal.is_paused(plain)


def test_records_in_unknown_format_are_ignored() -> None:
    invalid = [
        OutgoingRecord(b"{}", None),
        OutgoingRecord(b"{}", b"progress/only-one-part"),
        OutgoingRecord(b"{}", b"\xff\xfe/x/y"),
        OutgoingRecord(b"no json", b"progress/p/t"),
        OutgoingRecord(b'{"state": 5}', b"progress/p/t"),
        OutgoingRecord(b'{"paused": "yes"}', b"control/p/t"),
    ]
    journal = build_journal(*invalid, OutgoingRecord(b'{"state": "new", "of a later version": 1}', b"progress/p/later"))
    assert list(journal.progress) == [PipelineTopicKey("p", "later")]
    assert not journal.controls


def test_tombstone_removes_progress_of_topic() -> None:
    assert not build_journal(encode_progress(ORDERS, LANDING), encode_progress(ORDERS, None)).progress


def test_latest_pause_request_of_topic_or_pipeline_is_valid() -> None:
    everything = PipelineTopicKey(ORDERS.pipeline, ALL_TOPICS)
    assert build_journal(encode_pause_control(everything, True)).is_paused(ORDERS)
    assert not build_journal(encode_pause_control(everything, True), encode_pause_control(ORDERS, False)).is_paused(
        ORDERS
    )
    assert build_journal(encode_pause_control(ORDERS, False), encode_pause_control(everything, True)).is_paused(ORDERS)
    assert not build_journal(encode_pause_control(ORDERS, True), encode_pause_control(everything, False)).is_paused(
        ORDERS
    )
    assert not build_journal(encode_pause_control(PipelineTopicKey("another", ALL_TOPICS), True)).is_paused(ORDERS)


def test_schema_records_do_not_replace_progress() -> None:
    """Unknown kinds of records are ignored, as versions before 0.6 ignore schemas."""
    journal = build_journal(
        encode_progress(ORDERS, LANDING),
        encode_schema(ORDERS, TableColumns(COLUMNS)),
        OutgoingRecord(b"{}", b"new/p/t"),
    )
    assert journal.progress[ORDERS].progress == LANDING
    assert journal.schemas == {ORDERS: TableColumns(COLUMNS)}
    assert (
        build_journal(
            encode_schema(ORDERS, TableColumns(COLUMNS)),
            OutgoingRecord(b"[]", b"schema/chronik-pipeline-tables/orders"),
        ).schemas
        == {}
    )


def test_schema_is_limited_to_maximum_record_size() -> None:
    many = [ColumnInfo(f"{number:06d}{'ä' * 250}", "string") for number in range(2000)]
    limited = build_journal_schema(many)
    assert limited.columns == tuple(many[: len(limited.columns)])
    assert len(limited.columns) + limited.left_out == 2000
    assert SCHEMA_BYTES_MAX // 2 < len(encode_schema(ORDERS, limited).value or b"") < SCHEMA_BYTES_MAX * 1.1
    assert build_journal_schema(COLUMNS) == TableColumns(COLUMNS)


# With brokers


def test_journal_topic_is_compacted_and_replicated_like_offsets_topic(
    chronik_cluster_factory: ClusterFactory,
) -> None:
    cluster = chronik_cluster_factory(3)
    with ClusterClient(cluster.bootstrap) as client:
        assert not read_journal(client).progress
        ensure_journal_topic(client)
        ensure_journal_topic(client)
        (partition,) = client.topic(PIPELINES_TOPIC).partitions
        assert len(partition.replica_nodes) == 3
        configs = {config.name: config.value for config in describe_topic_configs(client, PIPELINES_TOPIC)}
    assert configs["cleanup.policy"] == "compact"


def test_reader_continues_and_restarts_after_topic_recreation(chronik_broker_factory: BrokerFactory) -> None:
    broker = chronik_broker_factory()
    with broker.cluster() as writing, broker.cluster() as reading:
        reader, writer = JournalReader(reading), JournalWriter(writing)
        assert not reader.catch_up().progress
        writer.write([encode_progress(ORDERS, TopicProgress("waiting"))] * 5)
        assert reader.catch_up().progress[ORDERS].progress.state == "waiting"
        writer.write([encode_progress(ORDERS, LANDING)])
        journal = reader.catch_up()
        assert journal.progress[ORDERS].progress == LANDING
        assert abs(time.time() - journal.progress[ORDERS].at_ms / 1000) < SECONDS_MAX
        delete_topics(writing, [PIPELINES_TOPIC])
        other = PipelineTopicKey("other", "orders")
        JournalWriter(writing).write([encode_progress(other, LANDING)])
        wait_until(lambda: set(reader.catch_up().progress) == {other}, "the new topic is read from its start")


def test_reporter_writes_progress_and_reads_pause_requests(chronik_broker_factory: BrokerFactory) -> None:
    broker = chronik_broker_factory()
    with broker.cluster() as cluster:
        write_pause_requests(cluster, {ORDERS: True})
        with reporting(broker.bootstrap) as reporter:
            assert reporter.is_paused("orders"), "the pause request is read before the first round"
            assert not reporter.is_paused("others")
            reporter.report(build_report("orders", rows=5))
            reporter.report(build_report("orders", LandingState.FAILING, last_error="the disk is full"))
            reader = JournalReader(cluster)
            wait_until(lambda: ORDERS in reader.catch_up().progress, "the report is in the journal")
            progress = reader.journal.progress[ORDERS].progress
            assert (progress.state, progress.last_error) == ("failing", "the disk is full")
            assert progress.last_error_ms is not None
            assert progress.rows_per_second == 10.0, "the rate of the last round with rows is kept"
            assert progress.pid > 0
            write_pause_requests(cluster, {ORDERS: False})
            wait_until(lambda: not reporter.is_paused("orders"), "the driver resumes")
            reporter.report(build_report("orders", LandingState.STOPPED))
        assert read_journal(cluster).progress[ORDERS].progress.state == "stopped", "written on close"


def test_reporter_writes_heartbeats_without_new_reports(chronik_broker_factory: BrokerFactory) -> None:
    broker = chronik_broker_factory()
    with broker.cluster() as cluster, reporting(broker.bootstrap, heartbeat_s=0.1) as reporter:
        reporter.report(build_report("orders"))
        reader = JournalReader(cluster)
        wait_until(lambda: ORDERS in reader.catch_up().progress, "the report is in the journal")
        first = reader.journal.progress[ORDERS]
        wait_until(lambda: reader.catch_up().progress[ORDERS].at_ms > first.at_ms, "a heartbeat is written")
        assert reader.journal.progress[ORDERS].progress == first.progress


def test_schema_is_written_on_change_and_after_topic_deletion(
    chronik_broker_factory: BrokerFactory,
) -> None:
    broker = chronik_broker_factory()
    more = (*COLUMNS, ColumnInfo("customer", "string"))

    def written(cluster: ClusterClient) -> list[bytes | None]:
        return [
            record.value for record in read_all(cluster, PIPELINES_TOPIC) if (record.key or b"").startswith(b"schema/")
        ]

    with broker.cluster() as cluster, reporting(broker.bootstrap, heartbeat_s=0.1) as reporter:
        reader = JournalReader(cluster)
        reporter.report(build_report("orders", columns=COLUMNS))
        wait_until(lambda: reader.catch_up().schemas.get(ORDERS) == TableColumns(COLUMNS), "columns are written")
        reporter.report(build_report("orders", columns=more))
        wait_until(lambda: reader.catch_up().schemas.get(ORDERS) == TableColumns(more), "new columns are written")
        reporter.report(build_report("orders", LandingState.PAUSED))  # a report without columns
        JournalWriter(cluster).write(
            [encode_schema(ORDERS, TableColumns(COLUMNS))]
        )  # another driver with an older schema
        for _ in range(3):
            received_ms = reader.catch_up().progress[ORDERS].at_ms
            wait_until(lambda at=received_ms: reader.catch_up().progress[ORDERS].at_ms > at, "heartbeats")  # type: ignore[misc]
        assert len(written(cluster)) == 3, "drivers do not overwrite each other's schema alternately"
        delete_topics(cluster, [PIPELINES_TOPIC])
        wait_until(
            lambda: reader.catch_up().schemas.get(ORDERS) == TableColumns(more), "the lost schema is written again"
        )


@pytest.mark.slow
def test_reports_do_not_block_while_broker_is_down() -> None:
    with Broker() as broker:
        with broker.cluster() as cluster:
            write_pause_requests(cluster, {ORDERS: True})
        with reporting(broker.bootstrap) as reporter:
            assert reporter.is_paused("orders")
            broker.kill()
            started = time.monotonic()
            for rows in range(1000):
                reporter.report(build_report("orders", rows=rows))
                assert reporter.is_paused("orders"), "the last known pause request stays in effect"
            assert time.monotonic() - started < 10.0, "reports do not wait for the broker"
            broker.start()
            with broker.cluster() as cluster:
                reader = JournalReader(cluster)
                wait_until(lambda: ORDERS in reader.catch_up().progress, "the report is in the journal")
                assert reader.journal.progress[ORDERS].progress.total_rows == 999


@pytest.mark.slow
def test_close_does_not_wait_long_for_unresponsive_broker() -> None:
    with Broker() as broker:
        with reporting(broker.bootstrap) as reporter:
            reporter.report(build_report("orders"))
            assert not reporter.is_paused("orders")
            broker.pause()
            started = time.monotonic()
        assert time.monotonic() - started < 10.0
        broker.resume()


def test_foreign_records_in_journal_topic_are_ignored(chronik_broker_factory: BrokerFactory) -> None:
    broker = chronik_broker_factory()
    with broker.cluster() as cluster:
        ensure_journal_topic(cluster)
        Producer(cluster).send(PIPELINES_TOPIC, [OutgoingRecord(b"hello", b"progress/p/t")])
        write_pause_requests(cluster, {ORDERS: True})
        journal = read_journal(cluster)
    assert not journal.progress
    assert journal.is_paused(ORDERS)


@pytest.mark.parametrize("error", ["NOT_LEADER_OR_FOLLOWER", "INVALID_TOPIC_EXCEPTION"])
def test_rejected_report_is_retried(chronik_broker_factory: BrokerFactory, error: str) -> None:
    broker = chronik_broker_factory()
    broker.fail("Produce", error, times=2)
    with broker.cluster() as cluster, reporting(broker.bootstrap) as reporter:
        reporter.report(build_report("orders"))
        reader = JournalReader(cluster)
        wait_until(lambda: ORDERS in reader.catch_up().progress, "the report is in the journal")

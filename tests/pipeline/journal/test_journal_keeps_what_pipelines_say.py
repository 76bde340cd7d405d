"""The journal: what is read back of what drivers and people wrote, whatever else stands in the topic."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from chronik.client.admin import delete_topics, describe_topic_configs
from chronik.client.cluster import Cluster
from chronik.client.consumer import read_all
from chronik.client.producer import Producer
from chronik.client.records import ConsumedRecord, OutgoingRecord
from chronik.metadata.names import PIPELINES_TOPIC
from chronik.pipeline.journal.journal import (
    EVERY_TOPIC,
    SCHEMA_BYTES_MAX,
    Journal,
    JournalReader,
    JournalWriter,
    Place,
    Progress,
    Schema,
    control_record,
    ensure_topic,
    progress_record,
    read_journal,
    schema_record,
    schema_told,
    write_controls,
)
from chronik.pipeline.journal.reporter import JournalReporter
from chronik.pipeline.journal.reporting import Column, Reporter, State, TopicReport
from chronik.testing import Broker
from chronik.testing.plugin import BrokerFactory, ClusterFactory

SECONDS_MAX = 30.0
ORDERS = Place("chronik-pipeline-tables", "orders")
COLUMNS = Column("_offset", "bigint"), Column("euros", "double")
LANDING = Progress("landing", "/tables/orders", {0: 5, 1: 0}, {0: 9, 1: 4}, 5, 2.0, 5, host="here", pid=7)


def taken(*records: OutgoingRecord) -> Journal:
    journal = Journal()
    for offset, record in enumerate(records):
        journal.take(ConsumedRecord(PIPELINES_TOPIC, 0, offset, 1000 + offset, record.key, record.value, ()))
    return journal


def report_of(
    topic: str,
    state: State = State.LANDING,
    rows: int = 0,
    last_error: str | None = None,
    columns: tuple[Column, ...] = (),
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
    listener: Reporter = reporter  # whoever changes one of the two is told by the type checker
    try:
        yield reporter
    finally:
        listener.close()


# Pure


def test_the_last_word_on_a_topic_counts() -> None:
    journal = taken(progress_record(ORDERS, Progress("waiting")), progress_record(ORDERS, LANDING))
    assert journal.progress[ORDERS].progress == LANDING
    assert journal.progress[ORDERS].at_ms == 1001
    assert LANDING.rows_per_second == 2.5


def test_a_pipeline_may_have_slashes_in_its_name_and_be_called_control() -> None:
    odd, plain = Place("control/a/b", "orders"), Place("control", "orders")
    journal = taken(progress_record(odd, LANDING), control_record(odd, True), progress_record(plain, LANDING))
    assert set(journal.progress) == {odd, plain}
    assert journal.paused(odd)
    assert not journal.paused(plain)


def test_what_is_not_ours_is_passed_over() -> None:
    strange = [
        OutgoingRecord(b"{}", None),
        OutgoingRecord(b"{}", b"progress/only-one-part"),
        OutgoingRecord(b"{}", b"\xff\xfe/x/y"),
        OutgoingRecord(b"no json", b"progress/p/t"),
        OutgoingRecord(b'{"state": 5}', b"progress/p/t"),
        OutgoingRecord(b'{"paused": "yes"}', b"control/p/t"),
    ]
    journal = taken(*strange, OutgoingRecord(b'{"state": "new", "of a later version": 1}', b"progress/p/later"))
    assert list(journal.progress) == [Place("p", "later")]
    assert not journal.controls


def test_a_tombstone_forgets_a_topic() -> None:
    assert not taken(progress_record(ORDERS, LANDING), progress_record(ORDERS, None)).progress


def test_of_a_topic_and_all_topics_whatever_was_said_last_counts() -> None:
    everything = Place(ORDERS.pipeline, EVERY_TOPIC)
    assert taken(control_record(everything, True)).paused(ORDERS)
    assert not taken(control_record(everything, True), control_record(ORDERS, False)).paused(ORDERS)
    assert taken(control_record(ORDERS, False), control_record(everything, True)).paused(ORDERS)
    assert not taken(control_record(ORDERS, True), control_record(everything, False)).paused(ORDERS)
    assert not taken(control_record(Place("another", EVERY_TOPIC), True)).paused(ORDERS)


def test_columns_stand_beside_progress_and_do_not_hide_it() -> None:
    """As a reader from before there were schemas, which knows no such kind, this one passes over kinds it knows not."""
    journal = taken(
        progress_record(ORDERS, LANDING), schema_record(ORDERS, Schema(COLUMNS)), OutgoingRecord(b"{}", b"new/p/t")
    )
    assert journal.progress[ORDERS].progress == LANDING
    assert journal.schemas == {ORDERS: Schema(COLUMNS)}
    assert (
        taken(
            schema_record(ORDERS, Schema(COLUMNS)), OutgoingRecord(b"[]", b"schema/chronik-pipeline-tables/orders")
        ).schemas
        == {}
    )


def test_a_schema_that_is_too_long_for_a_record_is_cut_and_says_so() -> None:
    many = [Column(f"{number:06d}{'ä' * 250}", "string") for number in range(2000)]
    told = schema_told(many)
    assert told.columns == tuple(many[: len(told.columns)])
    assert len(told.columns) + told.left_out == 2000
    assert SCHEMA_BYTES_MAX // 2 < len(schema_record(ORDERS, told).value or b"") < SCHEMA_BYTES_MAX * 1.1
    assert schema_told(COLUMNS) == Schema(COLUMNS)


# On brokers


def test_the_topic_is_compacted_and_has_as_many_copies_as_committed_offsets(
    chronik_cluster_factory: ClusterFactory,
) -> None:
    cluster = chronik_cluster_factory(3)
    with Cluster(cluster.bootstrap) as client:
        assert not read_journal(client).progress
        ensure_topic(client)
        ensure_topic(client)
        (partition,) = client.topic(PIPELINES_TOPIC).partitions
        assert len(partition.replica_nodes) == 3
        configs = {config.name: config.value for config in describe_topic_configs(client, PIPELINES_TOPIC)}
    assert configs["cleanup.policy"] == "compact"


def test_a_reader_goes_on_where_it_was_and_starts_over_with_a_new_topic(chronik_broker_factory: BrokerFactory) -> None:
    broker = chronik_broker_factory()
    with broker.cluster() as writing, broker.cluster() as reading:
        reader, writer = JournalReader(reading), JournalWriter(writing)
        assert not reader.catch_up().progress
        writer.write([progress_record(ORDERS, Progress("waiting"))] * 5)
        assert reader.catch_up().progress[ORDERS].progress.state == "waiting"
        writer.write([progress_record(ORDERS, LANDING)])
        journal = reader.catch_up()
        assert journal.progress[ORDERS].progress == LANDING
        assert abs(time.time() - journal.progress[ORDERS].at_ms / 1000) < SECONDS_MAX
        delete_topics(writing, [PIPELINES_TOPIC])
        other = Place("other", "orders")
        JournalWriter(writing).write([progress_record(other, LANDING)])
        wait_until(lambda: set(reader.catch_up().progress) == {other}, "the new topic is read from its start")


def test_a_driver_is_heard_and_hears(chronik_broker_factory: BrokerFactory) -> None:
    broker = chronik_broker_factory()
    with broker.cluster() as cluster:
        write_controls(cluster, {ORDERS: True})
        with reporting(broker.bootstrap) as reporter:
            assert reporter.paused("orders"), "known before the first round"
            assert not reporter.paused("others")
            reporter.report(report_of("orders", rows=5))
            reporter.report(report_of("orders", State.FAILING, last_error="the disk is full"))
            reader = JournalReader(cluster)
            wait_until(lambda: ORDERS in reader.catch_up().progress, "the report is in the journal")
            told = reader.journal.progress[ORDERS].progress
            assert (told.state, told.last_error) == ("failing", "the disk is full")
            assert told.last_error_ms is not None
            assert told.rows_per_second == 10.0, "of the last round that landed something"
            assert told.pid > 0
            write_controls(cluster, {ORDERS: False})
            wait_until(lambda: not reporter.paused("orders"), "the driver goes on")
            reporter.report(report_of("orders", State.STOPPED))
        assert read_journal(cluster).progress[ORDERS].progress.state == "stopped", "said while it closed"


def test_a_driver_that_only_works_says_that_it_lives(chronik_broker_factory: BrokerFactory) -> None:
    broker = chronik_broker_factory()
    with broker.cluster() as cluster, reporting(broker.bootstrap, heartbeat_s=0.1) as reporter:
        reporter.report(report_of("orders"))
        reader = JournalReader(cluster)
        wait_until(lambda: ORDERS in reader.catch_up().progress, "the report is in the journal")
        first = reader.journal.progress[ORDERS]
        wait_until(lambda: reader.catch_up().progress[ORDERS].at_ms > first.at_ms, "it is heard again")
        assert reader.journal.progress[ORDERS].progress == first.progress


def test_columns_are_written_when_they_change_and_when_the_journal_has_lost_them(
    chronik_broker_factory: BrokerFactory,
) -> None:
    broker = chronik_broker_factory()
    more = (*COLUMNS, Column("customer", "string"))

    def written(cluster: Cluster) -> list[bytes | None]:
        return [
            record.value for record in read_all(cluster, PIPELINES_TOPIC) if (record.key or b"").startswith(b"schema/")
        ]

    with broker.cluster() as cluster, reporting(broker.bootstrap, heartbeat_s=0.1) as reporter:
        reader = JournalReader(cluster)
        reporter.report(report_of("orders", columns=COLUMNS))
        wait_until(lambda: reader.catch_up().schemas.get(ORDERS) == Schema(COLUMNS), "columns are told")
        reporter.report(report_of("orders", columns=more))
        wait_until(lambda: reader.catch_up().schemas.get(ORDERS) == Schema(more), "new ones are told")
        reporter.report(report_of("orders", State.PAUSED))  # of a round that was not planned
        JournalWriter(cluster).write([schema_record(ORDERS, Schema(COLUMNS))])  # another driver, which is behind
        for _ in range(3):
            heard = reader.catch_up().progress[ORDERS].at_ms
            wait_until(lambda at=heard: reader.catch_up().progress[ORDERS].at_ms > at, "turns pass")  # type: ignore[misc]
        assert len(written(cluster)) == 3, "drivers that differ do not take turns"
        delete_topics(cluster, [PIPELINES_TOPIC])
        wait_until(lambda: reader.catch_up().schemas.get(ORDERS) == Schema(more), "what was lost is told again")


@pytest.mark.slow
def test_a_broker_that_is_away_holds_up_nothing_and_hears_the_latest_when_it_is_back() -> None:
    with Broker() as broker:
        with broker.cluster() as cluster:
            write_controls(cluster, {ORDERS: True})
        with reporting(broker.bootstrap) as reporter:
            assert reporter.paused("orders")
            broker.kill()
            began = time.monotonic()
            for rows in range(1000):
                reporter.report(report_of("orders", rows=rows))
                assert reporter.paused("orders"), "what was heard last stays in force"
            assert time.monotonic() - began < 10.0, "a report waits for the broker"
            broker.start()
            with broker.cluster() as cluster:
                reader = JournalReader(cluster)
                wait_until(lambda: ORDERS in reader.catch_up().progress, "the report is in the journal")
                assert reader.journal.progress[ORDERS].progress.total_rows == 999


@pytest.mark.slow
def test_a_driver_that_ends_does_not_wait_for_a_broker_for_long() -> None:
    with Broker() as broker:
        with reporting(broker.bootstrap) as reporter:
            reporter.report(report_of("orders"))
            assert not reporter.paused("orders")
            broker.pause()
            began = time.monotonic()
        assert time.monotonic() - began < 10.0
        broker.resume()


def test_others_may_write_to_the_topic_too(chronik_broker_factory: BrokerFactory) -> None:
    broker = chronik_broker_factory()
    with broker.cluster() as cluster:
        ensure_topic(cluster)
        Producer(cluster).send(PIPELINES_TOPIC, [OutgoingRecord(b"hello", b"progress/p/t")])
        write_controls(cluster, {ORDERS: True})
        journal = read_journal(cluster)
    assert not journal.progress
    assert journal.paused(ORDERS)


@pytest.mark.parametrize("error", ["NOT_LEADER_OR_FOLLOWER", "INVALID_TOPIC_EXCEPTION"])
def test_a_broker_that_refuses_is_asked_again(chronik_broker_factory: BrokerFactory, error: str) -> None:
    broker = chronik_broker_factory()
    broker.fail("Produce", error, times=2)
    with broker.cluster() as cluster, reporting(broker.bootstrap) as reporter:
        reporter.report(report_of("orders"))
        reader = JournalReader(cluster)
        wait_until(lambda: ORDERS in reader.catch_up().progress, "the report is in the journal")

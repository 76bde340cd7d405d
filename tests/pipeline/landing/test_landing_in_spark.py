"""Landing by real Spark jobs from a real broker: rows, columns, dead-letter records and failures."""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from chronik.client.admin import NewTopic, create_partitions, create_topics, delete_topics
from chronik.client.cluster import ClusterClient
from chronik.client.groups import list_committed_offsets
from chronik.client.records import OutgoingRecord, TopicPartition
from chronik.pipeline.journal.reports import ProgressReporter, TopicReport
from chronik.pipeline.landing import run
from chronik.pipeline.landing.driver import LandingFailedError
from chronik.pipeline.landing.landing_task import run_landing_task
from chronik.pipeline.landing.round_plan import TASK_RECORDS_MIN
from chronik.pipeline.landing.settings import (
    ENABLED_CONFIG,
    FORMAT_CONFIG,
    PARTITION_BY_CONFIG,
    LandingSettings,
    TableSettings,
)
from chronik.pipeline.landing.topic_landing import LandingRound, TopicLanding
from chronik.pipeline.tables.catalog import open_table
from chronik.pipeline.tables.formatting import describe_columns
from chronik.pipeline.tables.layout import TableKind
from chronik.pipeline.tables.storage import build_dead_letters_uri, table_uri
from chronik.pipeline.tables.topic_table import TopicTable
from chronik.pipeline_journal import LandingState
from chronik.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from chronik.testing import Broker
from tests.pipeline.table_fixtures import JournalledTopic, read_positions, read_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from chronik.pipeline.landing import LandingSummary

pytestmark = pytest.mark.chronik_topic(partitions=3)

NOON_MS = 1_714_564_800_000
DAY_MS = 86_400_000

STOP_SECONDS_MAX = 120.0


class RecordingReporter(ProgressReporter):
    """A reporter that keeps all reports."""

    def __init__(self, paused: tuple[str, ...] = ()) -> None:
        self.reports: list[TopicReport] = []
        self._paused = paused

    def report(self, report: TopicReport) -> None:
        self.reports.append(report)

    def is_paused(self, topic: str) -> bool:
        return topic in self._paused

    def last(self, topic: str) -> TopicReport:
        return [each for each in self.reports_of(topic) if each.state is not LandingState.STOPPED][-1]

    def has_reported(self, topic: str, next_offsets: Mapping[int, int]) -> bool:
        return any(report.next_offsets == next_offsets for report in self.reports_of(topic))

    def reports_of(self, topic: str) -> list[TopicReport]:
        return [each for each in self.reports if each.topic == topic]


class Landing:
    """Landing into a directory of the test."""

    def __init__(self, spark: SparkSession, broker: Broker, directory: Path) -> None:
        self._spark, self._broker, self.root = spark, broker, str(directory)

    def __call__(self, *topics: str, recorder: RecordingReporter | None = None, **options: Any) -> LandingSummary:
        return run(
            self._broker.bootstrap,
            self.root,
            topics or None,
            once=True,
            spark=self._spark,
            reporter=recorder or RecordingReporter(),
            **options,
        )

    def committer(self, topic: str) -> TopicTable:
        return open_table(table_uri(self.root, topic))

    def table(self, topic: str) -> pa.Table:
        return read_rows(self.committer(topic).snapshot()).sort_by(
            [("_partition", "ascending"), ("_offset", "ascending")]
        )

    def dead_letters(self, topic: str) -> pa.Table:
        snapshot = open_table(build_dead_letters_uri(self.root, topic)).snapshot()
        return read_rows(snapshot).sort_by([("_partition", "ascending"), ("_offset", "ascending")])


@pytest.fixture
def landing(spark: SparkSession, chronik_broker: Broker, tmp_path: Path) -> Landing:
    return Landing(spark, chronik_broker, tmp_path)


@pytest.fixture
def topic(chronik_broker: Broker, chronik_topic: str) -> JournalledTopic:
    return JournalledTopic(chronik_broker, chronik_topic)


@pytest.fixture
def cluster(chronik_broker: Broker) -> Iterator[ClusterClient]:
    with chronik_broker.cluster() as cluster:
        yield cluster


def raw_record(number: int) -> OutgoingRecord:
    """Build a record with or without key, value and headers, on one of three days or without a timestamp."""
    return OutgoingRecord(
        value=None if number % 11 == 0 else b"value %d" % number,
        key=None if number % 7 == 0 else b"key %d" % number,
        headers=(("a", b"%d" % number), ("b", None)) if number % 5 == 0 else (),
        timestamp=-1 if number % 13 == 0 else NOON_MS + number // 3 % 3 * DAY_MS,
        partition=number % 3,
    )


def json_record(value: Any, partition: int = 0, key: bytes | None = None) -> OutgoingRecord:
    text = value if isinstance(value, bytes) or value is None else json.dumps(value).encode()
    return OutgoingRecord(text, key=key, partition=partition, timestamp=NOON_MS)


def test_raw_table_contains_every_record_unchanged(
    landing: Landing, topic: JournalledTopic, chronik_broker: Broker, cluster: ClusterClient
) -> None:
    count = 3 * TASK_RECORDS_MIN  # enough for several tasks
    topic.send([raw_record(number) for number in range(count)])
    recorder = RecordingReporter()
    summary = landing(topic.name, recorder=recorder, group=f"{topic.name}-group")
    assert summary.rows == {topic.name: count}
    table = landing.table(topic.name)
    expected = chronik_broker.records(topic.name)
    assert table["_offset"].to_pylist() == [record.offset for record in expected]
    assert table["_partition"].to_pylist() == [record.partition for record in expected]
    assert table["_key"].to_pylist() == [record.key for record in expected]
    assert table["_value"].to_pylist() == [record.value for record in expected]
    headers = [tuple((each["key"], each["value"]) for each in row or ()) for row in table["_headers"].to_pylist()]
    assert headers == [record.headers for record in expected]
    assert len(set(table["_date"].to_pylist())) == 4
    files = landing.committer(topic.name).snapshot().file_uris
    assert len(files) == 2 * 4, "two tasks, each with a file per day"
    ends = dict.fromkeys(range(3), count // 3)
    assert landing.committer(topic.name).next_offsets() == ends
    committed = list_committed_offsets(cluster, f"{topic.name}-group")
    assert {each.partition: found.offset for each, found in committed.items()} == ends
    report = recorder.last(topic.name)
    assert (report.state, report.lag, report.round_rows) == (LandingState.WAITING, 0, count)
    assert report.high_watermarks == ends


def test_later_rounds_continue_and_include_new_partitions(
    landing: Landing, topic: JournalledTopic, cluster: ClusterClient
) -> None:
    topic.send([raw_record(number) for number in range(100)])
    recorder = RecordingReporter()
    landing(topic.name, round_records_max=40, recorder=recorder)
    rounds = [report.round_rows for report in recorder.reports if report.state is not LandingState.STOPPED]
    assert sum(rounds) == 100
    assert max(rounds) <= 40
    create_partitions(cluster, topic.name, 4)
    topic.send([raw_record(number) for number in range(30)])
    topic.send([OutgoingRecord(b"new", partition=3)])
    # The second run knows only the table: it has another group and no state of the first run.
    assert landing(topic.name, group="another").rows == {topic.name: 31}
    assert landing(topic.name).rows == {topic.name: 0}
    assert read_positions(table_uri(landing.root, topic.name)) == sorted(topic.acknowledged, key=lambda each: each[:2])


def test_json_fields_become_columns_and_conflicts_are_rescued(landing: Landing, topic: JournalledTopic) -> None:
    topic.send(
        [json_record({"id": 1, "price": 2}), json_record({"id": 2, "price": 2.5}, 1), json_record(None, 2, b"gone")]
    )
    landing(topic.name, format="json")
    assert landing.committer(topic.name).snapshot().schema.field("price").type == pa.float64()
    topic.send(
        [
            json_record({"id": 3, "price": 1, "at": {"city": "Ulm"}}),  # a new field
            json_record({"id": "four", "price": 1}),  # a type conflict
            json_record({"ID": 5, "price": 1}),  # a name that differs only in case
            json_record({"id": 6, "_offset": 9, "a b": 1}),  # names that a table cannot have
            json_record({"id": 7, "at": {"city": "Bonn", "zip": 53111}}, 1),  # a field within a field
        ]
    )
    recorder = RecordingReporter()
    landing(topic.name, recorder=recorder)  # the format is taken from the existing table
    names = ("id", "price", "at", "_rescued", "ID_2", "_offset_2", "a_b")
    found = [tuple(row[name] for name in names) for row in landing.table(topic.name).to_pylist()]
    assert found == [
        (1, 2.0, None, None, None, None, None),
        (3, 1.0, {"city": "Ulm", "zip": None}, None, None, None, None),
        (None, 1.0, None, '{"id":"four"}', None, None, None),
        (None, 1.0, None, None, 5, None, None),
        (6, None, None, None, None, 9, 1),
        (2, 2.5, None, None, None, None, None),
        (7, None, {"city": "Bonn", "zip": 53111}, None, None, None, None),
        (None, None, None, None, None, None, None),
    ]
    assert read_positions(table_uri(landing.root, topic.name)) == sorted(topic.acknowledged, key=lambda each: each[:2])
    version = landing.committer(topic.name).snapshot().version
    assert version == 4, "table created, columns, rows, columns, rows"
    types = {each.name: each.type for each in recorder.last(topic.name).columns}
    assert types == {each.name: each.type for each in describe_columns(landing.committer(topic.name).snapshot().schema)}
    assert types["at"] == "struct<city: string, zip: bigint>", "the report has the columns added in this round"


def test_undecodable_value_becomes_dead_letter_record(landing: Landing, topic: JournalledTopic) -> None:
    bad: Mapping[bytes, str] = {b"{": "truncated", b"[1]": "a list", b"null": "null", b'{"a":"\xff"}': "", b"": ""}
    topic.send([record for value in bad for record in (json_record({"a": "b"}), json_record(value))])
    summary = landing(topic.name, format="json", partition_by="hour")
    assert (summary.rows[topic.name], summary.dead_letters[topic.name]) == (5, 5)
    dead = landing.dead_letters(topic.name).to_pylist()
    assert [row["_value"] for row in dead] == list(bad)
    assert [row["_offset"] for row in dead] == [1, 3, 5, 7, 9]
    for row, reason in zip(dead, bad.values(), strict=True):
        assert row["_error"]
        assert reason in row["_error"]
    both = read_positions(table_uri(landing.root, topic.name), build_dead_letters_uri(landing.root, topic.name))
    assert both == topic.acknowledged


def test_dead_letters_of_interrupted_round_are_not_duplicated(landing: Landing, topic: JournalledTopic) -> None:
    topic.send([json_record(b"bad %d" % number if number % 2 else {"a": number}) for number in range(10)])
    landing(topic.name, format="json")
    # As if the driver had crashed between the two commits: remove the rows and keep the dead-letter records.
    shutil.rmtree(table_uri(landing.root, topic.name))
    topic.send([json_record(b"bad %d" % number if number % 2 else {"a": number}) for number in range(10)])
    assert landing(topic.name, format="json").dead_letters == {topic.name: 5}
    both = read_positions(table_uri(landing.root, topic.name), build_dead_letters_uri(landing.root, topic.name))
    assert both == topic.acknowledged


def test_two_concurrent_drivers_land_each_record_once(
    landing: Landing, topic: JournalledTopic, chronik_broker: Broker
) -> None:
    total = 6
    stop = threading.Event()
    failures: list[BaseException] = []

    def drive() -> None:
        try:
            while not stop.is_set():
                landing(topic.name, format="json")
            landing(topic.name, format="json")
        except BaseException as error:
            failures.append(error)

    drivers = [threading.Thread(target=drive) for _ in range(2)]
    topic.send([json_record({"start": True}, partition) for partition in range(3)])
    for driver in drivers:
        driver.start()
    for batch_number in range(total):
        records = [
            json_record(b"bad" if number % 10 == 0 else {"n": number, f"new{batch_number}": 1}, number % 3)
            for number in range(300)
        ]
        topic.send(records)
    stop.set()
    for driver in drivers:
        driver.join(300)
    assert not failures
    assert not any(driver.is_alive() for driver in drivers)
    both = read_positions(table_uri(landing.root, topic.name), build_dead_letters_uri(landing.root, topic.name))
    assert both == sorted(topic.acknowledged, key=lambda each: each[:2])
    assert len(both) == 3 + 300 * total


@pytest.mark.parametrize("slower_record_count", [6, 12])
def test_round_overtaken_by_another_driver_is_discarded(
    landing: Landing, topic: JournalledTopic, cluster: ClusterClient, slower_record_count: int
) -> None:
    """The slower driver has read the same records, or more."""
    bad_and_good = [json_record(b"bad" if number % 3 == 0 else {"n": number}) for number in range(6)]
    settings = LandingSettings(
        topic.broker.bootstrap, landing.root, table_settings=TableSettings(TableKind.DECODED), group="overtaken"
    )
    topic.send(bad_and_good)
    quick, slow = (TopicLanding(topic.name, settings, cluster) for _ in range(2))
    first = run_round(quick)
    if slower_record_count > 6:
        topic.send(bad_and_good)
    second = run_round(slow)
    assert first.commit().rows == 4
    done = second.commit()
    assert done.rows == 0
    assert done.is_superseded
    while not (again := run_round(slow)).is_complete or again.commit().is_superseded:
        pass
    both = read_positions(table_uri(landing.root, topic.name), build_dead_letters_uri(landing.root, topic.name))
    assert both == topic.acknowledged
    assert len(both) == slower_record_count


def run_round(landing: TopicLanding) -> LandingRound:
    """Return a round that is ready to commit, with its tasks run in this process."""
    round = landing.plan_next_round(tasks_max=2)
    while round.tasks:
        round.add_results([run_landing_task(task) for task in round.tasks])
    return round


def test_pipeline_lands_new_topics_until_stopped(
    landing: Landing, chronik_broker: Broker, chronik_topic: str, spark: SparkSession
) -> None:
    stop, recorder = threading.Event(), RecordingReporter()
    thread = threading.Thread(
        target=lambda: run(
            chronik_broker.bootstrap, landing.root, interval_s=0.1, spark=spark, reporter=recorder, stop=stop
        )
    )
    thread.start()
    try:
        name = f"{chronik_topic}-late"
        chronik_broker.create_topic(name, 1, {ENABLED_CONFIG: "true"})
        late = JournalledTopic(chronik_broker, name)
        for number in range(3):
            late.send([OutgoingRecord(b"%d" % number, partition=0)])
            wait_until(lambda end=number + 1: recorder.has_reported(name, {0: end}))  # type: ignore[misc]
    finally:
        stop.set()
        thread.join(STOP_SECONDS_MAX)
    assert not thread.is_alive()
    assert read_positions(table_uri(landing.root, name)) == late.acknowledged
    assert chronik_topic not in {report.topic for report in recorder.reports}
    assert recorder.reports_of(name)[-1].state is LandingState.STOPPED


def wait_until(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + STOP_SECONDS_MAX
    while not done():
        assert time.monotonic() < deadline, "not in time"
        time.sleep(0.05)


def test_failing_topic_is_reported_and_others_land(landing: Landing, topic: JournalledTopic) -> None:
    topic.send([raw_record(number) for number in range(9)])
    recorder = RecordingReporter()
    with pytest.raises(LandingFailedError, match="nowhere: UNKNOWN_TOPIC_OR_PARTITION"):
        landing("nowhere", topic.name, recorder=recorder)
    assert recorder.last("nowhere").state is LandingState.FAILING
    assert "nowhere" in (recorder.last("nowhere").last_error or "")
    assert recorder.last(topic.name).state is LandingState.WAITING
    assert len(read_positions(table_uri(landing.root, topic.name))) == 9


def test_paused_topic_does_not_land(landing: Landing, topic: JournalledTopic) -> None:
    topic.send([raw_record(1)])
    recorder = RecordingReporter(paused=(topic.name,))
    assert landing(topic.name, recorder=recorder).rows == {topic.name: 0}
    assert recorder.last(topic.name).state is LandingState.PAUSED
    assert landing(topic.name).rows == {topic.name: 1}


def test_records_deleted_before_landing_fail_unless_allowed(
    landing: Landing, topic: JournalledTopic, cluster: ClusterClient
) -> None:
    topic.send([OutgoingRecord(b"v", partition=0) for _ in range(4)])
    landing(topic.name)
    topic.send([OutgoingRecord(b"v", partition=0) for _ in range(6)])
    partition = DeleteRecordsPartition(partition_index=0, offset=7)
    request = DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name=topic.name, partitions=[partition])], timeout_ms=10_000
    )
    cluster.leader(TopicPartition(topic.name, 0)).request(request, DeleteRecordsResponse)
    with pytest.raises(LandingFailedError, match="offsets 4 to 6 were deleted"):
        landing(topic.name)
    recorder = RecordingReporter()
    assert landing(topic.name, allow_data_loss=True, recorder=recorder).rows == {topic.name: 3}
    assert any("offsets 4 to 6" in warning for report in recorder.reports for warning in report.warnings)
    offsets = [offset for _, offset, _ in read_positions(table_uri(landing.root, topic.name))]
    assert offsets == [0, 1, 2, 3, 7, 8, 9]
    assert landing.committer(topic.name).next_offsets() == {0: 10}


def test_recreated_topic_does_not_land_in_old_table(
    landing: Landing, topic: JournalledTopic, cluster: ClusterClient
) -> None:
    topic.send([raw_record(number) for number in range(9)])
    landing(topic.name)
    delete_topics(cluster, [topic.name])
    create_topics(cluster, [NewTopic(topic.name, 3)])
    topic.send([raw_record(number) for number in range(30)])
    with pytest.raises(LandingFailedError, match="was deleted and created again"):
        landing(topic.name)
    assert len(read_positions(table_uri(landing.root, topic.name))) == 9


def test_table_of_another_format_is_rejected(landing: Landing, topic: JournalledTopic) -> None:
    topic.send([raw_record(1)])
    landing(topic.name, format="raw", partition_by="none")
    with pytest.raises(LandingFailedError, match=r"raw, partitioned by none, not for .* decoded json,"):
        landing(topic.name, format="json")


def test_topic_configs_enable_landing_and_select_format(
    landing: Landing, chronik_broker: Broker, chronik_topic: str
) -> None:
    name = f"{chronik_topic}-json"
    chronik_broker.create_topic(name, 1, {ENABLED_CONFIG: "true", FORMAT_CONFIG: "json", PARTITION_BY_CONFIG: "hour"})
    JournalledTopic(chronik_broker, name).send([json_record({"a": 1})])
    summary = landing()
    assert summary.rows[name] == 1
    assert chronik_topic not in summary.rows
    assert {"a", "_hour"} <= set(landing.table(name).column_names)

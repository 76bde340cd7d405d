"""Landing of one topic while the topic or the decoding rules change, with a real broker and tasks in this process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from chronik.client.admin import NewTopic, create_topics, delete_topics
from chronik.client.cluster import ClusterClient
from chronik.client.records import OutgoingRecord, TopicPartition
from chronik.errors import ChronikError
from chronik.pipeline import failpoints
from chronik.pipeline.journal.reports import ProgressReporter
from chronik.pipeline.landing.driver import LandingDriver
from chronik.pipeline.landing.landing_task import LandingTask, LandingTaskResult, run_landing_task
from chronik.pipeline.landing.local_runner import LandingTaskRunner
from chronik.pipeline.landing.round_plan import RecordsDeletedError
from chronik.pipeline.landing.settings import LandingSettings, TableSettings
from chronik.pipeline.landing.topic_landing import LandingRound, RoundResult, TopicLanding
from chronik.pipeline.records.columns import ColumnSelection
from chronik.pipeline.source import range_reader
from chronik.pipeline.source.offset_ranges import OffsetRange
from chronik.pipeline.source.options import ReadSettings
from chronik.pipeline.tables.layout import TableKind
from chronik.pipeline.tables.storage import build_dead_letters_uri, table_uri
from chronik.pipeline.tables.topic_table import TableMismatchError
from chronik.pipeline.tables.values.json_decoder import DecodedValues, JsonDecoder
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from chronik.protocol.messages.fetch import PartitionData
from chronik.testing import Broker
from tests.pipeline.scripted_cluster import ScriptedCluster, build_batch, serve_batches
from tests.pipeline.table_fixtures import JournalledTopic, read_positions


@pytest.fixture
def cluster(chronik_broker: Broker) -> Iterator[ClusterClient]:
    with chronik_broker.cluster() as cluster:
        yield cluster


@pytest.fixture
def topic(chronik_broker: Broker, chronik_topic: str) -> JournalledTopic:
    return JournalledTopic(chronik_broker, chronik_topic)


class LandedTables:
    """Rounds of one topic into a directory of the test, and the content of its tables."""

    def __init__(self, topic: JournalledTopic, cluster: ClusterClient, directory: Path) -> None:
        self._topic, self._cluster, self.root = topic, cluster, str(directory)

    def landing(self, kind: TableKind = TableKind.DECODED, **options: Any) -> TopicLanding:
        settings = LandingSettings(
            self._topic.broker.bootstrap, self.root, table_settings=TableSettings(kind), group="lands", **options
        )
        return TopicLanding(self._topic.name, settings, self._cluster)

    @property
    def offsets(self) -> list[int]:
        return self._offsets(table_uri(self.root, self._topic.name))

    @property
    def dead_letters(self) -> list[int]:
        return self._offsets(build_dead_letters_uri(self.root, self._topic.name))

    def _offsets(self, uri: str) -> list[int]:
        return [offset for _, offset, _ in read_positions(uri)]

    def files(self) -> list[Path]:
        return list(Path(self.root).rglob("*.parquet"))


@pytest.fixture
def tables(topic: JournalledTopic, cluster: ClusterClient, tmp_path: Path) -> LandedTables:
    return LandedTables(topic, cluster, tmp_path)


def run_tasks(round: LandingRound) -> LandingRound:
    while round.tasks:
        round.add_results([run_landing_task(task) for task in round.tasks])
    return round


def land_round(landing: TopicLanding) -> RoundResult:
    return run_tasks(landing.plan_next_round(1)).commit()


def send_values(topic: JournalledTopic, *values: bytes) -> None:
    topic.send([OutgoingRecord(value, partition=0) for value in values])


# Deleted topics


def test_records_of_topic_recreated_during_round_do_not_land(
    topic: JournalledTopic, tables: LandedTables, cluster: ClusterClient
) -> None:
    send_values(topic, b'{"v": "old"}', b"bad")
    landing = tables.landing()
    round = landing.plan_next_round(1)
    delete_topics(cluster, [topic.name])
    create_topics(cluster, [NewTopic(topic.name, 1)])
    send_values(topic, b'{"v": "new"}', b"worse")
    run_tasks(round)
    assert tables.files()
    with pytest.raises(TableMismatchError, match=f"topic {topic.name} was deleted and created again"):
        round.commit()
    assert tables.offsets == []
    assert tables.dead_letters == []
    assert not tables.files(), "files of the discarded round are deleted"


def test_records_of_topic_deleted_during_round_do_not_land(
    topic: JournalledTopic, tables: LandedTables, cluster: ClusterClient
) -> None:
    send_values(topic, b'{"v": "old"}')
    round = run_tasks(tables.landing().plan_next_round(1))
    delete_topics(cluster, [topic.name])
    with pytest.raises(TableMismatchError, match=f"topic {topic.name} was deleted"):
        round.commit()
    assert tables.offsets == []
    assert not tables.files()


# Deleted records


def delete_records_before(cluster: ClusterClient, partition: TopicPartition, offset: int) -> None:
    partition_request = DeleteRecordsPartition(partition_index=partition.partition, offset=offset)
    topics = [DeleteRecordsTopic(name=partition.topic, partitions=[partition_request])]
    request = DeleteRecordsRequest(topics=topics, timeout_ms=10_000)
    response = cluster.leader(partition).request(request, DeleteRecordsResponse)
    assert response.topics[0].partitions[0].error_code == 0


@pytest.mark.chronik_topic(partitions=2)
@pytest.mark.parametrize("others", [0, 3])
def test_deleted_records_of_initially_empty_partition_are_reported(
    topic: JournalledTopic, tables: LandedTables, cluster: ClusterClient, others: int
) -> None:
    first = TopicPartition(topic.name, 0)
    topic.send([OutgoingRecord(b"old", partition=0)] * 4 + [OutgoingRecord(b"v", partition=1)] * others)
    delete_records_before(cluster, first, 4)
    landing = tables.landing(TableKind.RAW)
    assert land_round(landing).rows == others
    topic.send([OutgoingRecord(b"new", partition=0)] * 2)
    assert land_round(landing).rows == 2, "no record is missing so far"
    topic.send([OutgoingRecord(b"newer", partition=0)] * 3)
    delete_records_before(cluster, first, 8)
    with pytest.raises(RecordsDeletedError, match="offsets 6 to 7 were deleted"):
        landing.plan_next_round(1)


class InThisProcess(LandingTaskRunner):
    """A task runner that runs tasks in this process, and then a callback."""

    def __init__(self, then: Callable[[], None]) -> None:
        self._then = then

    def parallelism(self) -> int:
        return 1

    def run(self, tasks: Sequence[LandingTask]) -> list[LandingTaskResult]:
        outcomes = [run_landing_task(task) for task in tasks]
        self._then()
        return outcomes


def test_once_run_ends_if_another_driver_landed_further(
    topic: JournalledTopic, tables: LandedTables, cluster: ClusterClient
) -> None:
    send_values(topic, b"{}", b"{}")
    others: list[RoundResult] = []

    def land_by_another_driver() -> None:
        if not others:
            send_values(topic, b"{}", b"{}", b"{}")
            others.append(land_round(tables.landing()))

    settings = replace(tables.landing(round_records_max=1).settings, topics=(topic.name,))
    summary = LandingDriver(
        settings, cluster, InThisProcess(land_by_another_driver), ProgressReporter(), threading.Event()
    ).run_once()
    assert summary.rows == {topic.name: 0}
    assert [done.rows for done in others] == [5]
    assert tables.offsets == list(range(5))


def test_once_run_that_is_stopped_is_not_complete(
    topic: JournalledTopic, tables: LandedTables, cluster: ClusterClient
) -> None:
    send_values(topic, b"{}", b"{}")
    stop = threading.Event()
    settings = replace(tables.landing(round_records_max=1).settings, topics=(topic.name,))
    driver = LandingDriver(settings, cluster, InThisProcess(stop.set), ProgressReporter(), stop)
    summary = driver.run_once()
    assert (summary.rows, summary.is_complete) == ({topic.name: 1}, False)
    stop.clear()
    again = LandingDriver(settings, cluster, InThisProcess(lambda: None), ProgressReporter(), stop).run_once()
    assert (again.rows, again.is_complete) == ({topic.name: 1}, True)


# Data loss allowed


def read_tolerantly(monkeypatch: pytest.MonkeyPatch, cluster: ScriptedCluster, start: int, end: int) -> list[int]:
    monkeypatch.setattr(range_reader, "ClusterClient", lambda *_, **__: cluster)
    settings = ReadSettings("unused", poll_timeout_s=0.05)
    read = range_reader.read_skipping_deleted(OffsetRange("t", 0, start, end), settings, ColumnSelection())
    return [offset for records in read for offset in records.offset.to_pylist()]


def test_deleted_records_are_skipped_if_data_loss_is_allowed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    starts = iter([0, 6])
    log_start = 0

    def fetch_handler(offset: int, limit: int) -> PartitionData:
        nonlocal log_start
        log_start = next(starts, log_start)  # retention moves it while the range is read
        return serve_batches(
            [build_batch(0, 1), build_batch(2, 3, 4), build_batch(6, 7)], 8, per_answer=1, log_start=log_start
        )(offset, limit)

    cluster = ScriptedCluster(fetch_handler, log_start=6)
    assert read_tolerantly(monkeypatch, cluster, 0, 8) == [0, 1, 6, 7]
    assert "t-0: records deleted by retention: skipping offsets=2-5" in caplog.text
    assert read_tolerantly(monkeypatch, cluster, 2, 5) == []


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ErrorCode.NONE, "of offsets 50 to 99 "),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "no longer exists"),
        (ErrorCode.OFFSET_OUT_OF_RANGE, "the partition now ends at 40"),
    ],
)
def test_missing_records_at_log_end_are_an_error_even_if_data_loss_is_allowed(
    monkeypatch: pytest.MonkeyPatch, error: ErrorCode, message: str
) -> None:
    """The leader may be outdated, and skipped records would never land."""

    def fetch_handler(offset: int, _: int) -> PartitionData:
        return PartitionData(error_code=error, high_watermark=50, last_stable_offset=50)

    with pytest.raises(ChronikError, match=message):
        read_tolerantly(monkeypatch, ScriptedCluster(fetch_handler, log_end=40), 50, 100)


def test_landing_with_data_loss_allowed_continues_after_the_gap(
    topic: JournalledTopic, tables: LandedTables, cluster: ClusterClient
) -> None:
    send_values(topic, *[b"{}"] * 4)
    landing = tables.landing(allow_data_loss=True)
    round = landing.plan_next_round(1)
    delete_records_before(cluster, TopicPartition(topic.name, 0), 3)
    done = run_tasks(round).commit()
    assert done.next_offsets == {0: 4}
    assert any("offsets=0-2" in warning for warning in done.warnings)
    assert tables.offsets == [3]


# Decoding rules that change


class SimulatedCrash(Exception):
    """A simulated crash of the driver."""


def crash_after_dead_letters(monkeypatch: pytest.MonkeyPatch, round: LandingRound) -> None:
    """Run a round and crash after its dead-letter records are committed."""

    def crash(name: str) -> None:
        if name == failpoints.DEAD_LETTER_COMMIT:
            raise SimulatedCrash

    run_tasks(round)
    with monkeypatch.context() as patched:
        patched.setattr(failpoints, "hit_failpoint", crash)
        with pytest.raises(SimulatedCrash):
            round.commit()


def set_decoding_rules(monkeypatch: pytest.MonkeyPatch, replacements: dict[bytes, bytes]) -> None:
    """Decode these values as if they were others from now on."""

    def decode_replaced(self: JsonDecoder, values: Sequence[bytes | None]) -> DecodedValues:
        return decode(self, [value if value is None else replacements.get(value, value) for value in values])

    decode = UNCHANGED_DECODE
    monkeypatch.setattr(JsonDecoder, "decode", decode_replaced)


UNCHANGED_DECODE = JsonDecoder.decode

GOOD, ODD, BAD = b'{"good": 1}', b'{"odd": 1}', b"bad"
LENIENT, STRICT = {BAD: b'{"was": "bad"}'}, {ODD: b"odd"}


@pytest.mark.parametrize("changed", [{}, LENIENT, STRICT, LENIENT | STRICT])
@pytest.mark.parametrize("rounds", [1, 3])
def test_each_record_is_in_one_table_if_rules_change_between_commits(
    topic: JournalledTopic,
    tables: LandedTables,
    monkeypatch: pytest.MonkeyPatch,
    changed: dict[bytes, bytes],
    rounds: int,
) -> None:
    send_values(topic, GOOD, ODD, BAD, GOOD, BAD, ODD)
    crash_after_dead_letters(monkeypatch, tables.landing().plan_next_round(1))
    assert (tables.offsets, tables.dead_letters) == ([], [2, 4])
    send_values(topic, BAD, ODD, GOOD)
    set_decoding_rules(monkeypatch, changed)
    landing = tables.landing(round_records_max=9 // rounds)
    dead_letters = sum(land_round(landing).dead_letters for _ in range(rounds))
    late = [1, 5, 7] if changed.keys() >= STRICT.keys() else []
    still_bad = [] if changed.keys() >= LENIENT.keys() else [6]
    assert tables.dead_letters == sorted([2, 4, *late, *still_bad])
    assert dead_letters == len(late) + len(still_bad)
    assert tables.offsets == sorted(set(range(9)) - set(tables.dead_letters))


def test_late_dead_letters_of_crashed_driver_are_kept(
    topic: JournalledTopic, tables: LandedTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    send_values(topic, GOOD, ODD, BAD, GOOD)
    crash_after_dead_letters(monkeypatch, tables.landing().plan_next_round(1))
    set_decoding_rules(monkeypatch, STRICT)
    crash_after_dead_letters(monkeypatch, tables.landing().plan_next_round(1))
    assert (tables.offsets, tables.dead_letters) == ([], [1, 2])
    set_decoding_rules(monkeypatch, {})
    assert land_round(tables.landing()).rows == 2
    assert (tables.offsets, tables.dead_letters) == ([0, 3], [1, 2])


@pytest.mark.parametrize("first_index", [0, 1])
@pytest.mark.parametrize("values", [(GOOD, ODD), (GOOD, ODD, BAD)])
@pytest.mark.parametrize("first_dies", [False, True])
def test_drivers_with_different_rules_put_each_record_in_one_table(
    topic: JournalledTopic,
    tables: LandedTables,
    monkeypatch: pytest.MonkeyPatch,
    first_index: int,
    values: tuple[bytes, ...],
    first_dies: bool,
) -> None:
    send_values(topic, *values)
    prepared = []
    for replacements in ({}, STRICT):
        set_decoding_rules(monkeypatch, replacements)
        prepared.append(run_tasks(tables.landing().plan_next_round(1)))
    first, second = prepared[first_index], prepared[1 - first_index]
    has_letters = BAD in values or first_index == 1
    if first_dies and has_letters:
        crash_after_dead_letters(monkeypatch, first)
    else:
        assert not first.commit().is_superseded
    done = second.commit()
    assert done.rows == 0
    land_round(tables.landing())
    assert sorted(tables.offsets + tables.dead_letters) == list(range(len(values)))


def test_late_dead_letters_of_two_drivers_are_not_duplicated(
    topic: JournalledTopic, tables: LandedTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    send_values(topic, GOOD, ODD, BAD, GOOD)
    crash_after_dead_letters(monkeypatch, tables.landing().plan_next_round(1))
    set_decoding_rules(monkeypatch, STRICT)
    crashing, surviving = (run_tasks(tables.landing().plan_next_round(1)) for _ in range(2))
    crash_after_dead_letters(monkeypatch, crashing)
    assert surviving.commit().is_superseded
    assert land_round(tables.landing()).rows == 2
    assert (tables.offsets, tables.dead_letters) == ([0, 3], [1, 2])

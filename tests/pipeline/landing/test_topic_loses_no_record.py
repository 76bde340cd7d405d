"""What happens to a topic and to its rules while a round runs: against a real broker, with tasks in this process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from chronik.client.admin import NewTopic, create_topics, delete_topics
from chronik.client.cluster import Cluster
from chronik.client.records import OutgoingRecord, TopicPartition
from chronik.errors import ChronikError
from chronik.pipeline.journal.reporting import Reporter
from chronik.pipeline.landing import failpoints
from chronik.pipeline.landing.driver import Driver
from chronik.pipeline.landing.plan import RecordsGone
from chronik.pipeline.landing.settings import LandingSettings, Wishes
from chronik.pipeline.landing.task import run_task
from chronik.pipeline.landing.topic import Round, RoundDone, TopicLanding
from chronik.pipeline.reading import reader
from chronik.pipeline.reading.options import ReadSettings
from chronik.pipeline.reading.ranges import OffsetRange
from chronik.pipeline.records.columns import Wanted
from chronik.pipeline.spark.tasks import Item, Result, SparkJobs
from chronik.pipeline.tables.layout import Kind
from chronik.pipeline.tables.storage import dead_letters_uri, table_uri
from chronik.pipeline.tables.topic_table import TableDiffers
from chronik.pipeline.tables.values import json_rows
from chronik.pipeline.tables.values.shaping import decode_json
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from chronik.protocol.messages.fetch import PartitionData
from chronik.testing import Broker
from tests.pipeline.landing_rows import JournalledTopic, positions
from tests.pipeline.scripted import ScriptedCluster, batch, holding


@pytest.fixture
def cluster(chronik_broker: Broker) -> Iterator[Cluster]:
    with chronik_broker.cluster() as cluster:
        yield cluster


@pytest.fixture
def topic(chronik_broker: Broker, chronik_topic: str) -> JournalledTopic:
    return JournalledTopic(chronik_broker, chronik_topic)


class Landed:
    """Rounds of one topic into a folder of the test's own, and what is then in its tables."""

    def __init__(self, topic: JournalledTopic, cluster: Cluster, folder: Path) -> None:
        self._topic, self._cluster, self.root = topic, cluster, str(folder)

    def landing(self, kind: Kind = Kind.DECODED, **options: Any) -> TopicLanding:
        settings = LandingSettings(
            self._topic.broker.bootstrap, self.root, wishes=Wishes(kind), group="lands", **options
        )
        return TopicLanding(self._topic.name, settings, self._cluster)

    @property
    def offsets(self) -> list[int]:
        return self._offsets(table_uri(self.root, self._topic.name))

    @property
    def letters(self) -> list[int]:
        return self._offsets(dead_letters_uri(self.root, self._topic.name))

    def _offsets(self, uri: str) -> list[int]:
        return [offset for _, offset, _ in positions(uri)]

    def files(self) -> list[Path]:
        return list(Path(self.root).rglob("*.parquet"))


@pytest.fixture
def tables(topic: JournalledTopic, cluster: Cluster, tmp_path: Path) -> Landed:
    return Landed(topic, cluster, tmp_path)


def has_run(round: Round) -> Round:
    while round.tasks:
        round.take([run_task(task) for task in round.tasks])
    return round


def landed(landing: TopicLanding) -> RoundDone:
    return has_run(landing.plan(1)).commit()


def sent(topic: JournalledTopic, *values: bytes) -> None:
    topic.send([OutgoingRecord(value, partition=0) for value in values])


# A topic that is deleted


def test_records_of_a_topic_that_was_created_again_while_it_was_read_do_not_land(
    topic: JournalledTopic, tables: Landed, cluster: Cluster
) -> None:
    sent(topic, b'{"v": "old"}', b"bad")
    landing = tables.landing()
    round = landing.plan(1)
    delete_topics(cluster, [topic.name])
    create_topics(cluster, [NewTopic(topic.name, 1)])
    sent(topic, b'{"v": "new"}', b"worse")
    has_run(round)
    assert tables.files()
    with pytest.raises(TableDiffers, match=f"topic {topic.name} was deleted and created again"):
        round.commit()
    assert tables.offsets == []
    assert tables.letters == []
    assert not tables.files(), "what was read is of no use to anybody"


def test_records_of_a_topic_that_was_deleted_while_it_was_read_do_not_land(
    topic: JournalledTopic, tables: Landed, cluster: Cluster
) -> None:
    sent(topic, b'{"v": "old"}')
    round = has_run(tables.landing().plan(1))
    delete_topics(cluster, [topic.name])
    with pytest.raises(TableDiffers, match=f"topic {topic.name} was deleted"):
        round.commit()
    assert tables.offsets == []
    assert not tables.files()


# Records that are gone


def deleted_before(cluster: Cluster, partition: TopicPartition, offset: int) -> None:
    asked = DeleteRecordsPartition(partition_index=partition.partition, offset=offset)
    topics = [DeleteRecordsTopic(name=partition.topic, partitions=[asked])]
    request = DeleteRecordsRequest(topics=topics, timeout_ms=10_000)
    response = cluster.leader(partition).request(request, DeleteRecordsResponse)
    assert response.topics[0].partitions[0].error_code == 0


@pytest.mark.chronik_topic(partitions=2)
@pytest.mark.parametrize("others", [0, 3])
def test_a_partition_that_was_empty_at_first_is_missed_when_it_loses_records_later(
    topic: JournalledTopic, tables: Landed, cluster: Cluster, others: int
) -> None:
    first = TopicPartition(topic.name, 0)
    topic.send([OutgoingRecord(b"old", partition=0)] * 4 + [OutgoingRecord(b"v", partition=1)] * others)
    deleted_before(cluster, first, 4)
    landing = tables.landing(Kind.RAW)
    assert landed(landing).rows == others
    topic.send([OutgoingRecord(b"new", partition=0)] * 2)
    assert landed(landing).rows == 2, "it had lost nothing that the table should have"
    topic.send([OutgoingRecord(b"newer", partition=0)] * 3)
    deleted_before(cluster, first, 8)
    with pytest.raises(RecordsGone, match="offsets 6 to 7 are gone"):
        landing.plan(1)


class InThisProcess(SparkJobs):
    """Runs tasks here, and then what the test has to say."""

    def __init__(self, then: Callable[[], None]) -> None:
        self._then = then

    def parallelism(self) -> int:
        return 1

    def run(self, function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
        outcomes = [function(item) for item in items]
        self._then()
        return outcomes


def test_a_landing_that_is_to_end_ends_well_when_another_has_landed_more(
    topic: JournalledTopic, tables: Landed, cluster: Cluster
) -> None:
    sent(topic, b"{}", b"{}")
    others: list[RoundDone] = []

    def another() -> None:
        if not others:
            sent(topic, b"{}", b"{}", b"{}")
            others.append(landed(tables.landing()))

    settings = replace(tables.landing(round_records_max=1).settings, topics=(topic.name,))
    summary = Driver(settings, cluster, InThisProcess(another), Reporter(), threading.Event()).run_once()
    assert summary.rows == {topic.name: 0}
    assert [done.rows for done in others] == [5]
    assert tables.offsets == list(range(5))


# What --allow-data-loss allows


def read_tolerantly(monkeypatch: pytest.MonkeyPatch, cluster: ScriptedCluster, start: int, end: int) -> list[int]:
    monkeypatch.setattr(reader, "Cluster", lambda *_, **__: cluster)
    settings = ReadSettings("unused", poll_timeout_s=0.05)
    read = reader.read_past_gaps(OffsetRange("t", 0, start, end), settings, Wanted())
    return [offset for records in read for offset in records.offset.to_pylist()]


def test_what_retention_took_is_passed_over_when_that_is_allowed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    starts = iter([0, 6])
    log_start = 0

    def answering(offset: int, limit: int) -> PartitionData:
        nonlocal log_start
        log_start = next(starts, log_start)  # it moves while the range is read
        return holding([batch(0, 1), batch(2, 3, 4), batch(6, 7)], 8, per_answer=1, log_start=log_start)(offset, limit)

    cluster = ScriptedCluster(answering, log_start=6)
    assert read_tolerantly(monkeypatch, cluster, 0, 8) == [0, 1, 6, 7]
    assert "t-0: offsets 2 to 5 are gone" in caplog.text
    assert read_tolerantly(monkeypatch, cluster, 2, 5) == []


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ErrorCode.NONE, "nothing of offsets 50 to 99 came in"),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "no longer exists"),
        (ErrorCode.OFFSET_OUT_OF_RANGE, "the partition now ends at 40"),
    ],
)
def test_what_a_broker_does_not_have_is_an_error_even_if_data_loss_is_allowed(
    monkeypatch: pytest.MonkeyPatch, error: ErrorCode, told: str
) -> None:
    """It may be a leader that is not up to date, and the table would never take in what it has passed over."""

    def answering(offset: int, _: int) -> PartitionData:
        return PartitionData(error_code=error, high_watermark=50, last_stable_offset=50)

    with pytest.raises(ChronikError, match=told):
        read_tolerantly(monkeypatch, ScriptedCluster(answering, log_end=40), 50, 100)


def test_a_landing_that_allows_data_loss_goes_on_behind_the_gap(
    topic: JournalledTopic, tables: Landed, cluster: Cluster
) -> None:
    sent(topic, *[b"{}"] * 4)
    landing = tables.landing(allow_data_loss=True)
    round = landing.plan(1)
    deleted_before(cluster, TopicPartition(topic.name, 0), 3)
    done = has_run(round).commit()
    assert done.next_offsets == {0: 4}
    assert any("offsets 0 to 2 are gone" in warning for warning in done.warnings)
    assert tables.offsets == [3]


# Rules of decoding that change


class Died(Exception):
    pass


def dies_after_its_letters(monkeypatch: pytest.MonkeyPatch, round: Round) -> None:
    def die(name: str) -> None:
        if name == failpoints.DEAD_LETTER_COMMIT:
            raise Died

    has_run(round)
    with monkeypatch.context() as patched:
        patched.setattr(failpoints, "reached", die)
        with pytest.raises(Died):
            round.commit()


def rules(monkeypatch: pytest.MonkeyPatch, taken_for: dict[bytes, bytes]) -> None:
    """From now on, these values are decoded as if they were others."""
    monkeypatch.setattr(
        json_rows, "decode_json", lambda values: decode_json([taken_for.get(value, value) for value in values])
    )


GOOD, ODD, BAD = b'{"good": 1}', b'{"odd": 1}', b"bad"
LAXER, STRICTER = {BAD: b'{"was": "bad"}'}, {ODD: b"odd"}


@pytest.mark.parametrize("changed", [{}, LAXER, STRICTER, LAXER | STRICTER])
@pytest.mark.parametrize("rounds", [1, 3])
def test_each_record_is_in_one_table_when_rules_change_between_letters_and_rows(
    topic: JournalledTopic,
    tables: Landed,
    monkeypatch: pytest.MonkeyPatch,
    changed: dict[bytes, bytes],
    rounds: int,
) -> None:
    sent(topic, GOOD, ODD, BAD, GOOD, BAD, ODD)
    dies_after_its_letters(monkeypatch, tables.landing().plan(1))
    assert (tables.offsets, tables.letters) == ([], [2, 4])
    sent(topic, BAD, ODD, GOOD)
    rules(monkeypatch, changed)
    landing = tables.landing(round_records_max=9 // rounds)
    letters = sum(landed(landing).dead_letters for _ in range(rounds))
    late = [1, 5, 7] if changed.keys() >= STRICTER.keys() else []
    still_bad = [] if changed.keys() >= LAXER.keys() else [6]
    assert tables.letters == sorted([2, 4, *late, *still_bad])
    assert letters == len(late) + len(still_bad)
    assert tables.offsets == sorted(set(range(9)) - set(tables.letters))


def test_a_driver_that_dies_after_late_letters_leaves_them_to_the_next(
    topic: JournalledTopic, tables: Landed, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent(topic, GOOD, ODD, BAD, GOOD)
    dies_after_its_letters(monkeypatch, tables.landing().plan(1))
    rules(monkeypatch, STRICTER)
    dies_after_its_letters(monkeypatch, tables.landing().plan(1))
    assert (tables.offsets, tables.letters) == ([], [1, 2])
    rules(monkeypatch, {})
    assert landed(tables.landing()).rows == 2
    assert (tables.offsets, tables.letters) == ([0, 3], [1, 2])


@pytest.mark.parametrize("quicker", [0, 1])
@pytest.mark.parametrize("values", [(GOOD, ODD), (GOOD, ODD, BAD)])
@pytest.mark.parametrize("first_dies", [False, True])
def test_of_two_drivers_with_different_rules_one_decides_what_is_a_letter(
    topic: JournalledTopic,
    tables: Landed,
    monkeypatch: pytest.MonkeyPatch,
    quicker: int,
    values: tuple[bytes, ...],
    first_dies: bool,
) -> None:
    sent(topic, *values)
    prepared = []
    for taken_for in ({}, STRICTER):
        rules(monkeypatch, taken_for)
        prepared.append(has_run(tables.landing().plan(1)))
    first, second = prepared[quicker], prepared[1 - quicker]
    has_letters = BAD in values or quicker == 1
    if first_dies and has_letters:
        dies_after_its_letters(monkeypatch, first)
    else:
        assert not first.commit().superseded
    done = second.commit()
    assert done.rows == 0
    landed(tables.landing())
    assert sorted(tables.offsets + tables.letters) == list(range(len(values)))


def test_late_letters_of_two_drivers_are_there_once(
    topic: JournalledTopic, tables: Landed, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent(topic, GOOD, ODD, BAD, GOOD)
    dies_after_its_letters(monkeypatch, tables.landing().plan(1))
    rules(monkeypatch, STRICTER)
    dying, living = (has_run(tables.landing().plan(1)) for _ in range(2))
    dies_after_its_letters(monkeypatch, dying)
    assert living.commit().superseded
    assert landed(tables.landing()).rows == 2
    assert (tables.offsets, tables.letters) == ([0, 3], [1, 2])

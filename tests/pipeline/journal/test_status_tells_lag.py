"""`status`, `pause` and `resume`: what drivers said against where topics end, as a table and as JSON."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

import pytest
from confluent_kafka import Producer as TransactionalProducer

from chronik.cli.main import main
from chronik.client.admin import delete_topics
from chronik.client.producer import Producer
from chronik.client.records import OutgoingRecord, TopicPartition
from chronik.pipeline.journal.held import Holder
from chronik.pipeline.journal.journal import (
    EVERY_TOPIC,
    Heard,
    Journal,
    JournalWriter,
    Place,
    Progress,
    progress_record,
    read_journal,
)
from chronik.pipeline.journal.status import UnknownPipeline, only_pipeline, pause, resume, status, statuses
from chronik.testing import Broker
from chronik.testing.plugin import BrokerFactory

SECONDS_MAX = 30.0
NOW_MS = 1_000_000
ORDERS = Place("chronik-pipeline-tables", "orders")
ENDS = {TopicPartition("orders", 0): (0, 100), TopicPartition("orders", 1): (40, 70)}


def journal_of(progress: Progress, age_s: float = 1.0, place: Place = ORDERS) -> Journal:
    journal = Journal()
    journal.progress[place] = Heard(progress, int(NOW_MS - age_s * 1000))
    return journal


# Pure


def test_lag_is_what_the_table_lacks_of_what_is_there_now() -> None:
    (topic,) = statuses(journal_of(Progress("landing", next_offsets={0: 90}, high_watermarks={0: 95})), ENDS, NOW_MS)
    assert [each.lag for each in topic.partitions] == [10, 30], "what never landed starts with the first record"
    assert [each.next_offset for each in topic.partitions] == [90, None]
    assert (topic.lag, topic.state, topic.quiet_seconds) == (40, "landing", 1.0)


def test_a_driver_that_says_nothing_is_silent_unless_it_said_goodbye() -> None:
    (silent,) = statuses(journal_of(Progress("landing"), age_s=31), ENDS, NOW_MS)
    assert (silent.state, silent.is_silent) == ("silent", True)
    (stopped,) = statuses(journal_of(Progress("stopped"), age_s=31), ENDS, NOW_MS)
    assert (stopped.state, stopped.is_silent) == ("stopped", False)
    (ahead,) = statuses(journal_of(Progress("landing"), age_s=-5), ENDS, NOW_MS)
    assert ahead.quiet_seconds == 0.0, "clocks differ"


def test_a_topic_that_is_gone_is_told_while_a_driver_speaks_of_it() -> None:
    said = Progress("failing", next_offsets={0: 5}, last_error="there is no topic orders")
    (told,) = statuses(journal_of(said), {}, NOW_MS)
    assert (told.lag, told.partitions[0].high_watermark) == (None, None)
    assert not statuses(journal_of(said, age_s=31), {}, NOW_MS)


def test_who_holds_records_up_is_told_with_their_partition() -> None:
    holder = Holder(4001, 2, 95, NOW_MS - 5000, "copier-0")
    held = {TopicPartition("orders", 0): holder}
    (topic,) = statuses(journal_of(Progress("waiting", next_offsets={0: 95})), ENDS, NOW_MS, held)
    assert [each.held_by for each in topic.partitions] == [holder, None]
    assert topic.partitions[0].lag == 5, "what waits for the end of a transaction has not landed"


def test_a_pipeline_need_not_be_named_when_it_is_the_only_one() -> None:
    journal = journal_of(Progress("landing"))
    assert only_pipeline(journal) == ORDERS.pipeline
    journal.progress[Place("other", "clicks")] = journal.progress[ORDERS]
    assert only_pipeline(journal, ["clicks"]) == "other"
    with pytest.raises(UnknownPipeline, match=r"several pipelines: name one .*chronik-pipeline-tables, other"):
        only_pipeline(journal)
    with pytest.raises(UnknownPipeline, match="no pipeline of payments"):
        only_pipeline(journal, ["payments"])


# On a broker


@pytest.fixture
def told(chronik_broker_factory: BrokerFactory) -> Broker:
    """A topic of two partitions with 5 and 3 records, of which 4 and none have landed."""
    broker = chronik_broker_factory()
    broker.create_topic("orders", 2)
    with broker.cluster() as cluster:
        records = [OutgoingRecord(b"value", partition=number) for number in [0] * 5 + [1] * 3]
        Producer(cluster).send("orders", records)
        said = Progress("landing", "/t/orders", {0: 4}, {0: 4}, 4, 2.0, 4, 1, "a disk", 1, host="here", pid=7)
        JournalWriter(cluster).write([progress_record(ORDERS, said)])
    return broker


def test_fresh_ends_are_asked_for(told: Broker) -> None:
    (topic,) = status(told.bootstrap)
    assert [(each.next_offset, each.high_watermark, each.lag) for each in topic.partitions] == [(4, 5, 1), (None, 3, 3)]
    assert (topic.rows_per_second, topic.total_rows, topic.total_dead_letters) == (2.0, 4, 1)
    assert not status(told.bootstrap, pipeline="another")
    assert not status(told.bootstrap, topics=["clicks"])


def test_the_producer_of_an_open_transaction_is_named(told: Broker, capsys: pytest.CaptureFixture[str]) -> None:
    producer = TransactionalProducer({"bootstrap.servers": told.bootstrap, "transactional.id": "copier-0"})
    producer.init_transactions(SECONDS_MAX)
    producer.begin_transaction()
    producer.produce("orders", b"open", partition=1)
    assert producer.flush(SECONDS_MAX) == 0
    (topic,) = status(told.bootstrap)
    holder = topic.partitions[1].held_by
    assert holder is not None
    assert topic.partitions[0].held_by is None
    assert (holder.transactional_id, holder.start_offset) == ("copier-0", 3)
    assert main(["pipeline", "status", "-b", told.bootstrap]) == 0
    said = "orders-1: held up at offset 3 by the open transaction of transactional id copier-0 (producer "
    assert said in capsys.readouterr().out
    assert main(["pipeline", "status", "-b", told.bootstrap, "--json"]) == 0
    (shown,) = json.loads(capsys.readouterr().out)["topics"]
    assert shown["partitions"][1]["held_by"]["transactional_id"] == "copier-0"
    producer.commit_transaction(SECONDS_MAX)
    (topic,) = status(told.bootstrap)
    assert [each.held_by for each in topic.partitions] == [None, None]


def test_people_get_tables_and_programs_json(told: Broker, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pipeline", "status", "-b", told.bootstrap]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["PIPELINE", "TOPIC", "STATE", "LAG", "ROWS/S", "ROWS", "DEAD", "NEWS", "DRIVER"]
    assert lines[1].split()[:7] == [ORDERS.pipeline, "orders", "landing", "4", "2", "4", "1"]
    assert [line.split() for line in lines[3:6]] == [
        ["TOPIC", "PARTITION", "LANDED", "TO", "END", "LAG"],
        ["orders", "0", "4", "5", "1"],
        ["orders", "1", "-", "3", "3"],
    ]
    assert lines[-1].startswith("orders: last error, ")
    assert lines[-1].endswith(" ago: a disk")
    assert main(["pipeline", "status", "--json", "-b", told.bootstrap]) == 0
    (topic,) = json.loads(capsys.readouterr().out)["topics"]
    assert (topic["topic"], topic["lag"], topic["pid"]) == ("orders", 4, 7)
    assert topic["partitions"][0] == {
        "partition": 0,
        "next_offset": 4,
        "high_watermark": 5,
        "lag": 1,
        "held_by": None,
    }


def test_who_watches_sees_it_again_and_again_also_when_the_broker_was_away(told: Broker) -> None:
    words = ["pipeline", "status", "--watch", "--json", "--timeout", "1", "-b", told.bootstrap]
    command = [sys.executable, "-P", "-m", "chronik", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as watching:
        assert watching.stdout is not None
        assert watching.stderr is not None
        try:
            assert json.loads(watching.stdout.readline())["topics"][0]["lag"] == 4
            told.kill()
            assert watching.stderr.readline().startswith("chronik: ")
            told.start()
            assert json.loads(watching.stdout.readline())["topics"][0]["lag"] == 4
            watching.send_signal(signal.SIGINT)
            assert watching.wait(SECONDS_MAX) == 130
        finally:
            watching.kill()


def test_where_nothing_was_ever_said_that_is_what_is_told(
    chronik_broker_factory: BrokerFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    bootstrap = chronik_broker_factory().bootstrap
    assert main(["pipeline", "status", "-b", bootstrap]) == 0
    assert capsys.readouterr().out == "no pipeline has reported: `chronik pipeline run` does\n"
    assert main(["pipeline", "pause", "orders", "-b", bootstrap]) == 1
    expected = "chronik: no pipeline of orders has reported yet: name it with --pipeline\n"
    assert capsys.readouterr().err == expected


def test_a_failing_topic_is_an_exit_code(told: Broker, capsys: pytest.CaptureFixture[str]) -> None:
    with told.cluster() as cluster:
        JournalWriter(cluster).write([progress_record(ORDERS, Progress("failing", last_error="why"))])
    assert main(["pipeline", "status", "-b", told.bootstrap]) == 1
    assert "orders: last error: why" in capsys.readouterr().out


def test_a_topic_that_was_deleted_does_not_hide_the_others(told: Broker) -> None:
    told.create_topic("clicks")
    with told.cluster() as cluster:
        JournalWriter(cluster).write([progress_record(Place("p", "clicks"), Progress("waiting"))])
        delete_topics(cluster, ["orders"])
    assert {topic.topic: topic.lag for topic in status(told.bootstrap)} == {"clicks": 0, "orders": None}


def test_pausing_and_going_on_is_told_to_drivers_and_to_those_who_ask(
    told: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    assert pause(told.bootstrap, topics=["orders"]) == [ORDERS]
    (topic,) = status(told.bootstrap)
    assert topic.pause_asked
    assert main(["pipeline", "status", "-b", told.bootstrap]) == 0
    assert "landing, to pause" in capsys.readouterr().out
    assert resume(told.bootstrap) == [Place(ORDERS.pipeline, EVERY_TOPIC)]
    with told.cluster() as cluster:
        assert not read_journal(cluster).paused(ORDERS)
    assert main(["pipeline", "pause", "-b", told.bootstrap]) == 0
    assert main(["pipeline", "resume", "orders", "--json", "-b", told.bootstrap]) == 0
    said, _, rest = capsys.readouterr().out.partition("\n")
    assert said == "chronik-pipeline-tables: every topic pauses after the round that runs"
    assert json.loads(rest) == [ORDERS._asdict()]
    with told.cluster() as cluster:
        assert not read_journal(cluster).paused(ORDERS)


def test_who_names_a_pipeline_that_never_reported_is_told_so(told: Broker, capsys: pytest.CaptureFixture[str]) -> None:
    """It may be about to start, or the name may be wrong: what was asked for stands either way."""
    for action in ("resume", "pause"):
        assert main(["pipeline", action, "x", "--pipeline", "another", "-b", told.bootstrap]) == 0
        expected = f"no pipeline another has reported yet (there is {ORDERS.pipeline})"
        assert capsys.readouterr().err == f"{expected}: it will be told if it ever starts\n"
    with told.cluster() as cluster:
        assert read_journal(cluster).paused(Place("another", "x"))
    assert main(["pipeline", "pause", "--pipeline", ORDERS.pipeline, "-b", told.bootstrap]) == 0
    assert capsys.readouterr().err == ""


def test_where_no_pipeline_ever_reported_one_may_still_be_named(
    chronik_broker_factory: BrokerFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["pipeline", "pause", "--pipeline", "p", "--json", "-b", chronik_broker_factory().bootstrap]) == 0
    said = capsys.readouterr()
    assert json.loads(said.out) == [{"pipeline": "p", "topic": "*"}]
    assert said.err == "no pipeline p has reported yet (there is none): it will be told if it ever starts\n"

"""`status`, `pause` and `resume`: reported progress compared with the topics' ends, as a table and as JSON."""

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
from chronik.pipeline.journal.journal_client import JournalWriter, encode_progress, read_journal
from chronik.pipeline.journal.pipeline_status import (
    BlockingTransaction,
    UnknownPipelineError,
    build_topic_statuses,
    pause,
    resolve_pipeline,
    resume,
    status,
)
from chronik.pipeline_journal import ALL_TOPICS, PipelineJournalState, PipelineTopicKey, ReceivedProgress, TopicProgress
from chronik.testing import Broker
from chronik.testing.plugin import BrokerFactory

SECONDS_MAX = 30.0
NOW_MS = 1_000_000
ORDERS = PipelineTopicKey("chronik-pipeline-tables", "orders")
ENDS = {TopicPartition("orders", 0): (0, 100), TopicPartition("orders", 1): (40, 70)}


def build_journal(
    progress: TopicProgress, age_s: float = 1.0, place: PipelineTopicKey = ORDERS
) -> PipelineJournalState:
    journal = PipelineJournalState()
    journal.progress[place] = ReceivedProgress(progress, int(NOW_MS - age_s * 1000))
    return journal


# Without brokers


def test_lag_is_computed_from_current_end_offsets() -> None:
    (topic,) = build_topic_statuses(
        build_journal(TopicProgress("landing", next_offsets={0: 90}, high_watermarks={0: 95})), ENDS, NOW_MS
    )
    assert [each.lag for each in topic.partitions] == [10, 30], "counted from the first record"
    assert [each.next_offset for each in topic.partitions] == [90, None]
    assert (topic.lag, topic.state, topic.quiet_seconds) == (40, "landing", 1.0)


def test_driver_without_reports_is_silent_unless_stopped() -> None:
    (silent,) = build_topic_statuses(build_journal(TopicProgress("landing"), age_s=31), ENDS, NOW_MS)
    assert (silent.state, silent.is_silent) == ("silent", True)
    (stopped,) = build_topic_statuses(build_journal(TopicProgress("stopped"), age_s=31), ENDS, NOW_MS)
    assert (stopped.state, stopped.is_silent) == ("stopped", False)
    (ahead,) = build_topic_statuses(build_journal(TopicProgress("landing"), age_s=-5), ENDS, NOW_MS)
    assert ahead.quiet_seconds == 0.0, "clocks differ"


def test_deleted_topic_is_listed_while_its_driver_reports() -> None:
    progress = TopicProgress("failing", next_offsets={0: 5}, last_error="there is no topic orders")
    (topic,) = build_topic_statuses(build_journal(progress), {}, NOW_MS)
    assert (topic.lag, topic.partitions[0].high_watermark) == (None, None)
    assert not build_topic_statuses(build_journal(progress, age_s=31), {}, NOW_MS)


def test_blocking_transaction_is_shown_for_its_partition() -> None:
    holder = BlockingTransaction(4001, 2, 95, NOW_MS - 5000, "copier-0")
    held = {TopicPartition("orders", 0): holder}
    (topic,) = build_topic_statuses(build_journal(TopicProgress("waiting", next_offsets={0: 95})), ENDS, NOW_MS, held)
    assert [each.held_by for each in topic.partitions] == [holder, None]
    assert topic.partitions[0].lag == 5, "records of an open transaction have not landed"


def test_only_pipeline_is_selected_by_default() -> None:
    journal = build_journal(TopicProgress("landing"))
    assert resolve_pipeline(journal) == ORDERS.pipeline
    journal.progress[PipelineTopicKey("other", "clicks")] = journal.progress[ORDERS]
    assert resolve_pipeline(journal, ["clicks"]) == "other"
    with pytest.raises(
        UnknownPipelineError, match=r"several pipelines have reported: .*chronik-pipeline-tables, other"
    ):
        resolve_pipeline(journal)
    with pytest.raises(UnknownPipelineError, match="no pipeline has reported for payments"):
        resolve_pipeline(journal, ["payments"])


# With a broker


@pytest.fixture
def reporting_broker(chronik_broker_factory: BrokerFactory) -> Broker:
    """A broker with a topic of two partitions with 5 and 3 records, of which 4 and 0 have landed."""
    broker = chronik_broker_factory()
    broker.create_topic("orders", 2)
    with broker.cluster() as cluster:
        records = [OutgoingRecord(b"value", partition=number) for number in [0] * 5 + [1] * 3]
        Producer(cluster).send("orders", records)
        progress = TopicProgress("landing", "/t/orders", {0: 4}, {0: 4}, 4, 2.0, 4, 1, "a disk", 1, host="here", pid=7)
        JournalWriter(cluster).write([encode_progress(ORDERS, progress)])
    return broker


def test_status_fetches_current_end_offsets(reporting_broker: Broker) -> None:
    (topic,) = status(reporting_broker.bootstrap)
    assert [(each.next_offset, each.high_watermark, each.lag) for each in topic.partitions] == [(4, 5, 1), (None, 3, 3)]
    assert (topic.rows_per_second, topic.total_rows, topic.total_dead_letters) == (2.0, 4, 1)
    assert not status(reporting_broker.bootstrap, pipeline="another")
    assert not status(reporting_broker.bootstrap, topics=["clicks"])


def test_status_names_producer_of_open_transaction(
    reporting_broker: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    producer = TransactionalProducer({"bootstrap.servers": reporting_broker.bootstrap, "transactional.id": "copier-0"})
    producer.init_transactions(SECONDS_MAX)
    producer.begin_transaction()
    producer.produce("orders", b"open", partition=1)
    assert producer.flush(SECONDS_MAX) == 0
    (topic,) = status(reporting_broker.bootstrap)
    holder = topic.partitions[1].held_by
    assert holder is not None
    assert topic.partitions[0].held_by is None
    assert (holder.transactional_id, holder.start_offset) == ("copier-0", 3)
    assert main(["pipeline", "status", "-b", reporting_broker.bootstrap]) == 0
    output = "orders-1: blocked at offset 3 by the open transaction of transactional id copier-0 (producer "
    assert output in capsys.readouterr().out
    assert main(["pipeline", "status", "-b", reporting_broker.bootstrap, "--json"]) == 0
    (topic_json,) = json.loads(capsys.readouterr().out)["topics"]
    assert topic_json["partitions"][1]["held_by"]["transactional_id"] == "copier-0"
    producer.commit_transaction(SECONDS_MAX)
    (topic,) = status(reporting_broker.bootstrap)
    assert [each.held_by for each in topic.partitions] == [None, None]


def test_status_command_prints_table_or_json(reporting_broker: Broker, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pipeline", "status", "-b", reporting_broker.bootstrap]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["PIPELINE", "TOPIC", "STATE", "LAG", "ROWS/S", "ROWS", "DEAD", "REPORTED", "DRIVER"]
    assert lines[1].split()[:7] == [ORDERS.pipeline, "orders", "landing", "4", "2", "4", "1"]
    assert [line.split() for line in lines[3:6]] == [
        ["TOPIC", "PARTITION", "LANDED", "TO", "END", "LAG"],
        ["orders", "0", "4", "5", "1"],
        ["orders", "1", "-", "3", "3"],
    ]
    assert lines[-1].startswith("orders: last error, ")
    assert lines[-1].endswith(" ago: a disk")
    assert main(["pipeline", "status", "--json", "-b", reporting_broker.bootstrap]) == 0
    (topic,) = json.loads(capsys.readouterr().out)["topics"]
    assert (topic["topic"], topic["lag"], topic["pid"]) == ("orders", 4, 7)
    assert topic["partitions"][0] == {
        "partition": 0,
        "next_offset": 4,
        "high_watermark": 5,
        "lag": 1,
        "held_by": None,
    }


def test_status_watch_continues_after_broker_restart(reporting_broker: Broker) -> None:
    words = ["pipeline", "status", "--watch", "--json", "--timeout", "1", "-b", reporting_broker.bootstrap]
    command = [sys.executable, "-P", "-m", "chronik", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as watching:
        assert watching.stdout is not None
        assert watching.stderr is not None
        try:
            assert json.loads(watching.stdout.readline())["topics"][0]["lag"] == 4
            reporting_broker.kill()
            assert watching.stderr.readline().startswith("chronik: ")
            reporting_broker.start()
            assert json.loads(watching.stdout.readline())["topics"][0]["lag"] == 4
            watching.send_signal(signal.SIGINT)
            assert watching.wait(SECONDS_MAX) == 130
        finally:
            watching.kill()


def test_status_and_pause_without_any_pipeline_report_it(
    chronik_broker_factory: BrokerFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    bootstrap = chronik_broker_factory().bootstrap
    assert main(["pipeline", "status", "-b", bootstrap]) == 0
    assert capsys.readouterr().out == "no pipeline has reported its status; start one with `chronik pipeline run`\n"
    assert main(["pipeline", "pause", "orders", "-b", bootstrap]) == 1
    expected = "chronik: no pipeline has reported for orders: name it with --pipeline\n"
    assert capsys.readouterr().err == expected


def test_status_exit_code_is_1_for_failing_topic(reporting_broker: Broker, capsys: pytest.CaptureFixture[str]) -> None:
    with reporting_broker.cluster() as cluster:
        JournalWriter(cluster).write([encode_progress(ORDERS, TopicProgress("failing", last_error="why"))])
    assert main(["pipeline", "status", "-b", reporting_broker.bootstrap]) == 1
    assert "orders: last error: why" in capsys.readouterr().out


def test_deleted_topic_does_not_hide_other_topics(reporting_broker: Broker) -> None:
    reporting_broker.create_topic("clicks")
    with reporting_broker.cluster() as cluster:
        JournalWriter(cluster).write([encode_progress(PipelineTopicKey("p", "clicks"), TopicProgress("waiting"))])
        delete_topics(cluster, ["orders"])
    assert {topic.topic: topic.lag for topic in status(reporting_broker.bootstrap)} == {"clicks": 0, "orders": None}


def test_pause_and_resume_are_written_and_shown_in_status(
    reporting_broker: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    assert pause(reporting_broker.bootstrap, topics=["orders"]) == [ORDERS]
    (topic,) = status(reporting_broker.bootstrap)
    assert topic.pause_asked
    assert main(["pipeline", "status", "-b", reporting_broker.bootstrap]) == 0
    assert "landing, pausing" in capsys.readouterr().out
    assert resume(reporting_broker.bootstrap) == [PipelineTopicKey(ORDERS.pipeline, ALL_TOPICS)]
    with reporting_broker.cluster() as cluster:
        assert not read_journal(cluster).is_paused(ORDERS)
    assert main(["pipeline", "pause", "-b", reporting_broker.bootstrap]) == 0
    assert main(["pipeline", "resume", "orders", "--json", "-b", reporting_broker.bootstrap]) == 0
    output, _, rest = capsys.readouterr().out.partition("\n")
    assert output == "chronik-pipeline-tables: every topic will pause after the current round"
    assert json.loads(rest) == [ORDERS._asdict()]
    with reporting_broker.cluster() as cluster:
        assert not read_journal(cluster).is_paused(ORDERS)


def test_pause_of_unreported_pipeline_prints_warning(
    reporting_broker: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    """The pipeline may start later, or the name may be wrong; the request is written in any case."""
    for action in ("resume", "pause"):
        assert main(["pipeline", action, "x", "--pipeline", "another", "-b", reporting_broker.bootstrap]) == 0
        expected = f"pipeline another has not reported yet (known pipelines: {ORDERS.pipeline})"
        assert capsys.readouterr().err == f"{expected}: the request applies when it starts\n"
    with reporting_broker.cluster() as cluster:
        assert read_journal(cluster).is_paused(PipelineTopicKey("another", "x"))
    assert main(["pipeline", "pause", "--pipeline", ORDERS.pipeline, "-b", reporting_broker.bootstrap]) == 0
    assert capsys.readouterr().err == ""


def test_pause_by_name_works_before_any_report(
    chronik_broker_factory: BrokerFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["pipeline", "pause", "--pipeline", "p", "--json", "-b", chronik_broker_factory().bootstrap]) == 0
    output = capsys.readouterr()
    assert json.loads(output.out) == [{"pipeline": "p", "topic": "*"}]
    assert output.err == "pipeline p has not reported yet (known pipelines: none): the request applies when it starts\n"

"""The status of a running pipeline on Spark: lag, columns, sample rows, pause, resume and stop."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from chronik.client.producer import Producer
from chronik.client.records import OutgoingRecord
from chronik.pipeline.journal.journal_client import JOURNAL_PARTITION, read_journal
from chronik.pipeline.journal.journal_reporter import JournalReporter
from chronik.pipeline.journal.pipeline_status import TopicStatus, pause, resume, status
from chronik.pipeline.landing import LandingSummary, run
from chronik.pipeline_journal import ColumnInfo, TableSample
from chronik.protocol.messages.sample_table import SampleTableRequest, SampleTableResponse
from chronik.testing import Broker
from chronik.testing.plugin import BrokerFactory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PIPELINE = "chronik-pipeline-seen"
SECONDS_MAX = 120.0


def write(broker: Broker, count: int) -> None:
    with broker.cluster() as cluster:
        records = [OutgoingRecord(b"%d" % number, partition=number % 2) for number in range(count)]
        Producer(cluster).send("orders", records)


def wait_for(broker: Broker, condition: Callable[[TopicStatus], bool], what: str) -> TopicStatus:
    deadline = time.monotonic() + SECONDS_MAX
    while True:
        found = status(broker.bootstrap)
        if found and condition(found[0]):
            return found[0]
        assert time.monotonic() < deadline, f"not in time: {what}; {found}"
        time.sleep(0.1)


def request_sample(broker: Broker, topic: str) -> TableSample:
    """Request sample rows from the driver through a broker."""
    request = SampleTableRequest(pipeline=PIPELINE, topic=topic, rows=20, timeout_ms=int(SECONDS_MAX * 1000))
    with broker.cluster() as cluster:
        response = cluster.leader(JOURNAL_PARTITION).request(request, SampleTableResponse, wait_s=SECONDS_MAX)
    assert not response.error_code, response
    return msgspec.json.decode(response.sample, type=TableSample)


def test_status_shows_landing_pause_resume_and_stop(
    spark: SparkSession, chronik_broker_factory: BrokerFactory, tmp_path: Path
) -> None:
    broker = chronik_broker_factory()
    broker.create_topic("orders", 2)
    write(broker, 100)
    stop, summaries = threading.Event(), list[LandingSummary]()

    def land() -> None:
        reporter = JournalReporter(broker.bootstrap, PIPELINE)
        summaries.append(
            run(
                broker.bootstrap,
                str(tmp_path),
                ["orders"],
                group=PIPELINE,
                interval_s=0.2,
                spark=spark,
                reporter=reporter,
                stop=stop,
            )
        )

    landing = threading.Thread(target=land)
    landing.start()
    try:
        landed = wait_for(broker, lambda topic: topic.total_rows == 100, "100 rows")
        assert (landed.pipeline, landed.lag) == (PIPELINE, 0)
        assert landed.rows_per_second > 0
        assert landed.table == f"{tmp_path}/orders"

        sample = request_sample(broker, "orders")
        assert sample.error is None
        value_index = sample.columns.index("_value")
        values = [row[value_index] for row in sample.rows]
        assert len(values) == 20
        assert {int(value or -1) for value in values} < set(range(100)), "the rows have values that were written"
        assert len(set(values)) == 20
        with broker.cluster() as cluster:
            (schema,) = read_journal(cluster).schemas.values()
        assert [each.name for each in schema.columns] == sample.columns
        assert ColumnInfo("_offset", "bigint") in schema.columns
        assert "no table at" in (request_sample(broker, "others").error or "")

        pause(broker.bootstrap, topics=["orders"])
        wait_for(broker, lambda topic: topic.state == "paused", "the topic is paused")
        write(broker, 10)
        waiting = wait_for(broker, lambda topic: topic.lag == 10, "new records count as lag")
        assert [each.lag for each in waiting.partitions] == [5, 5]
        assert waiting.state == "paused"

        resume(broker.bootstrap)
        wait_for(broker, lambda topic: topic.total_rows == 110 and topic.lag == 0, "landing resumes")
    finally:
        stop.set()
        landing.join(SECONDS_MAX)
    assert summaries[0].rows == {"orders": 110}
    (ended,) = status(broker.bootstrap)
    assert (ended.state, ended.lag, ended.last_error) == ("stopped", 0, None)

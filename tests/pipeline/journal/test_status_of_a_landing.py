"""A landing as others see it while it runs: its lag, its columns and rows, its pausing, its end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from chronik.client.producer import Producer
from chronik.client.records import OutgoingRecord
from chronik.pipeline.journal.journal import PARTITION, read_journal
from chronik.pipeline.journal.reporter import JournalReporter
from chronik.pipeline.journal.reporting import Column
from chronik.pipeline.journal.status import TopicStatus, pause, resume, status
from chronik.pipeline.landing import Summary, run
from chronik.pipeline.tables.showing import Rows
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


def wait_for(broker: Broker, seen: Callable[[TopicStatus], bool], what: str) -> TopicStatus:
    deadline = time.monotonic() + SECONDS_MAX
    while True:
        found = status(broker.bootstrap)
        if found and seen(found[0]):
            return found[0]
        assert time.monotonic() < deadline, f"not in time: {what}; {found}"
        time.sleep(0.1)


def shown(broker: Broker, topic: str) -> Rows:
    """What the driver answers who is asked for rows, which a node passes on."""
    request = SampleTableRequest(pipeline=PIPELINE, topic=topic, rows=20, timeout_ms=int(SECONDS_MAX * 1000))
    with broker.cluster() as cluster:
        answer = cluster.leader(PARTITION).request(request, SampleTableResponse, wait_s=SECONDS_MAX)
    assert not answer.error_code, answer
    return msgspec.json.decode(answer.sample, type=Rows)


def test_a_landing_is_seen_to_land_to_pause_to_go_on_and_to_stop(
    spark: SparkSession, chronik_broker_factory: BrokerFactory, tmp_path: Path
) -> None:
    broker = chronik_broker_factory()
    broker.create_topic("orders", 2)
    write(broker, 100)
    stop, summaries = threading.Event(), list[Summary]()

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

        told = shown(broker, "orders")
        assert told.error is None
        at = told.columns.index("_value")
        values = [row[at] for row in told.rows]
        assert len(values) == 20
        assert {int(value or -1) for value in values} < set(range(100)), "rows that were written, each once"
        assert len(set(values)) == 20
        with broker.cluster() as cluster:
            (schema,) = read_journal(cluster).schemas.values()
        assert [each.name for each in schema.columns] == told.columns
        assert Column("_offset", "bigint") in schema.columns
        assert "there is no table at" in (shown(broker, "others").error or "")

        pause(broker.bootstrap, topics=["orders"])
        wait_for(broker, lambda topic: topic.state == "paused", "it pauses")
        write(broker, 10)
        waiting = wait_for(broker, lambda topic: topic.lag == 10, "what is not landed is lag")
        assert [each.lag for each in waiting.partitions] == [5, 5]
        assert waiting.state == "paused"

        resume(broker.bootstrap)
        wait_for(broker, lambda topic: topic.total_rows == 110 and topic.lag == 0, "it goes on")
    finally:
        stop.set()
        landing.join(SECONDS_MAX)
    assert summaries[0].rows == {"orders": 110}
    (ended,) = status(broker.bootstrap)
    assert (ended.state, ended.lag, ended.last_error) == ("stopped", 0, None)

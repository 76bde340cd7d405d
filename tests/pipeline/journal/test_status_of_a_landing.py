"""A landing as others see it while it runs: its lag, its pausing, its end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from chronik.client.producer import Producer
from chronik.client.records import OutgoingRecord
from chronik.pipeline.journal.reporter import JournalReporter
from chronik.pipeline.journal.status import TopicStatus, pause, resume, status
from chronik.pipeline.landing import Summary, run
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

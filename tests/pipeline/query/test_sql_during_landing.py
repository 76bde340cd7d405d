"""Queries while records are produced and land: each returns every offset once, up to an end between the high watermarks
before and after the query.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from chronik.client.offsets import list_latest_offsets
from chronik.client.producer import Producer
from chronik.client.records import OutgoingRecord, TopicPartition
from chronik.pipeline.landing.runner import run
from chronik.pipeline.query.sql import query
from chronik.pipeline.tables.catalog import open_table
from chronik.pipeline.tables.storage import table_uri
from chronik.testing import Broker
from tests.run_size import sized

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUERIES = sized(12, 100)
PARTITIONS = 3
RECORDS_PER_SEND = 50
RECORDS_PER_SECOND = 2000
"""Fast enough that records arrive between any two queries, slow enough that queries stay short."""

LANDING_SECONDS = 0.3
FIRST_LANDING_SECONDS_MAX = 120.0

RAW, DECODED = "clicks", "orders"


@contextmanager
def in_background(work: Callable[[threading.Event], object]) -> Iterator[None]:
    """Run work in a thread; its failure fails the test."""
    stop = threading.Event()
    failures: list[BaseException] = []

    def run_work() -> None:
        try:
            work(stop)
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=run_work, daemon=True)
    thread.start()
    try:
        yield
        assert thread.is_alive(), f"the thread ended before the queries did: {failures}"
    finally:
        stop.set()
        thread.join(60)
    assert not failures


def produce(broker: Broker, stop: threading.Event) -> None:
    number = 0
    with broker.cluster() as cluster:
        producer = Producer(cluster)
        while not stop.wait(RECORDS_PER_SEND / RECORDS_PER_SECOND):
            for topic in (RAW, DECODED):
                records = [
                    OutgoingRecord(b'{"n":%d}' % each, partition=each % PARTITIONS)
                    for each in range(number, number + RECORDS_PER_SEND)
                ]
                producer.send(topic, records)
            number += RECORDS_PER_SEND


def land(spark: SparkSession, broker: Broker, root: str, stop: threading.Event) -> None:
    run(broker.bootstrap, root, spark=spark, interval_s=LANDING_SECONDS, stop=stop)


def test_queries_return_every_offset_once_during_landing(
    spark: SparkSession,
    chronik_broker_factory: Callable[..., Broker],
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    broker, root = chronik_broker_factory(), str(tmp_path)
    for topic, format in ((RAW, "raw"), (DECODED, "json")):
        configs = {"columnar.enabled": "true", "columnar.format": format}
        broker.create_topic(topic, partitions=PARTITIONS, configs=configs)
    seconds, ends_landed, with_both_halves = [], set(), 0
    with (
        in_background(lambda stop: produce(broker, stop)),
        in_background(lambda stop: land(spark, broker, root, stop)),
    ):
        for topic in (RAW, DECODED):
            wait_until_landed(root, topic)
        for number in range(QUERIES):
            topic = (RAW, DECODED)[number % 2]
            before = fetch_end_offsets(broker, topic)
            started = time.monotonic()
            found = query_offsets(spark, broker, root, topic)
            seconds.append(time.monotonic() - started)
            after, landed = fetch_end_offsets(broker, topic), fetch_landed_offsets(root, topic)
            for partition in range(PARTITIONS):
                offsets = found[partition]
                assert np.array_equal(offsets, np.arange(len(offsets))), f"query {number}, {topic}-{partition}"
                assert before[partition] <= len(offsets) <= after[partition], f"query {number}, {topic}-{partition}"
            ends_landed.add((topic, tuple(sorted(landed.items()))))
            with_both_halves += any(len(found[each]) > landed.get(each, 0) > 0 for each in range(PARTITIONS))
    rows = sum(map(len, found.values()))
    record_property(
        "summary",
        f"{QUERIES} queries under a producer and landing: median {statistics.median(seconds):.2f} s,"
        f" longest {max(seconds):.2f} s; {len(ends_landed)} table versions seen, the last query over {rows:,} rows,"
        f" {with_both_halves} certainly over both halves",
    )
    assert len(ends_landed) >= QUERIES // 10, "nothing landed during the queries"
    assert with_both_halves >= QUERIES // 10, "the tail was always empty"


def wait_until_landed(root: str, topic: str) -> None:
    deadline = time.monotonic() + FIRST_LANDING_SECONDS_MAX
    while len(fetch_landed_offsets(root, topic)) < PARTITIONS:
        assert time.monotonic() < deadline, f"{topic} did not land in time"
        time.sleep(0.1)


def fetch_landed_offsets(root: str, topic: str) -> dict[int, int]:
    from chronik.pipeline.tables.topic_table import TableMissingError

    try:
        return open_table(table_uri(root, topic)).next_offsets()
    except TableMissingError:
        return {}


def fetch_end_offsets(broker: Broker, topic: str) -> dict[int, int]:
    with broker.cluster() as cluster:
        found = list_latest_offsets(cluster, [TopicPartition(topic, each) for each in range(PARTITIONS)])
    return {each.partition: offset for each, offset in found.items()}


def query_offsets(spark: SparkSession, broker: Broker, root: str, topic: str) -> dict[int, np.ndarray]:
    """Return the sorted offsets of each partition as returned by a query."""
    table = query(spark, f"SELECT _partition, _offset FROM {topic}", broker.bootstrap, root).toArrow()
    partitions, offsets = table["_partition"].to_numpy(), table["_offset"].to_numpy()
    assert set(partitions.tolist()) == set(range(PARTITIONS))
    return {each: np.sort(offsets[partitions == each]) for each in range(PARTITIONS)}

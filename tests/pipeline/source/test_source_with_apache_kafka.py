"""Tests of the source and sink with an Apache Kafka broker: codecs, transactions, compaction and streams.

Tests of transactions also run with a Chronik broker. The records are written by librdkafka, like those of other
clients.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from chronik.client.consumer import read_all
from chronik.client.partitioner import choose_partition
from chronik.pipeline.landing import run
from chronik.pipeline.query.sql import query
from chronik.testing import Broker
from tests.pipeline.apache_kafka import ApacheKafka
from tests.pipeline.committed_reader import read_committed_values
from tests.pipeline.jars import APACHE_KAFKA, skip_without_jars

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
FIRST_MS = 1_700_000_000_000
SECONDS_MAX = 120
POLL_SECONDS = 0.1
COMMITTED, UNCOMMITTED = "read_committed", "read_uncommitted"


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheKafka]:
    skip_without_jars(APACHE_KAFKA)
    with ApacheKafka(tmp_path_factory.mktemp("apache-kafka")) as broker:
        yield broker


AnyBroker = ApacheKafka | Broker


@pytest.fixture(params=["kafka", "chronik_broker"])
def broker(request: pytest.FixtureRequest) -> AnyBroker:
    found: AnyBroker = request.getfixturevalue(request.param)
    return found


def create_topic_on(broker: AnyBroker, topic: str, partitions: int = 1) -> str:
    broker.create_topic(topic, partitions)
    return topic


def unique(name: str) -> str:
    return f"{name}-{uuid.uuid4().hex[:8]}"


def send_all(producer: Any, sends: Iterable[dict[str, Any]]) -> None:
    """Send the messages, and wait until the broker has acknowledged them."""
    errors: list[object] = []
    for send in sends:
        producer.produce(**send, on_delivery=lambda error, _: errors.append(error) if error else None)
    assert producer.flush(SECONDS_MAX) == 0
    assert not errors


def plain_producer(kafka: AnyBroker, **config: Any) -> Any:
    return Producer({"bootstrap.servers": kafka.bootstrap} | config)


def transactional_producer(kafka: AnyBroker) -> Any:
    producer = plain_producer(kafka, **{"transactional.id": unique("writer")})
    producer.init_transactions(SECONDS_MAX)
    return producer


def reader_options(kafka: AnyBroker, topic: str, **options: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": kafka.bootstrap, "subscribe": topic} | options


def load(spark: SparkSession, kafka: AnyBroker, topic: str, **options: str) -> DataFrame:
    return spark.read.format("chronik").options(**reader_options(kafka, topic, **options)).load()


def values(frame: DataFrame) -> list[str]:
    """Return the values ordered by partition and offset."""
    ordered = frame.orderBy("partition", "offset").select("value").collect()
    return [bytes(row.value).decode() for row in ordered]


def wait_until(condition: str, state: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not state():
        assert time.monotonic() < deadline, f"not within {SECONDS_MAX} s: {condition}"
        time.sleep(POLL_SECONDS)


# Reading


def test_records_of_every_codec_are_read_unchanged(spark: SparkSession, kafka: ApacheKafka) -> None:
    topic = kafka.create_topic(unique("codecs"), 3)
    expected_values = {}
    for codec_index, codec in enumerate(CODECS):
        sends = []
        for number in range(200 * codec_index, 200 * (codec_index + 1)):
            key = None if number % 7 == 0 else b"key %d" % number
            value = None if number % 11 == 0 else b"value %d" % number
            headers = [("a", b"%d" % number), ("b", None)] if number % 5 == 0 else []
            send = {"key": key, "value": value, "headers": headers, "timestamp": FIRST_MS + number}
            sends.append(send | {"topic": topic, "partition": number % 3})
            expected_values[FIRST_MS + number] = (number % 3, key, value, headers)
        send_all(plain_producer(kafka, **{"compression.type": codec, "linger.ms": 50}), sends)
    rows = load(spark, kafka, topic, includeHeaders="true").selectExpr("*", "unix_millis(timestamp) AS ms").collect()
    assert len(rows) == len(expected_values) == 1000
    for row in rows:
        headers = [(header.key, _bytes(header.value)) for header in row.headers or ()]
        assert (row.partition, _bytes(row.key), _bytes(row.value), headers) == expected_values[row.ms]
        assert (row.topic, row.timestampType) == (topic, 0)
    offsets = sorted((row.partition, row.offset) for row in rows)
    assert offsets == sorted((number % 3, number // 3) for number in range(1000))


def _bytes(value: Any) -> bytes | None:
    return None if value is None else bytes(value)


def test_log_append_time_has_its_timestamp_type(spark: SparkSession, kafka: ApacheKafka) -> None:
    topic = kafka.create_topic(unique("appended"), message_timestamp_type="LogAppendTime")
    before = int(time.time() * 1000)
    send_all(plain_producer(kafka), [{"topic": topic, "value": b"v", "timestamp": FIRST_MS}] * 3)
    rows = load(spark, kafka, topic).selectExpr("timestampType", "unix_millis(timestamp) AS ms").collect()
    assert [row.timestampType for row in rows] == [1, 1, 1]
    assert all(before <= row.ms <= time.time() * 1000 for row in rows)


def test_read_committed_returns_only_committed_records(spark: SparkSession, broker: AnyBroker) -> None:
    """Two producers have transactions in two partitions, with non-transactional records in between."""
    topic = create_topic_on(broker, unique("transactions"), 2)
    one, two, plain = transactional_producer(broker), transactional_producer(broker), plain_producer(broker)

    def write(producer: Any, name: str) -> None:
        sends = [{"topic": topic, "partition": part, "value": f"{name} {n}"} for part in (0, 1) for n in range(20)]
        send_all(producer, sends)

    one.begin_transaction()
    write(one, "committed by one")
    two.begin_transaction()
    write(two, "aborted by two")
    write(plain, "plain")
    one.commit_transaction(SECONDS_MAX)
    one.begin_transaction()
    write(one, "aborted by one")
    two.abort_transaction(SECONDS_MAX)
    two.begin_transaction()
    write(two, "committed by two")
    one.abort_transaction(SECONDS_MAX)
    write(plain, "plain again")
    two.commit_transaction(SECONDS_MAX)
    order = ["committed by one", "aborted by two", "plain", "aborted by one", "committed by two", "plain again"]
    everything = [f"{name} {n}" for _ in (0, 1) for name in order for n in range(20)]
    committed = [value for value in everything if not value.startswith("aborted")]
    assert values(load(spark, broker, topic)) == everything
    assert values(load(spark, broker, topic, isolationLevel=UNCOMMITTED)) == everything
    assert values(load(spark, broker, topic, isolationLevel=COMMITTED)) == committed
    # Some ranges start and end within transactions: each task must get the aborted ones that overlap its range.
    small_ranges = load(spark, broker, topic, isolationLevel=COMMITTED, maxRecordsPerPartition="17")
    assert values(small_ranges) == committed
    assert small_ranges.rdd.getNumPartitions() > 10


def test_read_committed_stops_at_open_transaction(spark: SparkSession, broker: AnyBroker) -> None:
    topic = create_topic_on(broker, unique("open"))
    plain, transaction = plain_producer(broker), transactional_producer(broker)
    send_all(plain, [{"topic": topic, "value": "before"}])
    transaction.begin_transaction()
    send_all(transaction, [{"topic": topic, "value": "open"}])
    send_all(plain, [{"topic": topic, "value": "behind"}])
    assert values(load(spark, broker, topic, isolationLevel=COMMITTED)) == ["before"]
    assert values(load(spark, broker, topic, isolationLevel=UNCOMMITTED)) == ["before", "open", "behind"]
    transaction.commit_transaction(SECONDS_MAX)
    wait_until(
        "the last stable offset moves", lambda: len(values(load(spark, broker, topic, isolationLevel=COMMITTED))) > 1
    )
    assert values(load(spark, broker, topic, isolationLevel=COMMITTED)) == ["before", "open", "behind"]


def test_compacted_topic_is_read_across_offset_gaps(spark: SparkSession, kafka: ApacheKafka) -> None:
    configs = {"segment_ms": "100", "min_cleanable_dirty_ratio": "0.01", "max_compaction_lag_ms": "200"}
    topic = kafka.create_topic(unique("compacted"), 1, cleanup_policy="compact", **configs)
    producer = plain_producer(kafka)
    send_all(producer, [{"topic": topic, "key": f"k{n % 10}", "value": f"v{n}"} for n in range(500)])

    def is_compacted() -> bool:
        # A later record rolls the segment; the active segment is never cleaned.
        send_all(producer, [{"topic": topic, "key": "last", "value": "last"}])
        with kafka.cluster() as cluster:
            return len(read_all(cluster, topic)) < 100

    wait_until("the topic is compacted", is_compacted)
    with kafka.cluster() as cluster:
        truth = {record.offset: record.value for record in read_all(cluster, topic)}
    rows = load(spark, kafka, topic).select("offset", "value").collect()
    found = {row.offset: bytes(row.value) for row in rows}
    assert {value for value in found.values() if value != b"last"} == {b"v%d" % n for n in range(490, 500)}
    assert max(found) >= 500
    # The cleaner may have continued between the two reads.
    assert {offset: value for offset, value in found.items() if value != b"last"} == {
        offset: value for offset, value in truth.items() if value != b"last"
    }


# Streams


def test_stream_waits_for_open_transaction_to_commit(spark: SparkSession, broker: AnyBroker, tmp_path: Path) -> None:
    topic = create_topic_on(broker, unique("stream"), 2)
    plain, aborted, committed = plain_producer(broker), transactional_producer(broker), transactional_producer(broker)

    def sends(name: str) -> list[dict[str, Any]]:
        return [{"topic": topic, "partition": part, "value": f"{name} {part}"} for part in (0, 1) for _ in range(15)]

    send_all(plain, sends("plain"))
    aborted.begin_transaction()
    send_all(aborted, sends("aborted"))
    aborted.abort_transaction(SECONDS_MAX)
    committed.begin_transaction()
    send_all(committed, sends("committed"))
    group = unique("group")
    seen: list[list[str]] = []
    run_available(spark, broker, topic, tmp_path, seen, group)
    assert sorted(flatten(seen)) == sorted(send["value"] for send in sends("plain"))
    assert len(seen) > 1
    committed.commit_transaction(SECONDS_MAX)
    run_available(spark, broker, topic, tmp_path, seen, group)
    expected = sends("plain") + sends("committed")
    assert sorted(flatten(seen)) == sorted(send["value"] for send in expected)
    assert group_offsets(broker, group, topic) == {0: 47, 1: 47}  # the two markers have offsets, too


def run_available(
    spark: SparkSession, kafka: AnyBroker, topic: str, checkpoint: Path, seen: list[list[str]], group: str
) -> None:
    limits = {"maxOffsetsPerTrigger": "20", "startingOffsets": "earliest", "groupId": group}
    options = reader_options(kafka, topic, isolationLevel=COMMITTED, **limits)
    frame = spark.readStream.format("chronik").options(**options).load()
    writer = frame.writeStream.foreachBatch(lambda rows, _: seen.append(values(rows)))
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    assert query.awaitTermination(SECONDS_MAX), "the query did not end"


def flatten(batches: list[list[str]]) -> list[str]:
    return [value for batch in batches for value in batch]


def group_offsets(kafka: AnyBroker, group: str, topic: str) -> dict[int, int]:
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": group})
    try:
        partitions_of_topic = [TopicPartition(topic, partition) for partition in (0, 1)]
        return {each.partition: each.offset for each in consumer.committed(partitions_of_topic, SECONDS_MAX)}
    finally:
        consumer.close()


# Writing


@pytest.mark.parametrize("codec", CODECS)
def test_sink_records_are_read_by_other_clients(spark: SparkSession, kafka: ApacheKafka, codec: str) -> None:
    topic = kafka.create_topic(unique(f"sink-{codec}"), 4)
    frame = spark.range(500).selectExpr(
        "concat('key', id % 50) AS key",
        "CAST(concat('value', id) AS BINARY) AS value",
        "CASE WHEN id % 2 = 0 THEN array(named_struct('key', 'h', 'value', CAST('x' AS BINARY))) END AS headers",
    )
    options = {"bootstrap.servers": kafka.bootstrap, "topic": topic, "compression": codec}
    frame.write.format("chronik").mode("append").options(**options).save()
    found = read_by_librdkafka(kafka, topic, 4, 500)
    assert {message.value() for message in found} == {b"value%d" % number for number in range(500)}
    for message in found:
        assert message.partition() == choose_partition(message.key(), 4)
        number = int(message.value()[5:])
        assert (message.headers() or []) == ([("h", b"x")] if number % 2 == 0 else [])


def read_by_librdkafka(kafka: ApacheKafka, topic: str, partitions: int, count: int) -> list[Any]:
    """Return all messages of the topic, which must be `count`."""
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": unique("reader"), "check.crcs": True})
    try:
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
        found: list[Any] = []

        def all_read() -> bool:
            found.extend(consumer.consume(1000, POLL_SECONDS))
            return len(found) >= count

        wait_until("all messages are read", all_read)
        assert not any(message.error() for message in found)
        ends = [consumer.get_watermark_offsets(TopicPartition(topic, each))[1] for each in range(partitions)]
        assert sum(ends) == len(found) == count
        return found
    finally:
        consumer.close()


def test_stream_copies_topic_on_apache_kafka(spark: SparkSession, kafka: ApacheKafka, tmp_path: Path) -> None:
    topic, copy = kafka.create_topic(unique("source"), 2), kafka.create_topic(unique("copy"), 3)
    send_all(plain_producer(kafka), [{"topic": topic, "value": f"{number}"} for number in range(300)])
    frame = spark.readStream.format("chronik").options(**reader_options(kafka, topic, startingOffsets="earliest"))
    writer = frame.load().select("key", "value").writeStream.format("chronik").trigger(availableNow=True)
    writer = writer.options(topic=copy, checkpointLocation=str(tmp_path))
    query = writer.option("bootstrap.servers", kafka.bootstrap).start()
    assert query.awaitTermination(SECONDS_MAX), "the query did not end"
    assert sorted(map(int, read_committed_values(kafka.bootstrap, copy, 3))) == list(range(300))


# Tables and queries


def test_committed_records_land_and_can_be_queried(spark: SparkSession, broker: AnyBroker, tmp_path: Path) -> None:
    """Two transactions were committed and aborted, and one is open during the landing."""
    topic = create_topic_on(broker, unique("landed").replace("-", "_"), 2)
    plain, first, second = plain_producer(broker), transactional_producer(broker), transactional_producer(broker)

    def sends(name: str) -> list[dict[str, Any]]:
        return [{"topic": topic, "partition": part, "value": f"{name} {n}"} for part in (0, 1) for n in range(10)]

    for producer, name in ((first, "committed"), (second, "aborted")):
        producer.begin_transaction()
        send_all(producer, sends(name))
    send_all(plain, sends("plain"))
    first.commit_transaction(SECONDS_MAX)
    second.abort_transaction(SECONDS_MAX)
    first.begin_transaction()
    send_all(first, sends("later"))

    def land() -> int:
        return run(broker.bootstrap, str(tmp_path), [topic], once=True, spark=spark).rows[topic]

    def seen(view: str) -> list[str]:
        statement = f"SELECT CAST(_value AS STRING) AS value FROM {view}"
        return sorted(row.value for row in query(spark, statement, broker.bootstrap, str(tmp_path)).collect())

    def expected_values(*names: str) -> list[str]:
        return sorted(send["value"] for name in names for send in sends(name))

    assert land() == 40
    assert seen(topic) == seen(f"{topic}_cold") == expected_values("committed", "plain")
    first.commit_transaction(SECONDS_MAX)
    wait_until("the transaction is seen to be committed", lambda: len(seen(f"{topic}_hot")) == 20)
    assert seen(f"{topic}_cold") == expected_values("committed", "plain")
    assert seen(topic) == expected_values("committed", "plain", "later")
    assert land() == 20
    assert seen(f"{topic}_hot") == []
    assert seen(topic) == expected_values("committed", "plain", "later")


# The command line


@pytest.mark.xdist_group("spark")  # the worker that already runs this broker
def test_chronik_commands_work_with_apache_kafka(kafka: ApacheKafka) -> None:
    topic = unique("cli")
    chronik(kafka, "topics", "create", topic, "--partitions", "2")
    send_all(plain_producer(kafka), [{"topic": topic, "value": "hello"}])
    assert topic in chronik(kafka, "topics", "list")
    described = json.loads(chronik(kafka, "topics", "describe", topic, "--json"))
    assert topic in json.dumps(described)
    assert "hello" in chronik(kafka, "consume", topic, "--from-beginning")


def chronik(kafka: ApacheKafka, *arguments: str) -> str:
    command = [str(Path(sys.executable).with_name("chronik")), *arguments, "--bootstrap-server", kafka.bootstrap]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX)
    assert done.returncode == 0, done.stderr
    return done.stdout

"""Tests of Spark's Kafka connector (`format("kafka")`, from Maven Central) with Chronik: batch and streaming."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from chronik.client.admin import NewTopic, create_topics
from chronik.client.cluster import ClusterClient as ClientCluster
from chronik.client.consumer import read_all
from chronik.client.partitioner import choose_partition
from chronik.client.producer import Producer
from chronik.client.records import ConsumedRecord, OutgoingRecord
from chronik.protocol.compression import Codec
from chronik.testing import Broker
from tests.pipeline.jars import SPARK_KAFKA, skip_without_jars

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from chronik.testing.plugin import ClusterFactory

pytestmark = pytest.mark.chronik_topic(partitions=3)

STREAM_SECONDS_MAX = 120
FIRST_MS = 1_700_000_000_000
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

Row = tuple[int, int, int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]


@pytest.fixture
def connector_spark(spark: SparkSession) -> SparkSession:
    """A session with Spark's Kafka connector."""
    skip_without_jars(SPARK_KAFKA)
    return spark


def records(count: int, first: int = 0) -> list[OutgoingRecord]:
    """Return records with and without key, value and headers."""
    return [
        OutgoingRecord(
            value=None if number % 11 == 0 else b"value %d" % number,
            key=None if number % 7 == 0 else b"key %d" % number,
            headers=(("a", b"%d" % number), ("b", None)) if number % 5 == 0 else (),
            timestamp=FIRST_MS + number,
        )
        for number in range(first, first + count)
    ]


def fill(broker: Broker, topic: str, count: int, first: int = 0) -> None:
    """Produce records, a part of them with each codec."""
    sent = records(count, first)
    share = -(-count // len(CODECS))
    with broker.cluster() as cluster:
        for number, name in enumerate(CODECS):
            Producer(cluster, codec=Codec[name.upper()]).send(topic, sent[number * share : (number + 1) * share])


def options_of(bootstrap: str, **options: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": bootstrap} | options


def load(spark: SparkSession, broker: Broker, **options: str) -> DataFrame:
    return spark.read.format("kafka").options(**options_of(broker.bootstrap, **options)).load()


def rows_of(frame: DataFrame) -> list[Row]:
    """Return partition, offset, timestamp in milliseconds, key, value and headers of each row."""
    found = frame.selectExpr("*", "unix_millis(timestamp) AS millis").collect()
    return sorted(
        (
            row.partition,
            row.offset,
            row.millis,
            _bytes(row.key),
            _bytes(row.value),
            tuple((header.key, _bytes(header.value)) for header in row.headers or ()),
        )
        for row in found
    )


def _bytes(value: Any) -> bytes | None:
    return None if value is None else bytes(value)


def as_row(record: ConsumedRecord) -> Row:
    return (record.partition, record.offset, record.timestamp, record.key, record.value, record.headers)


def positions(frame: DataFrame) -> list[tuple[int, int]]:
    return sorted((row.partition, row.offset) for row in frame.select("partition", "offset").collect())


def values_of(found: list[ConsumedRecord]) -> list[bytes]:
    return sorted(record.value or b"" for record in found)


def wait_for(query: Any) -> None:
    assert query.awaitTermination(STREAM_SECONDS_MAX), "the query did not end"


# Reading


@pytest.mark.parametrize("deprecated", ["false", "true"], ids=["by admin client", "by consumer"])
def test_kafka_connector_reads_same_records_as_chronik_source(
    connector_spark: SparkSession, chronik_broker: Broker, chronik_topic: str, deprecated: str
) -> None:
    setting = "spark.sql.streaming.kafka.useDeprecatedOffsetFetching"
    fill(chronik_broker, chronik_topic, 500)
    connector_spark.conf.set(setting, deprecated)
    try:
        connector_frame = load(connector_spark, chronik_broker, subscribe=chronik_topic, includeHeaders="true")
        found = rows_of(connector_frame)
    finally:
        connector_spark.conf.unset(setting)
    assert len(found) == 500
    assert found == [as_row(record) for record in chronik_broker.records(chronik_topic)]
    options = options_of(chronik_broker.bootstrap, subscribe=chronik_topic, includeHeaders="true")
    chronik_frame = connector_spark.read.format("chronik").options(**options).load()
    assert chronik_frame.schema.simpleString() == connector_frame.schema.simpleString()
    assert rows_of(chronik_frame) == found


def test_kafka_connector_batch_honours_offset_bounds(
    connector_spark: SparkSession, chronik_broker: Broker, chronik_topic: str
) -> None:
    with chronik_broker.cluster() as cluster:
        sent = [OutgoingRecord(b"v", partition=index, timestamp=FIRST_MS + 10 * round_number + index)
                for round_number in range(10) for index in range(3)]  # fmt: skip
        Producer(cluster).send(chronik_topic, sent)
    bounds = {
        "startingOffsets": json.dumps({chronik_topic: {"0": -2, "1": 4, "2": 10}}),
        "endingOffsets": json.dumps({chronik_topic: {"0": 2, "1": -1, "2": 10}}),
    }
    frame = load(connector_spark, chronik_broker, subscribe=chronik_topic, minPartitions="4", **bounds)
    assert positions(frame) == [(0, 0), (0, 1), *((1, offset) for offset in range(4, 10))]
    assert frame.rdd.getNumPartitions() == 4
    by_time = {"startingTimestamp": str(FIRST_MS + 71), "endingTimestamp": str(FIRST_MS + 90)}
    assigned = json.dumps({chronik_topic: [0, 1]})
    assert positions(load(connector_spark, chronik_broker, assign=assigned, **by_time)) == [(0, 8), (1, 7), (1, 8)]
    by_partition = {"startingOffsetsByTimestamp": json.dumps({chronik_topic: {"0": FIRST_MS + 81}})}
    only = load(connector_spark, chronik_broker, assign=json.dumps({chronik_topic: [0]}), **by_partition)
    assert positions(only) == [(0, 9)]
    matching = load(connector_spark, chronik_broker, subscribePattern=f"{chronik_topic[:-2]}..")
    assert len(positions(matching)) == 30


def run_available(frame: DataFrame, checkpoint: Path, seen: list[list[tuple[int, int]]]) -> Any:
    def collect_batch(rows: DataFrame, _: int) -> None:
        seen.append(positions(rows))

    writer = frame.writeStream.foreachBatch(collect_batch).option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start()
    wait_for(query)
    return query


def test_kafka_connector_stream_resumes_from_checkpoint(
    connector_spark: SparkSession, chronik_broker: Broker, chronik_topic: str, tmp_path: Path
) -> None:
    fill(chronik_broker, chronik_topic, 90)
    options = options_of(
        chronik_broker.bootstrap,
        subscribe=chronik_topic,
        startingOffsets="earliest",
        maxOffsetsPerTrigger="40",
        **{"kafka.isolation.level": "read_committed"},
    )
    frame = connector_spark.readStream.format("kafka").options(**options).load()
    seen: list[list[tuple[int, int]]] = []
    query = run_available(frame, tmp_path, seen)
    first = [position for batch in seen for position in batch]
    assert sorted(first) == [(each.partition, each.offset) for each in chronik_broker.records(chronik_topic)]
    assert len(first) == 90
    assert len(seen) >= 3
    ends = {str(partition): max(o for p, o in first if p == partition) + 1 for partition, _ in first}
    assert json.loads(query.lastProgress.sources[0].latestOffset) == {chronik_topic: ends}
    fill(chronik_broker, chronik_topic, 30, first=90)
    run_available(frame, tmp_path, seen)
    everything = sorted(position for batch in seen for position in batch)
    assert everything == [(each.partition, each.offset) for each in chronik_broker.records(chronik_topic)]
    assert len(everything) == 120


def test_chronik_stream_continues_from_offsets_of_kafka_checkpoint(
    connector_spark: SparkSession, chronik_broker: Broker, chronik_topic: str, tmp_path: Path
) -> None:
    """As in docs/guides/from-spark-kafka.md."""
    fill(chronik_broker, chronik_topic, 90)
    options = options_of(chronik_broker.bootstrap, subscribe=chronik_topic)
    frame = connector_spark.readStream.format("kafka").options(**options, startingOffsets="earliest").load()
    seen: list[list[tuple[int, int]]] = []
    run_available(frame, tmp_path / "kafka", seen)
    fill(chronik_broker, chronik_topic, 30, first=90)
    last = max(int(file.name) for file in (tmp_path / "kafka" / "commits").iterdir() if file.name.isdigit())
    offsets = (tmp_path / "kafka" / "offsets" / str(last)).read_text(encoding="utf-8").splitlines()[-1]
    continued = connector_spark.readStream.format("chronik").options(**options, startingOffsets=offsets).load()
    run_available(continued, tmp_path / "chronik", seen)
    everything = sorted(position for batch in seen for position in batch)
    assert everything == [(each.partition, each.offset) for each in chronik_broker.records(chronik_topic)]
    assert len(everything) == 120


# Options

TOPIC = "<topic>"
"""Stands for the topic's name in the options below."""


@pytest.mark.parametrize(
    "options",
    [
        {"startingOffsets": "latest"},
        {"startingOffsets": '{"<topic>": {"0": 0, "1": 0, "2": -1}}'},
        {"startingOffsets": '{"<topic>": {"0": 0, "1": 0}}'},
        {"startingOffsets": '{"<topic>": {"0": 0, "1": 0, "2": 0, "3": 0}}'},
        {"startingOffsets": '{"<topic>": {"0": 0, "1": 0, "2": 999}}'},
        {"startingOffsets": "soon"},
        {"endingOffsets": "earliest"},
        {"endingOffsets": '{"<topic>": {"0": 1, "1": 1, "2": -2}}'},
        {
            "startingOffsets": '{"<topic>": {"0": 0, "1": 0, "2": 2}}',
            "endingOffsets": '{"<topic>": {"0": 1, "1": 1, "2": 1}}',
        },
        {"startingOffsetsByTimestamp": '{"<topic>": {"0": 0, "1": 0}}'},
        {
            "startingOffsetsByTimestamp": '{"<topic>": {"0": 0, "1": 0, "2": 2}}',
            "endingOffsetsByTimestamp": '{"<topic>": {"0": 0, "1": 0, "2": 1}}',
        },
        {"startingTimestamp": str(FIRST_MS + 10**6)},
        {"startingTimestamp": "yesterday"},
        {"startingOffsetsByTimestampStrategy": "earliest"},
        {"minPartitions": "0"},
        {"maxRecordsPerPartition": "0"},
        {"minOffsetsPerTrigger": "6", "maxOffsetsPerTrigger": "5"},
        {"assign": '{"<topic>": [0]}'},
        {"kafka.auto.offset.reset": "earliest"},
        {"kafka.key.deserializer": "org.example.Deserializer"},
        {"kafka.value.deserializer": "org.example.Deserializer"},
        {"kafka.enable.auto.commit": "true"},
        {"kafka.interceptor.classes": "org.example.Interceptor"},
    ],
    ids=str,
)
def test_options_that_kafka_connector_rejects_fail_in_chronik_source(
    connector_spark: SparkSession, chronik_broker: Broker, chronik_topic: str, options: dict[str, str]
) -> None:
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    fill(chronik_broker, chronik_topic, 30)
    given = {name: value.replace(TOPIC, chronik_topic) for name, value in options.items()}
    # Some checks of the connector are assertions in Scala, which PySpark does not convert.
    for source, kinds in (("kafka", (PySparkException, Py4JJavaError)), ("chronik", (PySparkException,))):
        reader = connector_spark.read.format(source).options(**options_of(chronik_broker.bootstrap, **given))
        with pytest.raises(kinds):
            reader.option("subscribe", chronik_topic).load().collect()


def test_options_that_kafka_connector_ignores_are_accepted_by_chronik_source(
    connector_spark: SparkSession, chronik_broker: Broker, chronik_topic: str
) -> None:
    fill(chronik_broker, chronik_topic, 30)
    given = {
        "subscribe": chronik_topic,
        "groupIdPrefix": "prefix",
        "fetchOffset.numRetries": "3",
        "maxOffsetsPerTrigger": "5",
        "kafka.fetch.max.bytes": "100000",
        "kafka.client.id": "reader",
    }
    for source in ("kafka", "chronik"):
        reader = connector_spark.read.format(source).options(**options_of(chronik_broker.bootstrap, **given))
        assert len(positions(reader.load("ignored"))) == 30


# Writing


@pytest.mark.parametrize("codec", CODECS)
def test_kafka_connector_writes_keys_headers_and_all_codecs(
    connector_spark: SparkSession, chronik_broker: Broker, chronik_topic: str, codec: str
) -> None:
    frame = connector_spark.range(300).selectExpr(
        "concat('key', id % 50) AS key",
        "CAST(concat('value', id) AS BINARY) AS value",
        "CASE WHEN id % 2 = 0 THEN array(named_struct('key', 'h', 'value', CAST('x' AS BINARY))) END AS headers",
    )
    options = options_of(chronik_broker.bootstrap, topic=chronik_topic, includeHeaders="true")
    frame.write.format("kafka").options(**options, **{"kafka.compression.type": codec}).save()
    found = chronik_broker.records(chronik_topic)
    assert {record.value for record in found} == {b"value%d" % number for number in range(300)}
    assert len(found) == 300
    for record in found:
        assert record.key is not None
        assert record.value is not None
        assert record.partition == choose_partition(record.key, 3)
        assert record.headers == ((("h", b"x"),) if int(record.value[5:]) % 2 == 0 else ())


def test_kafka_connector_rows_select_topic_and_partition(
    connector_spark: SparkSession, chronik_broker: Broker, chronik_topic: str
) -> None:
    other = f"{chronik_topic}-other"
    chronik_broker.create_topic(other, 2)
    frame = connector_spark.range(40).selectExpr(
        f"CASE WHEN id < 10 THEN '{other}' ELSE '{chronik_topic}' END AS topic",
        "CAST(id % 2 AS INT) AS partition",
        "CAST(id AS STRING) AS value",
    )
    frame.write.format("kafka").options(**options_of(chronik_broker.bootstrap)).save()
    placed = {
        (record.topic, record.partition, int(record.value or b"-1"))
        for topic in (chronik_topic, other)
        for record in chronik_broker.records(topic)
    }
    assert placed == {(other if number < 10 else chronik_topic, number % 2, number) for number in range(40)}


def test_kafka_connector_stream_copies_only_new_records_on_restart(
    connector_spark: SparkSession, chronik_broker: Broker, chronik_topic: str, tmp_path: Path
) -> None:
    copy = f"{chronik_topic}-copy"
    chronik_broker.create_topic(copy, 2)
    for first in (0, 200):
        fill(chronik_broker, chronik_topic, 200, first=first)
        copy_stream(connector_spark, chronik_broker.bootstrap, chronik_topic, copy, tmp_path)
        copied, written = chronik_broker.records(copy), chronik_broker.records(chronik_topic)
        assert len(copied) == first + 200
        assert sorted(map(content, copied), key=repr) == sorted(map(content, written), key=repr)


def content(record: ConsumedRecord) -> tuple[object, ...]:
    return (record.key, record.value, record.headers)


def copy_stream(spark: SparkSession, bootstrap: str, source: str, target: str, checkpoint: Path) -> None:
    reading = options_of(bootstrap, subscribe=source, startingOffsets="earliest", includeHeaders="true")
    writing = options_of(bootstrap, topic=target, includeHeaders="true", checkpointLocation=str(checkpoint))
    frame = spark.readStream.format("kafka").options(**reading).load().select("key", "value", "headers")
    wait_for(frame.writeStream.format("kafka").options(**writing).trigger(availableNow=True).start())


# A cluster


def test_kafka_connector_works_with_one_of_three_nodes_down(
    connector_spark: SparkSession, chronik_cluster_factory: ClusterFactory, tmp_path: Path
) -> None:
    nodes = chronik_cluster_factory(3)
    with ClientCluster(nodes.bootstrap, client_id="chronik-testing") as cluster:
        create_topics(cluster, [NewTopic("events", 6), NewTopic("copies", 6)])
    frame = connector_spark.range(1000).selectExpr("concat('key', id) AS key", "CAST(id AS STRING) AS value")
    write = frame.write.format("kafka").option("topic", "events")
    write.options(**options_of(nodes.bootstrap)).save()
    nodes[1].kill()
    # Without this, the admin client of Spark's source may request metadata for a minute: similar to KAFKA-20673, where
    # a known leader is no longer listed.
    nodes.wait_until_listed([2, 3])
    copy_stream(connector_spark, nodes.bootstrap, "events", "copies", tmp_path)
    batch = connector_spark.read.format("kafka").options(**options_of(nodes.bootstrap, subscribe="copies")).load()
    expected = sorted(b"%d" % number for number in range(1000))
    assert sorted(bytes(row.value) for row in batch.collect()) == expected
    with ClientCluster(nodes.bootstrap, client_id="chronik-testing") as cluster:
        assert values_of(read_all(cluster, "copies")) == expected
        assert {record.partition for record in read_all(cluster, "events")} == set(range(6))

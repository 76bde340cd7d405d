"""Tests of `spark.read` and `spark.readStream` with format `chronik`, with Spark and a broker."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from chronik.client.cluster import ClusterClient
from chronik.client.groups import list_committed_offsets
from chronik.client.producer import Producer
from chronik.client.records import OutgoingRecord, TopicPartition
from chronik.pipeline.source.lag import compute_offsets_behind_latest
from chronik.protocol.compression import Codec
from chronik.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from chronik.testing import Broker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.chronik_topic(partitions=3)

STREAM_SECONDS_MAX = 120


@pytest.fixture
def cluster(chronik_broker: Broker) -> Iterator[ClusterClient]:
    with chronik_broker.cluster() as cluster:
        yield cluster


def fill(cluster: ClusterClient, topic: str, count: int, first: int = 0) -> None:
    """Produce records with and without key, value and headers, some of them compressed."""
    records = [
        OutgoingRecord(
            value=None if number % 11 == 0 else b"value %d" % number,
            key=None if number % 7 == 0 else b"key %d" % number,
            headers=(("a", b"%d" % number), ("b", None)) if number % 5 == 0 else (),
            timestamp=1_700_000_000_000 + number,
        )
        for number in range(first, first + count)
    ]
    half = len(records) // 2
    Producer(cluster).send(topic, records[:half])
    Producer(cluster, codec=Codec.LZ4).send(topic, records[half:])


def load(spark: SparkSession, broker: Broker, topic: str, **options: str) -> DataFrame:
    reader = spark.read.format("chronik").option("kafka.bootstrap.servers", broker.bootstrap)
    return reader.options(subscribe=topic, **options).load()


def positions(frame: DataFrame) -> list[tuple[int, int]]:
    return sorted((row.partition, row.offset) for row in frame.select("partition", "offset").collect())


@pytest.mark.parametrize("transport", ["fetch", "segments"])
def test_rows_and_columns_match_spark_kafka_source(
    spark: SparkSession, chronik_broker: Broker, cluster: ClusterClient, chronik_topic: str, transport: str
) -> None:
    fill(cluster, chronik_topic, 500)
    options = {"transport": transport, "segmentDirs": str(chronik_broker.data_dir), "includeHeaders": "true"}
    frame = load(spark, chronik_broker, chronik_topic, **options)
    assert frame.schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,"
        "timestampType:int,headers:array<struct<key:string,value:binary>>>"
    )
    rows = frame.selectExpr("*", "unix_millis(timestamp) AS millis").orderBy("partition", "offset").collect()
    expected = chronik_broker.records(chronik_topic)
    assert len(expected) == 500
    for row, record in zip(rows, expected, strict=True):
        assert (row.topic, row.partition, row.offset) == (record.topic, record.partition, record.offset)
        assert (row.millis, row.timestampType) == (record.timestamp, 0)
        assert (_bytes(row.key), _bytes(row.value)) == (record.key, record.value)
        assert (row.headers is None) == (record.headers == ())
        assert tuple((pair.key, _bytes(pair.value)) for pair in row.headers or ()) == record.headers


def _bytes(value: Any) -> bytes | None:
    return None if value is None else bytes(value)


def test_batch_query_honours_offset_bounds_and_min_partitions(
    spark: SparkSession, chronik_broker: Broker, cluster: ClusterClient, chronik_topic: str
) -> None:
    records = [OutgoingRecord(b"v", partition=index) for index in range(3) for _ in range(10)]
    Producer(cluster).send(chronik_topic, records)
    bounds = {
        "startingOffsets": json.dumps({chronik_topic: {"0": -2, "1": 4, "2": 10}}),
        "endingOffsets": json.dumps({chronik_topic: {"0": 2, "1": -1, "2": 10}}),
    }
    frame = load(spark, chronik_broker, chronik_topic, columns="partition,offset", minPartitions="4", **bounds)
    assert frame.columns == ["partition", "offset"]
    assert positions(frame) == [(0, 0), (0, 1), *((1, offset) for offset in range(4, 10))]
    assert frame.rdd.getNumPartitions() == 4


def first_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0]


def test_error_report_starts_with_message(spark: SparkSession, chronik_broker: Broker, chronik_topic: str) -> None:
    from pyspark.errors import PySparkException

    with pytest.raises(PySparkException) as misspelled:
        load(spark, chronik_broker, chronik_topic, startingOffset="earliest")
    assert "unknown option 'startingoffset' of the chronik source; did you mean 'startingOffsets'?" in first_line(
        misspelled.value
    )
    assert "Traceback (most recent call last)" in str(misspelled.value)
    starts = json.dumps({chronik_topic: {"0": 0, "1": 0, "2": 5}})
    with pytest.raises(PySparkException) as contradicting:
        load(spark, chronik_broker, chronik_topic, startingOffsets=starts).collect()
    assert f"{chronik_topic}-2: the start offset 5 is greater than the end offset 0" in first_line(contradicting.value)


def test_temporary_view_reads_topic_and_table_is_rejected(
    spark: SparkSession, chronik_broker: Broker, cluster: ClusterClient, chronik_topic: str
) -> None:
    from pyspark.errors import PySparkException

    fill(cluster, chronik_topic, 5)
    options = f"`bootstrap.servers` '{chronik_broker.bootstrap}', subscribe '{chronik_topic}'"
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW records USING chronik OPTIONS ({options})")
    assert spark.sql("SELECT count(*) FROM records").collect()[0][0] == 5
    with pytest.raises(PySparkException, match="CREATE TABLE … USING chronik is not supported"):
        spark.sql(f"CREATE TABLE no_records USING chronik OPTIONS ({options})")


def test_user_defined_schema_is_rejected(spark: SparkSession, chronik_broker: Broker, chronik_topic: str) -> None:
    from pyspark.errors import PySparkException

    reader = spark.read.format("chronik").schema("name STRING").option("bootstrap.servers", chronik_broker.bootstrap)
    with pytest.raises(PySparkException, match="the columns of a topic are fixed"):
        reader.option("subscribe", chronik_topic).load().collect()


def test_empty_topic_has_no_rows(spark: SparkSession, chronik_broker: Broker, chronik_topic: str) -> None:
    assert load(spark, chronik_broker, chronik_topic).collect() == []


def test_deleted_records_fail_query_unless_data_loss_is_allowed(
    spark: SparkSession, chronik_broker: Broker, cluster: ClusterClient, chronik_topic: str
) -> None:
    from pyspark.errors import PySparkException

    Producer(cluster).send(chronik_topic, [OutgoingRecord(b"v", partition=0) for _ in range(10)])
    request = DeleteRecordsRequest(
        topics=[
            DeleteRecordsTopic(name=chronik_topic, partitions=[DeleteRecordsPartition(partition_index=0, offset=6)])
        ],
        timeout_ms=10_000,
    )
    cluster.leader(TopicPartition(chronik_topic, 0)).request(request, DeleteRecordsResponse)
    start = {"startingOffsets": json.dumps({chronik_topic: {"0": 2, "1": 0, "2": 0}})}
    for transport in ("fetch", "segments"):
        options = start | {"transport": transport, "segmentDirs": str(chronik_broker.data_dir)}
        with pytest.raises(PySparkException) as failed:
            load(spark, chronik_broker, chronik_topic, **options).collect()
        reason = str(failed.value).strip().splitlines()[1]  # after Spark's own line
        assert "offsets 2 to 5 cannot be read: the partition now starts at 6" in reason
        tolerant = load(spark, chronik_broker, chronik_topic, failOnDataLoss="false", **options)
        assert positions(tolerant) == [(0, offset) for offset in range(6, 10)]


def run_available(frame: DataFrame, checkpoint: Path, seen: list[list[tuple[int, int]]], failing: bool = False) -> Any:
    def collect_batch(rows: DataFrame, _: int) -> None:
        seen.append(positions(rows))
        if failing:
            raise RuntimeError("the sink fails")

    writer = frame.writeStream.foreachBatch(collect_batch).option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(STREAM_SECONDS_MAX), "the query did not end"
    return query


def flatten(batches: list[list[tuple[int, int]]]) -> list[tuple[int, int]]:
    return [position for batch in batches for position in batch]


def test_stream_reads_every_record_once_and_commits_to_group(
    spark: SparkSession, chronik_broker: Broker, cluster: ClusterClient, chronik_topic: str, tmp_path: Path
) -> None:
    fill(cluster, chronik_topic, 90)
    options = {
        "kafka.bootstrap.servers": chronik_broker.bootstrap,
        "subscribePattern": f"{chronik_topic[:-2]}..",
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "40",
        "groupId": f"{chronik_topic}-group",
    }
    frame = spark.readStream.format("chronik").options(**options).load()
    seen: list[list[tuple[int, int]]] = []
    query = run_available(frame, tmp_path, seen)
    expected = [(record.partition, record.offset) for record in chronik_broker.records(chronik_topic)]
    assert sorted(flatten(seen)) == expected
    assert max(map(len, seen)) <= 42
    assert len(seen) >= 3
    ends = {TopicPartition(chronik_topic, partition): offset + 1 for partition, offset in expected}
    committed = list_committed_offsets(cluster, f"{chronik_topic}-group")
    assert {partition: found.offset for partition, found in committed.items()} == ends
    assert compute_offsets_behind_latest(query.lastProgress.sources[0])["maxOffsetsBehindLatest"] == "0"
    latest = json.loads(query.lastProgress.sources[0].latestOffset)
    assert latest == {chronik_topic: {str(each.partition): end for each, end in ends.items()}}
    fill(cluster, chronik_topic, 30, first=90)
    run_available(frame, tmp_path, seen)
    assert sorted(flatten(seen)) == [(each.partition, each.offset) for each in chronik_broker.records(chronik_topic)]


def test_failed_micro_batch_reads_same_rows_again(
    spark: SparkSession, chronik_broker: Broker, cluster: ClusterClient, chronik_topic: str, tmp_path: Path
) -> None:
    from pyspark.errors import StreamingQueryException

    fill(cluster, chronik_topic, 20)
    frame = (
        spark.readStream.format("chronik")
        .option("bootstrap.servers", chronik_broker.bootstrap)
        .options(subscribe=chronik_topic, startingOffsets="earliest")
        .load()
    )
    seen: list[list[tuple[int, int]]] = []
    with pytest.raises(StreamingQueryException, match="the sink fails"):
        run_available(frame, tmp_path, seen, failing=True)
    fill(cluster, chronik_topic, 20, first=20)
    run_available(frame, tmp_path, seen)
    failed, retried, *rest = seen
    assert len(failed) == 20
    assert retried == failed
    assert len(flatten(rest)) == 20
    assert set(flatten(rest)).isdisjoint(failed)

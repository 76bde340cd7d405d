"""Tests of `df.write` and `writeStream` with format `chronik`, with Spark and a broker."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from chronik.client.groups import list_committed_offsets
from chronik.client.partitioner import choose_partition
from chronik.pipeline.sink.exactly_once import EPOCHS_TOPIC
from chronik.testing import Broker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.chronik_topic(partitions=4)

STREAM_SECONDS_MAX = 120


def save(frame: DataFrame, broker: Broker, mode: str = "append", **options: str) -> None:
    writer = frame.write.format("chronik").option("kafka.bootstrap.servers", broker.bootstrap)
    writer.options(**options).mode(mode).save()


def test_written_rows_are_partitioned_like_kafka_clients(
    spark: SparkSession, chronik_broker: Broker, chronik_topic: str
) -> None:
    frame = spark.range(1000).selectExpr(
        "concat('key', id % 50) AS key",
        "CAST(concat('value', id) AS BINARY) AS value",
        "CASE WHEN id % 2 = 0 THEN array(named_struct('key', 'h', 'value', CAST('x' AS BINARY))) END AS headers",
    )
    save(frame, chronik_broker, topic=chronik_topic, compression="zstd")
    records = chronik_broker.records(chronik_topic)
    assert {record.value for record in records} == {b"value%d" % number for number in range(1000)}
    assert len(records) == 1000
    for record in records:
        assert record.key is not None
        assert record.value is not None
        assert record.partition == choose_partition(record.key, 4)
        assert record.headers == ((("h", b"x"),) if int(record.value[5:]) % 2 == 0 else ())


def test_stream_copies_topic_exactly_once(
    spark: SparkSession, chronik_broker: Broker, chronik_topic: str, tmp_path: Path
) -> None:
    copy = f"{chronik_topic}-copy"
    chronik_broker.create_topic(copy, 2)
    save(spark.range(300).selectExpr("CAST(id AS STRING) AS value"), chronik_broker, topic=chronik_topic)
    query = (
        spark.readStream.format("chronik")
        .option("bootstrap.servers", chronik_broker.bootstrap)
        .options(subscribe=chronik_topic, startingOffsets="earliest", columns="key,value")
        .load()
        .writeStream.format("chronik")
        .option("bootstrap.servers", chronik_broker.bootstrap)
        .options(topic=copy, checkpointLocation=str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(STREAM_SECONDS_MAX), "the query did not end"
    values = sorted(int(record.value or b"-1") for record in chronik_broker.records(copy))
    assert values == list(range(300))
    with chronik_broker.cluster() as cluster:
        told = list_committed_offsets(cluster, f"chronik-sink-{query.id}")
    assert {(place.topic, each.offset) for place, each in told.items()} == {(EPOCHS_TOPIC, 0)}


def test_batch_with_transactional_id_is_written_once(
    spark: SparkSession, chronik_broker: Broker, chronik_topic: str
) -> None:
    once = {"topic": chronik_topic, "exactlyOnce": "true", "transactionalId": chronik_topic}
    for epoch, rows in ((0, 30), (0, 30), (1, 20), (0, 30)):
        frame = spark.range(rows).selectExpr(f"concat({epoch}, '-', id) AS value")
        save(frame, chronik_broker, **once, epoch=str(epoch))
    values = sorted((record.value or b"").decode() for record in chronik_broker.records(chronik_topic))
    assert values == sorted([f"0-{number}" for number in range(30)] + [f"1-{number}" for number in range(20)])


@pytest.mark.parametrize(
    ("columns", "options", "mode", "message"),
    [
        (["1 AS value"], {"topic": "t"}, "append", "column `value` is int, expected string or binary"),
        (["'k' AS key"], {"topic": "t"}, "append", "the column `value` is missing"),
        (["'v' AS value"], {}, "append", "no destination topic"),
        (["'v' AS value", "'x' AS headers"], {"topic": "t"}, "append", "column `headers` is string"),
        (["'v' AS value", "'0' AS partition"], {"topic": "t"}, "append", "column `partition` is string"),
        (["'v' AS value"], {"topic": "t", "compression": "rar"}, "append", "compression = 'rar'"),
        (["'v' AS value"], {"topic": "t", "exactlyOnce": "true"}, "append", "a batch needs a transactionalId"),
        (["'v' AS value"], {"topic": "t"}, "overwrite", r"cannot be overwritten: use \.mode\(\"append\"\)"),
        (["'v' AS value"], {"topics": "t"}, "append", "unknown option 'topics' of the chronik sink; did you mean 'top"),
    ],
)
def test_invalid_rows_are_rejected_before_writing(
    spark: SparkSession,
    chronik_broker: Broker,
    columns: list[str],
    options: dict[str, Any],
    mode: str,
    message: str,
) -> None:
    from pyspark.errors import PySparkException

    with pytest.raises(PySparkException, match=message):
        save(spark.range(1).selectExpr(*columns), chronik_broker, mode, **options)


def test_write_without_mode_is_rejected_in_one_line(spark: SparkSession, chronik_broker: Broker) -> None:
    """Spark rejects it before it calls the sink, whose default mode the API cannot set."""
    from pyspark.errors import AnalysisException

    writer = spark.range(1).selectExpr("'v' AS value").write.format("chronik")
    with pytest.raises(AnalysisException) as failed:
        writer.option("bootstrap.servers", chronik_broker.bootstrap).option("topic", "t").save()
    (line,) = str(failed.value).strip().splitlines()
    assert 'cannot be written in the "ErrorIfExists" mode. Please use either the "Append"' in line

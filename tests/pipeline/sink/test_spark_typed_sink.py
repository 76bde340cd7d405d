"""Tests of typed keys and values in `df.write` and `writeStream`, with Spark, a broker and its registry."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from chronik.testing import Broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STREAM_SECONDS_MAX = 120

ORDERS = """
    SELECT CAST(id AS STRING) AS key, CASE WHEN id < 9 THEN named_struct(
        'id', id, 'price', CAST(id / 4 AS DECIMAL(9, 2)), 'at', timestamp_millis(id * 1000),
        'tags', array('a', CAST(id AS STRING)), 'note', CASE WHEN id % 2 = 0 THEN 'even' END) END AS value
    FROM range(10)
"""


def test_written_rows_are_read_back(
    spark: SparkSession, chronik_broker: Broker, chronik_topic: str, chronik_registry: dict[str, str]
) -> None:
    rows = spark.sql(ORDERS)
    options = {
        "bootstrap.servers": chronik_broker.bootstrap,
        "keyFormat": "avro",
        "valueFormat": "avro",
        "schema.registry.url": chronik_registry["url"],
    }
    rows.write.format("chronik").options(**options, topic=chronik_topic, autoRegisterSchemas="true").mode(
        "append"
    ).save()
    decoded = {record.key: record.value for record in chronik_broker.records(chronik_topic, decode=True)}
    assert decoded["6"] == {"id": 6, "price": 1.5, "at": "1970-01-01T00:00:06Z", "tags": ["a", "6"], "note": "even"}
    assert decoded["9"] is None
    frame = spark.read.format("chronik").options(**options, subscribe=chronik_topic).load()
    assert frame.schema["value"].dataType.simpleString() == rows.schema["value"].dataType.simpleString()
    assert sorted(frame.select("key", "value").collect(), key=lambda row: row.key) == rows.collect()


def test_row_that_does_not_match_the_schema_fails_the_write(
    spark: SparkSession, chronik_broker: Broker, chronik_topic: str
) -> None:
    from pyspark.errors import PySparkException

    options = {"bootstrap.servers": chronik_broker.bootstrap, "topic": chronik_topic, "valueFormat": "avro"}
    options |= {"schemaIdLocation": "none", "valueSchema": '"int"'}
    frame = spark.sql("SELECT 5000000000 AS value").write.format("chronik").options(**options).mode("append")
    with pytest.raises(PySparkException, match=r"column `value`: \[0\]: 5000000000 is out of range for int"):
        frame.save()
    assert chronik_broker.records(chronik_topic) == []


def test_stream_converts_schema_ids_to_headers(
    spark: SparkSession,
    chronik_broker: Broker,
    chronik_topic: str,
    chronik_registry: dict[str, str],
    tmp_path: Path,
) -> None:
    brokers = {"bootstrap.servers": chronik_broker.bootstrap, "valueFormat": "avro"}
    batch = spark.sql(ORDERS).write.format("chronik").options(**brokers, topic=chronik_topic)
    batch.options(autoRegisterSchemas="true").mode("append").save()
    copy = f"{chronik_topic}-copy"
    chronik_broker.create_topic(copy, 1)
    source = spark.readStream.format("chronik").options(**brokers, subscribe=chronik_topic)
    query = (
        source.options(startingOffsets="earliest", columns="key,value", mode="FAILFAST")
        .load()
        .writeStream.format("chronik")
        .options(**brokers, topic=copy, valueSubject=f"{chronik_topic}-value", schemaIdLocation="header")
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(STREAM_SECONDS_MAX)
    records = chronik_broker.records(copy)
    assert [len(record.headers) for record in records if record.value is not None] == [1] * 9
    frame = spark.read.format("chronik").options(**brokers, subscribe=copy, valueSubject=f"{chronik_topic}-value")
    assert sorted(row.value.id for row in frame.load().collect() if row.value is not None) == list(range(9))

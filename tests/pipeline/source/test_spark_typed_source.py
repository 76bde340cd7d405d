"""Tests of typed keys and values in `spark.read` and `spark.readStream`, with Spark, a broker and its registry."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from chronik.client.producer import Producer
from chronik.client.records import OutgoingRecord
from chronik.formats.avro.encoder import AvroEncoder
from chronik.formats.codec import ValueFormat, WriterSchema
from chronik.formats.encoding import build_prefix
from chronik.formats.registry_client import RegistryClient, RegistrySettings
from chronik.testing import Broker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

STREAM_SECONDS_MAX = 120

KEY = "string"
ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "int"}, {"name": "note", "type": "string"}],
}
NEW_ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}], "default": None},
        {"name": "tags", "type": {"type": "array", "items": "string"}, "default": ["new"]},
    ],
}


class Orders:
    """A topic of orders with typed keys and values."""

    def __init__(self, broker: Broker, topic: str, registry: dict[str, str]) -> None:
        self.topic = topic
        self.options = {"bootstrap.servers": broker.bootstrap, "subscribe": topic, "valueFormat": "avro"}
        self._broker = broker
        self.registry = RegistryClient(RegistrySettings(registry["url"]))

    def register(self, subject: str, schema: Any) -> int:
        return self.registry.register(f"{self.topic}-{subject}", WriterSchema(ValueFormat.AVRO, json.dumps(schema)))

    def produce(self, schema: Any, *orders: Any) -> None:
        """Register the schema and produce orders. A value of bytes is produced as it is."""
        key_prefix, prefix = build_prefix(self.register("key", KEY)), build_prefix(self.register("value", schema))
        encoder = AvroEncoder(WriterSchema(ValueFormat.AVRO, json.dumps(schema)))
        values = [each if isinstance(each, bytes) else prefix + encoder.encode_value(each) for each in orders]
        key = key_prefix + b"\x02k"
        with self._broker.cluster() as cluster:
            Producer(cluster).send(self.topic, [OutgoingRecord(value, key=key) for value in values])

    def read(self, spark: SparkSession, **options: str) -> DataFrame:
        return spark.read.format("chronik").options(**self.options, **options).load()


@pytest.fixture
def orders(chronik_broker: Broker, chronik_topic: str, chronik_registry: dict[str, str]) -> Iterator[Orders]:
    orders = Orders(chronik_broker, chronik_topic, chronik_registry)
    yield orders
    orders.registry.close()


def test_batch_query_resolves_all_versions_to_the_latest(
    spark: SparkSession, orders: Orders, chronik_registry: dict[str, str]
) -> None:
    orders.produce(ORDER, {"id": 1, "note": "x"})
    orders.produce(NEW_ORDER, {"id": 2**40, "at": "2026-11-19T08:30:00.123Z", "tags": []}, b"text")
    frame = orders.read(spark, keyFormat="avro", **{"schema.registry.url": chronik_registry["url"]})
    assert frame.schema.simpleString() == (
        "struct<key:string,value:struct<id:bigint,at:timestamp,tags:array<string>>,topic:string,partition:int,"
        "offset:bigint,timestamp:timestamp,timestampType:int,keyError:string,keyRescued:string,valueError:string,"
        "valueRescued:string>"
    )
    rows = frame.selectExpr("key", "value.id", "unix_millis(value.at) AS at", "value.tags", "valueError").collect()
    assert [tuple(row) for row in rows] == [
        ("k", 1, None, ["new"], None),
        ("k", 2**40, 1795077000123, [], None),
        ("k", None, None, None, "the value does not start with a schema id"),
    ]


def test_registry_is_discovered_from_the_brokers(
    spark: SparkSession, orders: Orders, chronik_registry: dict[str, str]
) -> None:
    orders.produce(ORDER, {"id": 1, "note": "x"})
    assert [row.value.note for row in orders.read(spark).collect()] == ["x"]


def test_plain_avro_is_read_with_writer_schema(spark: SparkSession, chronik_broker: Broker, chronik_topic: str) -> None:
    with chronik_broker.cluster() as cluster:
        Producer(cluster).send(chronik_topic, [OutgoingRecord(b"\x02\x02a"), OutgoingRecord(b"\x04")])
    options = {"bootstrap.servers": chronik_broker.bootstrap, "subscribe": chronik_topic, "valueFormat": "avro"}
    frame = spark.read.format("chronik").options(**options, valueWriterSchema=json.dumps(ORDER)).load()
    rows = frame.select("value.*", "valueError").collect()
    assert [tuple(row) for row in rows] == [(1, "a", None), (None, None, "note: the payload ends within a number")]


def test_failfast_mode_fails_the_query(spark: SparkSession, orders: Orders, chronik_registry: dict[str, str]) -> None:
    from pyspark.errors import PySparkException

    orders.produce(ORDER, {"id": 1, "note": "x"}, b"text")
    frame = orders.read(spark, mode="FAILFAST", columns="value")
    with pytest.raises(PySparkException, match="offset 1: the value cannot be decoded: the value does not start with"):
        frame.collect()


def test_error_of_planning_names_the_subject(
    spark: SparkSession, orders: Orders, chronik_registry: dict[str, str]
) -> None:
    from pyspark.errors import PySparkException

    with pytest.raises(PySparkException) as raised:
        orders.read(spark)
    assert f"Subject '{orders.topic}-value' not found" in str(raised.value).strip().splitlines()[0]


def test_stream_keeps_its_schema_when_a_version_is_added(
    spark: SparkSession, orders: Orders, chronik_registry: dict[str, str], tmp_path: Path
) -> None:
    orders.produce(ORDER, {"id": 1, "note": "a"})
    reader = spark.readStream.format("chronik").options(**orders.options, startingOffsets="earliest")
    frame = reader.load().selectExpr("value.*", "valueError")
    assert frame.columns == ["id", "note", "valueError"]
    with_default = [*NEW_ORDER["fields"], {"name": "note", "type": "string", "default": ""}]
    orders.produce(NEW_ORDER | {"fields": with_default}, {"id": 2, "note": "b"}, {"id": 2**40, "note": "c"})
    writer = frame.writeStream.format("parquet").trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start(str(tmp_path / "rows"))
    assert query.awaitTermination(STREAM_SECONDS_MAX)
    rows = spark.read.parquet(str(tmp_path / "rows")).orderBy("note").collect()
    assert [tuple(row) for row in rows] == [(1, "a", None), (2, "b", None), (None, "c", None)]

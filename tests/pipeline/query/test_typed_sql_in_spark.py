"""Tests of SQL over typed topics: landed rows and the live tail have the same columns."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from chronik.formats.encoding import build_prefix
from chronik.pipeline.query.sql import query
from chronik.testing import Broker
from tests.formats.http_registry import HttpRegistry
from tests.pipeline.landing.typed_topic import TypedTopic, encode_avro, field, record
from tests.pipeline.table_fixtures import JournalledTopic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ITEM = record(field("sku", "string"), field("price", "float"), name="Item")
ORDER = record(
    field("id", "int"),
    field("items", {"type": "array", "items": ITEM}),
    field("tags", {"type": "map", "values": "string"}),
    field("at", {"type": "long", "logicalType": "timestamp-millis"}),
    field("total", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}),
    field("any", ["null", "string", "long"]),
)


@pytest.fixture
def landed(chronik_broker: Broker, chronik_topic: str, tmp_path: Path) -> Iterator[TypedTopic]:
    with chronik_broker.cluster() as cluster:
        topic = TypedTopic(JournalledTopic(chronik_broker, chronik_topic), cluster, tmp_path / "tables")
        topic.registry = HttpRegistry()
        yield topic
        topic.close()


def test_statement_reads_typed_columns_of_landed_rows_and_live_tail(spark: SparkSession, landed: TypedTopic) -> None:
    value = {
        "items": [{"sku": "a", "price": 0.5}],
        "tags": {"k": "v"},
        "at": 1_763_542_800_000,
        "total": b"\x04\xd2",
        "any": 5,
    }
    schema = record(*ORDER["fields"][:4], field("total", "bytes"), ORDER["fields"][5])  # encodes the decimal's bytes
    id = landed.registry.add("orders-value", json.dumps(ORDER))

    def send(number: int) -> None:
        landed.send(build_prefix(id) + encode_avro(schema, {"id": number, **value}))

    send(1)
    landed.land()
    send(2)
    statement = (
        "SELECT id, items[0].price AS price, tags['k'] AS tag, total, any, _value_schema AS schema,"
        f" date(at) AS day FROM `{landed.topic.name}` ORDER BY id"
    )
    rows = query(
        spark, statement, landed.topic.broker.bootstrap, landed.root, registry=landed.registry_settings
    ).collect()
    assert [row.id for row in rows] == [1, 2]
    for row in rows:
        assert (row.price, row.tag, str(row.total), row.any, row.schema) == (0.5, "v", "12.34", "5", "1")
        assert str(row.day) == "2025-11-19"

"""Schemas inferred from topics and checked against them, for typed values and JSON."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pytest

from chronik.client.admin import NewTopic, create_topics
from chronik.client.records import OutgoingRecord
from chronik.errors import ConfigError
from chronik.formats.encoding import build_prefix
from chronik.pipeline.maintenance.schemas import TopicSample, check_values, infer_schema, read_sample
from chronik.pipeline.tables.catalog import open_table
from chronik.pipeline.tables.storage import table_uri
from chronik.pipeline.tables.values.field_statistics import DetectedType
from chronik.pipeline.tables.values.table_schema import parse_schema_document
from chronik.testing import Broker
from tests.cli.command_line import run_chronik
from tests.formats.http_registry import HttpRegistry
from tests.pipeline.landing.typed_topic import TypedTopic, field, record
from tests.pipeline.table_fixtures import JournalledTopic

ITEM = record(field("sku", "string"), name="Item")
ORDER = record(field("id", "int"), field("items", {"type": "array", "items": ITEM}))
ORDER_2 = record(
    field("id", "int"),
    field("at", {"type": "long", "logicalType": "timestamp-millis"}),
    field("total", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}),
)


@pytest.fixture
def landed(chronik_broker: Broker, chronik_topic: str, tmp_path: Path) -> Iterator[TypedTopic]:
    with chronik_broker.cluster() as cluster:
        topic = TypedTopic(JournalledTopic(chronik_broker, chronik_topic), cluster, tmp_path / "tables")
        topic.registry = HttpRegistry()
        yield topic
        topic.close()


def read(landed: TypedTopic) -> TopicSample:
    broker = landed.topic.broker
    return read_sample(broker.bootstrap, landed.topic.name, registry=landed.registry_settings)


def send_versions(landed: TypedTopic) -> None:
    landed.send_avro(ORDER, {"id": 1, "items": [{"sku": "a"}]})
    landed.send_avro(ORDER_2, {"id": 2, "at": 0, "total": Decimal(1)})
    landed.send(None)


def test_inferred_columns_of_typed_topic_are_those_that_landing_creates(landed: TypedTopic) -> None:
    send_versions(landed)
    schema = infer_schema(read(landed))
    landed.land()
    inferred = {column.name: column.data_type for column in schema.columns}
    table = open_table(table_uri(landed.root, landed.topic.name)).descriptor().schema
    assert list(inferred) == ["id", "items", "at", "total"]
    assert inferred == {name: table.field(name).type for name in inferred}


def test_schema_of_typed_topic_is_printed_and_can_be_checked(landed: TypedTopic, tmp_path: Path) -> None:
    send_versions(landed)
    where = ("--registry", landed.registry.url, "-b", landed.topic.broker.bootstrap)
    inferred = run_chronik("pipeline", "schema", "infer", landed.topic.name, *where)
    assert inferred.lines[0] == f"# Inferred from the avro schemas of 3 records of topic {landed.topic.name}."
    assert "total" in inferred.out
    (tmp_path / "orders.toml").write_text(inferred.out)
    checked = run_chronik("pipeline", "schema", "check", landed.topic.name, str(tmp_path / "orders.toml"), *where)
    assert checked.lines[-1] == "3 records, 0 with rescued fields, 0 dead-letter records"


def test_typed_values_that_do_not_fit_are_counted(landed: TypedTopic) -> None:
    send_versions(landed)
    landed.send_avro(record(field("id", "string"), name="Other"), {"id": "x"})
    landed.send(*[landed.frame(ORDER, {"id": number, "items": []}) for number in range(40)])
    landed.send(build_prefix(landed.registry.add("orders-value", "{}", "JSON")) + b"[")
    found = check_values(parse_schema_document({"columns": {"id": "bigint"}}), read(landed))
    assert (found.records, found.dead_letters, found.misfits) == (45, 1, {"id": 1})
    assert found.nulls == {"id": 2}, "the tombstone, and the value that does not fit"


def test_types_are_not_detected_in_typed_values(landed: TypedTopic) -> None:
    send_versions(landed)
    with pytest.raises(ConfigError, match="the values are avro and have types; remove --detect"):
        infer_schema(read(landed), [DetectedType.TIMESTAMP])


def test_unknown_schemas_are_reported_in_one_line(landed: TypedTopic) -> None:
    landed.send(build_prefix(77) + b"payload")
    result = run_chronik(
        "pipeline", "schema", "infer", landed.topic.name, "-r", landed.registry.url,
        bootstrap=landed.topic.broker.bootstrap,
    )  # fmt: skip
    assert (result.code, result.out) == (1, "")
    assert result.err == (
        f"chronik: topic {landed.topic.name}: the values name schemas that the registry {landed.registry.url} does not "
        "have, such as id 77: set the writers' registry with --registry\n"
    )


def test_missing_registry_is_reported(tmp_path: Path) -> None:
    # Its own broker: one whose registry was used once reports its URL.
    with Broker(tmp_path) as broker, broker.cluster() as cluster:
        create_topics(cluster, [NewTopic("orders")])
        JournalledTopic(broker, "orders").send([OutgoingRecord(build_prefix(77) + b"payload")])
        with pytest.raises(ConfigError, match="the brokers report no schema registry: set its URL with --registry"):
            read_sample(broker.bootstrap, "orders")


def test_raw_values_are_reported(landed: TypedTopic) -> None:
    landed.send(b"plain", b"text")
    with pytest.raises(ConfigError, match="the values are neither JSON objects nor name a schema; land them with"):
        read(landed)


def test_json_topic_needs_no_registry(landed: TypedTopic) -> None:
    landed.registry.stop()
    landed.send(b'{"id": 1}', b'{"id": 2, "at": "2026-11-19"}', b"broken", None)
    sample = read(landed)
    assert [column.name for column in infer_schema(sample).columns] == ["id", "at"]
    found = check_values(parse_schema_document({"columns": {"id": "bigint"}}), sample)
    assert (found.records, found.dead_letters, found.nulls, found.rescued) == (4, 1, {"id": 1}, 1)
    landed.registry.start()


def test_topic_without_values_has_an_empty_schema(landed: TypedTopic) -> None:
    assert infer_schema(read(landed)).columns == ()

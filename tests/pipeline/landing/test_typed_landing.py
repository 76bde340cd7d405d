"""Tests of landing keys and values that name the schemas of their writers."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from chronik.client.admin import alter_topic_configs
from chronik.client.records import OutgoingRecord
from chronik.errors import ConfigError
from chronik.formats.encoding import build_prefix
from chronik.formats.framing import VALUE_HEADER
from chronik.formats.registry_client import RegistryUnavailableError
from chronik.pipeline.journal.reports import ProgressReporter, TopicReport, format_report
from chronik.pipeline.landing.driver import LandingDriver, LandingFailedError
from chronik.pipeline.landing.settings import TableSettings, parse_table_settings
from chronik.pipeline.maintenance.dead_letters import list_dead_letters, retry_dead_letters
from chronik.pipeline.query.live_tail import TailScan, read_tail_rows
from chronik.pipeline.query.topic_snapshots import SnapshotReader
from chronik.pipeline.source.options import IsolationLevel, ReadSettings
from chronik.pipeline.tables import table_properties
from chronik.pipeline.tables.layout import DECODING_RULES_VERSION, KEY, KEY_VALUE, VALUE_SCHEMA, TableKind
from chronik.pipeline.tables.topic_table import TableMismatchError, TableMissingError
from chronik.pipeline.tables.values.data_format import DataFormat
from chronik.pipeline.tables.values.table_schema import parse_schema_document
from chronik.pipeline_journal import LandingState
from chronik.testing import Broker
from chronik.testing.plugin import BrokerFactory
from tests.formats.http_registry import HttpRegistry
from tests.pipeline.landing.test_topic_landing import InThisProcess
from tests.pipeline.landing.typed_topic import TypedTopic, encode_avro, field, record
from tests.pipeline.table_fixtures import JournalledTopic, read_rows

ORDER = record(field("id", "int"), field("name", ["null", "string"], default=None))
ORDER_2 = record(*ORDER["fields"], field("total", "double", default=0.0))


@pytest.fixture
def landed(chronik_broker: Broker, chronik_topic: str, tmp_path: Path) -> Iterator[TypedTopic]:
    registry = HttpRegistry()
    with chronik_broker.cluster() as cluster:
        topic = TypedTopic(JournalledTopic(chronik_broker, chronik_topic), cluster, tmp_path)
        topic.registry = registry
        yield topic
        topic.close()


def read_system_column(landed: TypedTopic, name: str) -> list[Any]:
    rows = read_rows(landed.open().snapshot()).sort_by("_offset")
    values: list[Any] = rows[name].to_pylist()
    return values


# Values


def test_avro_values_land_in_typed_columns(landed: TypedTopic) -> None:
    landed.send_avro(ORDER, {"id": 1, "name": "a"}, {"id": 2, "name": None})
    landed.send(None)
    result = landed.land()
    assert (result.rows, result.dead_letters) == (3, 0)
    assert landed.rows() == [{"id": 1, "name": "a"}, {"id": 2}, {}]
    assert read_system_column(landed, VALUE_SCHEMA) == ["1", "1", None]


def test_versions_of_a_schema_land_in_one_round(landed: TypedTopic) -> None:
    landed.send_avro(ORDER, {"id": 1, "name": "a"})
    landed.send_avro(ORDER_2, {"id": 2, "name": "b", "total": 0.5})
    landed.send_avro(ORDER, {"id": 3, "name": None})
    landed.land()
    assert landed.rows() == [{"id": 1, "name": "a"}, {"id": 2, "name": "b", "total": 0.5}, {"id": 3}]


def test_field_added_after_the_first_round_gets_a_column(landed: TypedTopic) -> None:
    landed.send_avro(ORDER, {"id": 1, "name": None})
    landed.land()
    landed.send_avro(ORDER_2, {"id": 2, "name": None, "total": 1.5})
    landed.send_avro(ORDER, {"id": 3, "name": None})
    landed.land()
    assert landed.rows() == [{"id": 1}, {"id": 2, "total": 1.5}, {"id": 3}]


def test_renamed_field_keeps_its_column_without_the_alias_later(landed: TypedTopic) -> None:
    aliased = record(field("number", "int", aliases=["id"]))
    landed.send_avro(record(field("id", "int")), {"id": 1})
    landed.land()
    landed.send_avro(aliased, {"number": 2})
    landed.land()
    landed.send_avro(record(field("number", "int")), {"number": 3})
    landed.land()
    assert landed.rows() == [{"id": 1}, {"id": 2}, {"id": 3}]


def test_value_of_another_type_is_rescued(landed: TypedTopic) -> None:
    landed.send_avro(ORDER, {"id": 1, "name": "a"})
    landed.land()
    landed.send_avro(record(field("id", "string"), field("name", "string")), {"id": "x", "name": "b"})
    result = landed.land()
    assert landed.rows() == [{"id": 1, "name": "a"}, {"name": "b", "_rescued": '{"id":"x"}'}]
    assert result.misfits == {"id": 1}


def test_schema_in_a_header_decodes_the_value(landed: TypedTopic) -> None:
    id = landed.registry.add("orders-value", json.dumps(ORDER))
    guid = b"\x01" + landed.registry.guid(id).bytes
    payload = encode_avro(ORDER, {"id": 1, "name": "a"})
    landed.send_records(
        OutgoingRecord(payload, partition=0, headers=((VALUE_HEADER, guid),)),
        OutgoingRecord(payload, partition=0, headers=((VALUE_HEADER, build_prefix(id)),)),
    )
    landed.land()
    assert landed.rows() == [{"id": 1, "name": "a"}] * 2
    assert read_system_column(landed, VALUE_SCHEMA) == [str(landed.registry.guid(id)), "1"]


def test_plain_avro_values_are_decoded_with_the_given_schema(landed: TypedTopic) -> None:
    settings = parse_table_settings("avro", writer_schema=json.dumps(ORDER))
    landed.send(encode_avro(ORDER, {"id": 1, "name": "a"}), b"")
    result = landed.land(table_settings=settings, registry=None)
    assert (result.rows, result.dead_letters) == (1, 1)
    landed.send(encode_avro(ORDER, {"id": 2, "name": "b"}))
    landed.land(table_settings=TableSettings(), registry=None)
    assert landed.rows() == [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}]


def test_topic_configs_set_the_formats(landed: TypedTopic) -> None:
    alter_topic_configs(
        landed.cluster, landed.topic.name, changes={"columnar.format": "avro", "columnar.key.format": "avro"}
    )
    landed.send_avro(ORDER, {"id": 1, "name": "a"})
    landed.land(table_settings=TableSettings())
    format = landed.open().spec.format
    assert (format.value, format.key) == (DataFormat.AVRO, DataFormat.AVRO)


def test_table_keeps_its_format(landed: TypedTopic) -> None:
    landed.send_avro(ORDER, {"id": 1, "name": "a"})
    landed.land()
    with pytest.raises(TableMismatchError, match=r"decoded avro.*not for .*decoded json"):
        landed.land(table_settings=parse_table_settings("json"))


# Dead letters


def test_undecodable_values_become_dead_letter_records(landed: TypedTopic) -> None:
    whole = landed.frame(ORDER, {"id": 1, "name": "a"})
    landed.send(whole, b"no prefix", whole[:-1], build_prefix(99) + b"x", whole)
    result = landed.land()
    assert (result.rows, result.dead_letters) == (2, 3)
    errors = [letter.error for letter in list_dead_letters(landed.root, [landed.topic.name]).letters]
    assert errors[0] == "the value does not start with a schema id"
    assert "no schema with id 99" in errors[2]


def test_dead_letter_record_is_retried_when_its_schema_is_registered(
    landed: TypedTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chronik.formats.registry_client.UNKNOWN_SECONDS", 0.0)
    landed.send_avro(ORDER, {"id": 1, "name": "a"})
    landed.send(build_prefix(2) + encode_avro(ORDER_2, {"id": 2, "name": "b", "total": 2.5}))
    assert landed.land().dead_letters == 1
    assert landed.registry.add("orders-value", json.dumps(ORDER_2)) == 2
    (done,) = retry_dead_letters(landed.root, [landed.topic.name])
    assert (done.decoded, done.failing) == (1, 0)
    assert landed.rows() == [{"id": 1, "name": "a"}, {"id": 2, "name": "b", "total": 2.5}]
    assert landed.dead_letters() == []


def test_schema_of_another_format_makes_a_dead_letter_record(landed: TypedTopic) -> None:
    id = landed.registry.add("orders-value", '{"type": "object"}', "JSON")
    landed.send(build_prefix(id) + b"{}")
    landed.land()
    (letter,) = list_dead_letters(landed.root, [landed.topic.name]).letters
    assert letter.error == "schema 1 has the format json-schema, but the table has the format avro"


# Registry


def test_unreachable_registry_fails_the_round_and_loses_nothing(landed: TypedTopic) -> None:
    landed.send_avro(ORDER, {"id": 1, "name": "a"})
    landed.registry.stop()
    with pytest.raises(RegistryUnavailableError, match="is not available"):
        landed.land()
    landed.registry.start()
    assert landed.land().rows == 1
    assert landed.dead_letters() == []


def test_registry_that_fails_during_a_task_fails_the_round(landed: TypedTopic) -> None:
    landed.send_avro(ORDER, {"id": 1, "name": "a"})
    landed.land()
    landed.send_avro(ORDER_2, {"id": 2, "name": "b", "total": 1.0})
    landed.registry.failures += [(500, {"error_code": 50001, "message": "no leader"})] * 10
    with pytest.raises(RegistryUnavailableError, match="no leader"):
        landed.land()
    landed.registry.failures.clear()
    assert landed.land().rows == 1
    assert landed.dead_letters() == []


class _RegistryStarter(ProgressReporter):
    """A reporter that starts a registry when landing reports that it waits for it."""

    def __init__(self, registry: HttpRegistry | None) -> None:
        self.lines: list[str] = []
        self._registry = registry

    def report(self, report: TopicReport) -> None:
        line = format_report(report)
        if line is not None:
            self.lines.append(line)
        if report.state is LandingState.FAILING and self._registry is not None:
            self._registry.start()
            self._registry = None


@pytest.mark.parametrize("has_table", [False, True])
def test_landing_waits_for_the_registry(landed: TypedTopic, has_table: bool) -> None:
    landed.send_avro(ORDER, {"id": 1, "name": "a"})
    if has_table:
        landed.land()
        landed.send_avro(ORDER_2, {"id": 2, "name": "b", "total": 1.0})
    landed.registry.stop()
    reporter = _RegistryStarter(landed.registry)
    settings = replace(landed.landing().settings, topics=(landed.topic.name,))
    driver = LandingDriver(settings, landed.cluster, InThisProcess(lambda: None), reporter, threading.Event())
    assert driver.run_once().rows == {landed.topic.name: 1}
    assert reporter.lines[0] == (
        f"{landed.topic.name}: waiting for the schema registry: schema registry {landed.registry.url} is not available:"
        " Connection refused"
    )
    assert landed.dead_letters() == []


def test_once_run_stops_waiting_for_the_registry(landed: TypedTopic) -> None:
    landed.send_avro(ORDER, {"id": 1, "name": "a"})
    landed.registry.stop()
    settings = replace(landed.landing().settings, topics=(landed.topic.name,))
    driver = LandingDriver(
        settings,
        landed.cluster,
        InThisProcess(lambda: None),
        ProgressReporter(),
        threading.Event(),
        monotonic=lambda: 100 * time.monotonic(),
    )
    with pytest.raises(LandingFailedError, match=r": schema registry .* is not available: Connection refused"):
        driver.run_once()
    landed.registry.start()


def test_rejected_login_fails_the_round(landed: TypedTopic) -> None:
    landed.send_avro(ORDER, {"id": 1, "name": "a"})
    landed.registry.failures += [(401, {"error_code": 40101, "message": "Unauthorized"})]
    with pytest.raises(Exception, match="Unauthorized"):
        landed.land()
    assert landed.land().rows == 1


def test_topic_without_a_registry_is_an_error(chronik_broker_factory: BrokerFactory, tmp_path: Path) -> None:
    broker = chronik_broker_factory()  # other tests may have opened the registry of the shared broker
    broker.create_topic("orders")
    with broker.cluster() as cluster:
        landed = TypedTopic(JournalledTopic(broker, "orders"), cluster, tmp_path)
        landed.registry = HttpRegistry()
        landed.send_avro(ORDER, {"id": 1, "name": "a"})
        with pytest.raises(ConfigError, match="no schema registry: set its URL with --registry"):
            landed.land(registry=None)
        landed.close()


# Keys


def test_keys_become_a_column(landed: TypedTopic) -> None:
    settings = parse_table_settings("avro", key_format="avro")
    key, key_2 = record(field("id", "int"), name="Key"), record(field("id", "long"), field("x", "string"), name="Key")
    value = landed.frame(ORDER, {"id": 1, "name": "a"})
    landed.send_records(
        OutgoingRecord(value, key=landed.frame(key, {"id": 7}, "orders-key"), partition=0),
        OutgoingRecord(value, key=None, partition=0),
    )
    landed.land(table_settings=settings)
    landed.send_records(OutgoingRecord(value, key=landed.frame(key_2, {"id": 8, "x": "y"}, "orders-key"), partition=0))
    landed.land(table_settings=settings)
    assert read_system_column(landed, KEY_VALUE) == [{"id": 7, "x": None}, None, {"id": 8, "x": "y"}]


def test_undecodable_key_makes_a_dead_letter_record(landed: TypedTopic) -> None:
    value = landed.frame(ORDER, {"id": 1, "name": "a"})
    landed.send_records(
        OutgoingRecord(value, key=b"?", partition=0),
        OutgoingRecord(value, key=landed.frame("long", 5), partition=0),
    )
    result = landed.land(table_settings=parse_table_settings("avro", key_format="avro"))
    assert (result.rows, result.dead_letters) == (1, 1)
    assert read_system_column(landed, KEY_VALUE) == [5]
    (letter,) = list_dead_letters(landed.root, [landed.topic.name]).letters
    assert letter.error == "key: the key does not start with a schema id"


@pytest.mark.parametrize("format", ["avro", "json"])
def test_json_keys_become_a_column(landed: TypedTopic, format: str) -> None:
    settings = parse_table_settings(format, key_format="json")
    value = landed.frame(ORDER, {"id": 1, "name": "a"}) if format == "avro" else b'{"id": 1, "name": "a"}'
    landed.send_records(
        OutgoingRecord(value, key=b'{"id": 7}', partition=0),
        OutgoingRecord(value, key=None, partition=0),
        OutgoingRecord(value, key=b"order-1", partition=0),
    )
    assert landed.land(table_settings=settings).dead_letters == 1
    landed.send_records(
        OutgoingRecord(None, key=b'{"id": 8, "region": "eu"}', partition=0),
        OutgoingRecord(value, key=b'{"id": "x"}', partition=0),
    )
    landed.land(table_settings=settings)
    assert read_system_column(landed, KEY_VALUE) == [
        {"id": 7, "region": None}, None, {"id": 8, "region": "eu"}, {"id": None, "region": None}
    ]  # fmt: skip
    assert read_system_column(landed, KEY) == [b'{"id": 7}', None, b'{"id": 8, "region": "eu"}', b'{"id": "x"}']
    assert landed.rows()[0] == {"id": 1, "name": "a"}
    (letter,) = list_dead_letters(landed.root, [landed.topic.name]).letters
    assert letter.error is not None
    assert letter.error.startswith("key: not valid JSON: ")
    assert landed.open().spec.format.key is DataFormat.JSON


def test_json_values_and_typed_keys_get_their_columns_in_one_step(landed: TypedTopic) -> None:
    key = landed.frame(record(field("id", "int"), name="Key"), {"id": 7}, "orders-key")
    landed.send_records(OutgoingRecord(b'{"a": 1}', key=key, partition=0))
    landed.land(table_settings=parse_table_settings("json", key_format="avro"))
    columns = landed.open().snapshot().schema.names
    assert {"a", KEY_VALUE} <= set(columns)
    assert read_system_column(landed, KEY_VALUE) == [{"id": 7}]
    assert landed.rows() == [{"a": 1}]


def test_auto_decides_for_json_keys(landed: TypedTopic) -> None:
    key = b'{"id": 7}'
    landed.send_records(*(OutgoingRecord(b'{"a": 1}', key=key, partition=0) for _ in range(20)))
    landed.land(table_settings=parse_table_settings("auto", key_format="auto"))
    assert str(landed.open().spec.format) == "json with json keys"


def test_json_keys_are_columns_of_the_live_tail(landed: TypedTopic) -> None:
    settings = parse_table_settings("json", key_format="json")
    landed.send_records(OutgoingRecord(b'{"a": 1}', key=b'{"id": 7}', partition=0))
    landed.land(table_settings=settings)
    landed.send_records(OutgoingRecord(b'{"a": 2}', key=b'{"id": 8}', partition=0))
    snapshot = SnapshotReader(landed.cluster, landed.root).take_snapshots([landed.topic.name])[landed.topic.name]
    read = ReadSettings(landed.topic.broker.bootstrap, isolation=IsolationLevel.READ_COMMITTED)
    tail = TailScan(read, snapshot.kind, snapshot.schema, (KEY_VALUE,), (), format=snapshot.format)
    (target,) = snapshot.tail
    found = [row for batch in read_tail_rows(tail, target) for row in batch.to_pylist()]
    assert found == [{KEY_VALUE: {"id": 8}}]


# Declared schemas


def test_declared_schema_applies_to_typed_values(landed: TypedTopic) -> None:
    customer = record(field("id", "long"), field("name", "string"), name="Customer")
    schema = record(field("id", "long"), field("customer", customer), field("note", ["null", "string"]))
    declared = parse_schema_document(
        {
            "unknown_fields": "rescue",
            "columns": {
                "id": {"type": "int", "required": True},
                "customer_id": {"type": "bigint", "path": "$.customer.id"},
                "note": {"type": "string", "default": "-"},
            },
        }
    )
    landed.send_avro(
        schema,
        {"id": 1, "customer": {"id": 5, "name": "Ada"}, "note": None},
        {"id": 2**40, "customer": {"id": 6, "name": "Bob"}, "note": "n"},
    )
    result = landed.land(schema=declared)
    assert (result.rows, result.dead_letters) == (1, 1)
    assert landed.rows() == [{"id": 1, "customer_id": 5, "note": "-", "_rescued": '{"customer":{"name":"Ada"}}'}]


def test_dropped_fields_of_typed_values_are_not_rescued(landed: TypedTopic) -> None:
    declared = parse_schema_document({"unknown_fields": "drop", "columns": {"id": "bigint"}})
    landed.send_avro(ORDER, {"id": 1, "name": "a"})
    landed.land(schema=declared)
    assert landed.rows() == [{"id": 1}]


# auto


def test_auto_decides_for_registered_schemas(landed: TypedTopic) -> None:
    landed.send_avro(ORDER, *({"id": number, "name": None} for number in range(40)))
    landed.send(b"?")
    landed.land(table_settings=parse_table_settings("auto", key_format="auto"))
    format = landed.open().spec.format
    assert (format.value, format.key) == (DataFormat.AVRO, DataFormat.RAW)
    landed.send_avro(ORDER_2, {"id": 41, "name": None, "total": 1.0})
    assert landed.land(table_settings=parse_table_settings("auto")).rows == 1


@pytest.mark.parametrize(
    ("values", "kind"), [([b'{"a": 1}', b"{}"], TableKind.DECODED), ([b'{"a": 1}', b"text"], TableKind.RAW)]
)
def test_auto_decides_for_values_without_schemas(landed: TypedTopic, values: list[bytes], kind: TableKind) -> None:
    landed.send(*values)
    landed.land(table_settings=parse_table_settings("auto"), registry=None)
    assert landed.open().spec.kind is kind


def test_auto_waits_for_values(landed: TypedTopic) -> None:
    settings = parse_table_settings("auto")
    assert landed.land(table_settings=settings).rows == 0
    with pytest.raises(TableMissingError):
        landed.open()
    landed.send_avro(ORDER, {"id": 1, "name": None})
    assert landed.land(table_settings=settings).rows == 1


def test_auto_decides_nothing_while_the_registry_does_not_respond(landed: TypedTopic) -> None:
    landed.send_avro(ORDER, {"id": 1, "name": None})
    landed.registry.stop()
    with pytest.raises(RegistryUnavailableError):
        landed.land(table_settings=parse_table_settings("auto"))
    with pytest.raises(TableMissingError):
        landed.open()


# Live tail


def test_live_tail_has_the_columns_of_the_table(landed: TypedTopic) -> None:
    landed.send_avro(ORDER_2, {"id": 1, "name": "a", "total": 1.0})
    landed.land()
    landed.send_avro(ORDER, {"id": 2, "name": "b"})
    landed.send(None, b"?")
    reader = SnapshotReader(landed.cluster, landed.root, registry=landed.registry_settings)
    snapshot = reader.take_snapshots([landed.topic.name])[landed.topic.name]
    read = ReadSettings(landed.topic.broker.bootstrap, isolation=IsolationLevel.READ_COMMITTED)
    names = ("id", "name", "total", VALUE_SCHEMA)
    tail = TailScan(read, snapshot.kind, snapshot.schema, names, (), format=snapshot.format, registry=snapshot.registry)
    (target,) = snapshot.tail
    found = [row for batch in read_tail_rows(tail, target) for row in batch.to_pylist()]
    assert found == [
        {"id": 2, "name": "b", "total": None, VALUE_SCHEMA: "2"},
        {"id": None, "name": None, "total": None, VALUE_SCHEMA: None},
    ]


def test_earlier_drivers_reject_typed_tables(landed: TypedTopic, monkeypatch: pytest.MonkeyPatch) -> None:
    landed.send_avro(ORDER, {"id": 1, "name": "a"})
    landed.land()
    monkeypatch.setattr(table_properties, "TYPED_DECODING_RULES_VERSION", DECODING_RULES_VERSION)
    with pytest.raises(TableMismatchError, match="has decoding rules 3 of a newer version"):
        landed.land()

"""Tests of typed columns: decoding by the writers' schemas, resolution to the column's schema, and reports."""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from chronik.formats.avro.encoder import AvroEncoder
from chronik.formats.codec import UndecodableValueError, ValueFormat, WriterSchema
from chronik.formats.encoding import build_prefix, create_encoder
from chronik.formats.framing import VALUE_HEADER
from chronik.formats.registry_client import RegistrySettings, RegistryUnavailableError
from chronik.pipeline.records.columns import HEADERS_TYPE, RecordColumns
from chronik.pipeline.source.offset_ranges import OffsetRange
from chronik.pipeline.source.typed_columns import TypedRecordReader
from chronik.pipeline.source.typed_options import TypedColumn, TypedColumns
from tests.formats.hostile_values import HOSTILE_VALUES
from tests.formats.http_registry import HttpRegistry

RANGE = OffsetRange("orders", 0, 100, 200)


@pytest.fixture
def registry() -> Iterator[HttpRegistry]:
    registry = HttpRegistry()
    yield registry
    registry.stop()


def record(*fields: Any, name: str = "Order") -> dict[str, Any]:
    definitions = [{"name": each[0], "type": each[1]} if isinstance(each, tuple) else each for each in fields]
    return {"type": "record", "name": name, "fields": definitions}


def field(name: str, kind: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **more}


def avro(schema: Any) -> WriterSchema:
    return WriterSchema(ValueFormat.AVRO, json.dumps(schema))


def encode(schema: Any, *forms: Any) -> list[bytes]:
    encoder = AvroEncoder(avro(schema))
    return [encoder.encode_value(form) for form in forms]


def build_records(values: list[bytes | None], keys: list[bytes | None] | None = None, headers: Any = None) -> Any:
    count = len(values)
    numbers = pa.array(range(100, 100 + count), pa.int64())
    return RecordColumns(
        numbers,
        numbers,
        pa.array([0] * count, pa.int32()),
        pa.array(keys or [None] * count, pa.binary()),
        pa.array(values, pa.binary()),
        pa.nulls(count, HEADERS_TYPE) if headers is None else pa.array(headers, HEADERS_TYPE),
    )


def resolve(written: Any, target: Any, *forms: Any) -> tuple[list[Any], list[str | None]]:
    """Return the values and the rescued parts of records that were written with one schema and read with another."""
    column = TypedColumn("value", ValueFormat.AVRO, avro(target), avro(written))
    found = TypedRecordReader(TypedColumns((column,))).read(RANGE, build_records([*encode(written, *forms)]))
    assert found["valueError"].null_count == len(forms)
    assert found["value"].type == column.arrow_field.type
    return found["value"].to_pylist(), found["valueRescued"].to_pylist()


def logical(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **more}


@pytest.mark.parametrize(
    ("written", "target", "form", "value"),
    [
        (record(("id", "int")), record(("id", "long")), {"id": 1}, {"id": 1}),
        (record(("id", "int")), record(("id", "double")), {"id": 1}, {"id": 1.0}),
        (record(("id", "float")), record(("id", "double")), {"id": 0.5}, {"id": 0.5}),
        (record(("id", "string")), record(("id", "bytes")), {"id": "a"}, {"id": b"a"}),
        (record(("id", "bytes")), record(("id", "string")), {"id": "YQ=="}, {"id": "a"}),
        (record(("id", "long")), record(("id", "int")), {"id": 1}, {"id": 1}),
        (record(("id", "int")), record(("id", ["null", "int"])), {"id": 1}, {"id": 1}),
        (record(("id", "int"), ("x", "int")), record(("id", "int")), {"id": 1, "x": 2}, {"id": 1}),
        (record(("id", "int")), record(("id", "int"), ("x", ["null", "int"])), {"id": 1}, {"id": 1, "x": None}),
        (
            record(("id", "int")),
            record(field("number", "int", aliases=["id"])),
            {"id": 1},
            {"number": 1},
        ),
        (
            record(("a", "int"), ("b", "string")),
            record(("b", "string"), ("a", "int")),
            {"a": 1, "b": "x"},
            {"b": "x", "a": 1},
        ),
        (
            record(("price", logical("bytes", "decimal", precision=4, scale=1))),
            record(("price", logical("bytes", "decimal", precision=9, scale=2))),
            {"price": Decimal("1.5")},
            {"price": Decimal("1.50")},
        ),
        (
            record(("items", {"type": "array", "items": record(("id", "int"), name="Item")})),
            record(
                ("items", {"type": "array", "items": record(("id", "long"), field("n", "int", default=7), name="I")})
            ),
            {"items": [{"id": 1}, {"id": 2}]},
            {"items": [{"id": 1, "n": 7}, {"id": 2, "n": 7}]},
        ),
        (
            {"type": "map", "values": record(("id", "int"), name="Item")},
            {"type": "map", "values": record(field("n", "string", default="x"), name="Item")},
            {"a": {"id": 1}},
            [("a", {"n": "x"})],
        ),
        ("int", "long", 1, 1),
    ],
)
def test_value_is_resolved_to_the_schema_of_the_column(written: Any, target: Any, form: Any, value: Any) -> None:
    assert resolve(written, target, form) == ([value], [None])


@pytest.mark.parametrize(
    ("kind", "default", "value"),
    [
        ("string", "?", "?"),
        ("bytes", "\u00ff", b"\xff"),
        ("boolean", False, False),
        ("double", 1.5, 1.5),
        ({"type": "array", "items": "int"}, [1, 2], [1, 2]),
        ({"type": "map", "values": "int"}, {"a": 1}, [("a", 1)]),
        (record(("id", "int"), name="Inner"), {"id": 3}, {"id": 3}),
        (["null", "int"], None, None),
        (["int", "string"], 5, "5"),
        (logical("bytes", "decimal", precision=4, scale=2), "\u0001", Decimal("0.01")),
    ],
)
def test_missing_field_has_the_default_of_the_column(kind: Any, default: Any, value: Any) -> None:
    target = record(("id", "int"), field("new", kind, default=default))
    values, rescued = resolve(record(("id", "int")), target, {"id": 1}, {"id": 2})
    assert values == [{"id": 1, "new": value}, {"id": 2, "new": value}]
    assert rescued == [None, None]


@pytest.mark.parametrize(
    ("written", "target", "form", "value", "lost"),
    [
        (record(("id", "long")), record(("id", "int")), {"id": 2**31}, {"id": None}, {"id": 2**31}),
        (record(("id", "string")), record(("id", "int")), {"id": "1"}, {"id": None}, {"id": "1"}),
        (record(("id", "long")), record(("id", "double")), {"id": 2**53 + 1}, {"id": None}, {"id": 2**53 + 1}),
        (
            record(("user", record(("id", "long"), ("n", "int"), name="User")), ("x", "int")),
            record(("user", record(("id", "int"), ("n", "int"), name="User"))),
            {"user": {"id": 2**40, "n": 1}, "x": 2},
            {"user": {"id": None, "n": 1}},
            {"user": {"id": 2**40}},
        ),
        (
            record(("at", logical("long", "timestamp-millis")), ("n", "int")),
            record(("at", logical("long", "timestamp-millis")), ("n", "int")),
            {"at": 2**60, "n": 1},
            {"at": None, "n": 1},
            {"at": 2**60},
        ),
        ("string", "int", "x", None, "x"),
    ],
)
def test_value_that_does_not_fit_is_null_and_rescued(
    written: Any, target: Any, form: Any, value: Any, lost: Any
) -> None:
    values, rescued = resolve(written, target, form)
    assert values == [value]
    assert [json.loads(text or "") for text in rescued] == [lost]


def test_records_of_several_schemas_are_read_in_order(registry: HttpRegistry) -> None:
    old, new = record(("id", "int")), record(("id", "long"), field("name", "string", default="?"))
    first, second = registry.add("orders-value", old), registry.add("orders-value", new)
    (one, three), (two,) = encode(old, {"id": 1}, {"id": 3}), encode(new, {"id": 2, "name": "b"})
    values = [
        build_prefix(first) + one,
        build_prefix(second) + two,
        None,
        b"text",
        build_prefix(first) + three,
        build_prefix(first) + b"\x80",
        build_prefix(99) + one,
    ]
    column = TypedColumn("value", ValueFormat.AVRO, avro(new), registry=RegistrySettings(registry.url))
    found = TypedRecordReader(TypedColumns((column,))).read(RANGE, build_records([*values]))
    assert found["value"].to_pylist() == [
        {"id": 1, "name": "?"},
        {"id": 2, "name": "b"},
        None,
        None,
        {"id": 3, "name": "?"},
        None,
        None,
    ]
    assert found["valueError"].to_pylist() == [
        None,
        None,
        None,
        "the value does not start with a schema id",
        None,
        "id: the payload ends within a number",
        f"schema registry {registry.url} has no schema with id 99",
    ]
    assert found["valueRescued"].null_count == len(values)


def test_schema_id_in_header_is_used(registry: HttpRegistry) -> None:
    schema = record(("id", "int"))
    id = registry.add("orders-value", schema)
    column = TypedColumn("value", ValueFormat.AVRO, avro(schema), registry=RegistrySettings(registry.url))
    headers = [[{"key": VALUE_HEADER, "value": build_prefix(id)}], None]
    (payload,) = encode(schema, {"id": 1})
    records = build_records([payload, build_prefix(id) + payload], headers=headers)
    found = TypedRecordReader(TypedColumns((column,))).read(RANGE, records)
    assert found["value"].to_pylist() == [{"id": 1}, {"id": 1}]


def test_keys_are_decoded_with_their_own_schema() -> None:
    key = TypedColumn("key", ValueFormat.AVRO, avro("string"), avro("string"))
    value = TypedColumn("value", ValueFormat.AVRO, avro("int"), avro("int"))
    found = TypedRecordReader(TypedColumns((key, value))).read(
        RANGE, build_records([b"\x02", b"\x04"], [b"\x02a", b""])
    )
    assert found["key"].to_pylist() == ["a", None]
    assert found["keyError"].to_pylist() == [None, "the payload ends within a number"]
    assert found["value"].to_pylist() == [1, 2]


@pytest.mark.parametrize(
    ("payload", "problem"),
    [
        (b"", "id: the payload ends within a number"),
        (encode("long", 2**40)[0], 'it does not fit the column: {"id":1099511627776}'),
    ],
)
def test_failfast_mode_reports_the_first_bad_record(payload: bytes, problem: str) -> None:
    column = TypedColumn("value", ValueFormat.AVRO, avro(record(("id", "int"))), avro(record(("id", "long"))))
    reader = TypedRecordReader(TypedColumns((column,), fails_fast=True))
    reader.read(RANGE, build_records([b"\x02"]))
    with pytest.raises(UndecodableValueError) as raised:
        reader.read(RANGE, build_records([b"\x02", payload, payload]))
    assert str(raised.value) == (
        f"orders-0 offset 101: the value cannot be decoded: {problem};"
        " set mode = PERMISSIVE to read such records as null"
    )


@pytest.mark.parametrize("format", ValueFormat)
def test_hostile_values_are_null_and_do_not_affect_other_records(registry: HttpRegistry, format: ValueFormat) -> None:
    kind = {ValueFormat.AVRO: "AVRO", ValueFormat.JSON_SCHEMA: "JSON", ValueFormat.PROTOBUF: "PROTOBUF"}[format]
    schema, order = {
        ValueFormat.AVRO: (json.dumps(record(("id", "int"))), b"\x02"),
        ValueFormat.JSON_SCHEMA: ('{"properties": {"id": {"type": "integer"}}, "type": "object"}', b'{"id":1}'),
        ValueFormat.PROTOBUF: ('syntax = "proto3"; message Order { int64 id = 1; }', b"\x00\x08\x01"),
    }[format]
    good = build_prefix(registry.add("orders-value", schema, kind)) + order
    values: list[bytes | None] = []
    for value in HOSTILE_VALUES.values():
        if value.format is format:
            prefix = build_prefix(registry.add("orders-value", value.schema, kind))
            first = b"\x00" if format is ValueFormat.PROTOBUF else b""
            values += [prefix + first + value.build(4096), good]
    column = TypedColumn("value", format, WriterSchema(format, schema), registry=RegistrySettings(registry.url))
    parts = list(TypedRecordReader(TypedColumns((column,))).read_in_parts(RANGE, build_records(values)))
    found = [row for _, part in parts for row in part["value"].to_pylist()]
    assert found[1::2] == [{"id": 1}] * (len(values) // 2)
    errors = [row for _, part in parts for row in part["valueError"].to_pylist() if row is not None]
    assert errors
    assert not any("\n" in error for error in errors)


def test_failfast_mode_shortens_large_values() -> None:
    long = record(("id", {"type": "array", "items": "long"}))
    column = TypedColumn("value", ValueFormat.AVRO, avro(record(("id", "int"))), avro(long))
    reader = TypedRecordReader(TypedColumns((column,), fails_fast=True))
    with pytest.raises(UndecodableValueError, match=r"orders-0 offset 100: .* it does not fit the column: ") as raised:
        reader.read(RANGE, build_records([*encode(long, {"id": [2**40] * 10_000})]))
    assert len(str(raised.value)) < 1000


PROTOBUF_ORDER = """
    syntax = "proto3";
    package shop;
    message Order { int32 id = 1; string name = 2; }
    message Other { int32 id = 1; }
"""
NEW_PROTOBUF_ORDER = PROTOBUF_ORDER.replace("int32 id = 1; string name", "int64 id = 1; string title")


def test_protobuf_fields_are_matched_by_number(registry: HttpRegistry) -> None:
    old, new = (WriterSchema(ValueFormat.PROTOBUF, text) for text in (PROTOBUF_ORDER, NEW_PROTOBUF_ORDER))
    ids = [registry.add("orders-value", each.text, "PROTOBUF") for each in (old, new)]
    values = []
    for schema, id, message, form in (
        (old, ids[0], "shop.Order", {"id": 1, "name": "a"}),
        (new, ids[1], "shop.Order", {"id": 2**40, "title": "b"}),
        (old, ids[0], "shop.Other", {"id": 3}),
    ):
        encoder = create_encoder(schema, message)
        values.append(build_prefix(id, encoder.message_indexes) + encoder.encode_value(form))
    column = TypedColumn("value", ValueFormat.PROTOBUF, new, None, RegistrySettings(registry.url), (0,))
    found = TypedRecordReader(TypedColumns((column,))).read(RANGE, build_records([*values]))
    assert found["value"].to_pylist() == [{"id": 1, "title": "a"}, {"id": 2**40, "title": "b"}, None]
    assert found["valueError"].to_pylist() == [None, None, "the message type is shop.Other, expected shop.Order"]


def test_json_is_validated_by_its_schema(registry: HttpRegistry) -> None:
    text = json.dumps({"type": "object", "properties": {"id": {"type": "integer"}, "name": {"type": "string"}}})
    id = registry.add("orders-value", text, "JSON")
    schema = WriterSchema(ValueFormat.JSON_SCHEMA, text)
    column = TypedColumn("value", ValueFormat.JSON_SCHEMA, schema, None, RegistrySettings(registry.url))
    values = [build_prefix(id) + each for each in (b'{"id": 1, "name": "a"}', b'{"id": "x"}')]
    found = TypedRecordReader(TypedColumns((column,))).read(RANGE, build_records([*values]))
    assert found["value"].to_pylist() == [{"id": 1, "name": "a"}, None]
    assert "integer" in found["valueError"][1].as_py()


def test_unavailable_registry_fails_the_query(registry: HttpRegistry) -> None:
    schema = record(("id", "int"))
    column = TypedColumn("value", ValueFormat.AVRO, avro(schema), registry=RegistrySettings(registry.url))
    registry.stop()
    with pytest.raises(RegistryUnavailableError):
        TypedRecordReader(TypedColumns((column,))).read(RANGE, build_records([build_prefix(1) + b"\x02"]))


def test_columns_that_are_not_selected_are_not_decoded() -> None:
    column = TypedColumn("key", ValueFormat.AVRO, avro("int"), avro("int"))
    all_columns = build_records([b"x"])
    records = RecordColumns(*(None if each is all_columns.key else each for each in all_columns))
    assert TypedRecordReader(TypedColumns((column,))).read(RANGE, records) == {}

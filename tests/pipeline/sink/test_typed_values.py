"""Tests of typed keys and values of the sink: schemas, subjects, and encoded rows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from chronik.formats.encoding import build_prefix
from chronik.pipeline.errors import OptionError, SchemaError
from chronik.pipeline.sink.typed_values import (
    ColumnEncoding,
    RowEncoder,
    parse_typed_sink_options,
    resolve_encodings,
)
from chronik.pipeline.source.raw_options import RawOptions
from chronik.pipeline.source.typed_options import RegistryResolver
from tests.formats.http_registry import HttpRegistry

ORDER: dict[str, Any] = {"type": "record", "name": "com.shop.Order", "fields": [{"name": "id", "type": "int"}]}
TEXT = json.dumps(ORDER)
TYPES = {"value": pa.struct([("id", pa.int32())]), "key": pa.string()}


@pytest.fixture
def registry() -> Iterator[HttpRegistry]:
    registry = HttpRegistry()
    yield registry
    registry.stop()


def resolve(
    registry: HttpRegistry | None, options: dict[str, str], topic: str | None = "orders"
) -> tuple[ColumnEncoding, ...]:
    given = RawOptions({"valueFormat": "avro"} | options)
    if registry is not None:
        given.by_name["schema.registry.url"] = registry.url
    resolver = RegistryResolver(given, lambda: "127.0.0.1:1")
    return resolve_encodings(parse_typed_sink_options(given), resolver, topic, TYPES)


def test_schema_is_latest_version_of_subject_of_topic(registry: HttpRegistry) -> None:
    registry.add("orders-value", '"int"')
    id = registry.add("orders-value", ORDER)
    (encoding,) = resolve(registry, {})
    assert (encoding.id, json.loads(encoding.schema.text)) == (id, ORDER)


def test_schema_may_be_an_id(registry: HttpRegistry) -> None:
    id = registry.add("other", ORDER)
    (encoding,) = resolve(registry, {"valueSchema": str(id)})
    assert (encoding.id, json.loads(encoding.schema.text)) == (id, ORDER)


def test_schema_that_is_not_registered_is_registered_only_if_allowed(registry: HttpRegistry) -> None:
    with pytest.raises(OptionError, match=r"orders-value.*set autoRegisterSchemas = true"):
        resolve(registry, {"valueSchema": TEXT})
    (registered,) = resolve(registry, {"valueSchema": TEXT, "autoRegisterSchemas": "true"})
    (found,) = resolve(registry, {"valueSchema": TEXT})
    assert found == registered


def test_schema_is_derived_from_column_if_subject_does_not_exist(registry: HttpRegistry) -> None:
    with pytest.raises(OptionError, match="set valueSchema and autoRegisterSchemas = true"):
        resolve(registry, {})
    (derived,) = resolve(registry, {"autoRegisterSchemas": "true"})
    assert json.loads(derived.schema.text) == {
        "type": "record",
        "name": "orders_value",
        "fields": [{"name": "id", "type": ["null", "int"], "default": None}],
    }
    assert resolve(registry, {}) == (derived,)


@pytest.mark.parametrize(
    ("options", "topic", "subject"),
    [
        ({}, "orders", "orders-value"),
        ({"valueSubject": "other"}, None, "other"),
        ({"valueSubjectNameStrategy": "record"}, None, "com.shop.Order"),
        ({"valueSubjectNameStrategy": "topic-record"}, "orders", "orders-com.shop.Order"),
        (
            {"valueSubjectNameStrategy": "io.confluent.kafka.serializers.subject.RecordNameStrategy"},
            "orders",
            "com.shop.Order",
        ),
    ],
)
def test_subject_is_chosen_by_strategy(
    options: dict[str, str], topic: str | None, subject: str, registry: HttpRegistry
) -> None:
    resolve(registry, options | {"valueSchema": TEXT, "autoRegisterSchemas": "true"}, topic)
    assert registry.requests[-1] == f"/subjects/{subject}/versions"


@pytest.mark.parametrize(
    ("options", "topic", "message"),
    [
        ({"valueFormat": "xml"}, "orders", "valueFormat = 'xml': expected"),
        ({"valueSubjectNameStrategy": "name"}, "orders", "expected topic, record, topic-record"),
        ({"schemaIdLocation": "footer"}, "orders", "schemaIdLocation = 'footer': expected prefix or header or none"),
        ({"schemaIdLocation": "none"}, "orders", "set valueSchema to the text of the schema"),
        ({"schemaIdLocation": "none", "valueSchema": "7"}, "orders", "set valueSchema to the text of the schema"),
        ({"valueMessage": "Order"}, "orders", "valueMessage is for Protobuf only"),
        ({"keySubject": "x"}, "orders", "keySubject has no effect without keyFormat"),
        ({"valueSchema": "{"}, "orders", "valueSchema: invalid Avro schema"),
        ({"valueSchema": "99"}, "orders", "has no schema with id 99"),
        ({}, None, "set valueSubject, or the option topic"),
        ({"valueSubjectNameStrategy": "record"}, "orders", "valueSubjectNameStrategy = record: set valueSchema"),
        (
            {"valueSubjectNameStrategy": "record", "valueSchema": '["int", "null"]'},
            "orders",
            "the schema does not name exactly one record",
        ),
        ({"valueSubject": "proto"}, "orders", "has the format protobuf: set valueFormat to protobuf"),
    ],
)
def test_invalid_options_are_rejected(
    options: dict[str, str], topic: str | None, message: str, registry: HttpRegistry
) -> None:
    registry.add("proto", 'syntax = "proto3"; message Order {}', type="PROTOBUF")
    with pytest.raises(OptionError) as rejected:
        resolve(registry, options, topic)
    assert message in str(rejected.value)


@pytest.mark.parametrize("name", ["schemaIdLocation", "autoRegisterSchemas", "schema.registry.url", "valueSchema"])
def test_option_without_format_is_rejected(name: str) -> None:
    value = {"schemaIdLocation": "header", "autoRegisterSchemas": "true"}.get(name, "x")
    with pytest.raises(OptionError, match="has no effect without"):
        parse_typed_sink_options(RawOptions({name: value}))


def encode(encodings: tuple[ColumnEncoding, ...], **columns: pa.Array) -> pa.RecordBatch:
    (encoded,) = RowEncoder(encodings).encode([pa.RecordBatch.from_pydict(columns)])
    return encoded


ROWS = pa.array([{"id": 1}, None, {"id": -1}], TYPES["value"])


def test_rows_get_the_prefix_of_the_schema(registry: HttpRegistry) -> None:
    id = registry.add("orders-value", ORDER)
    encoded = encode(resolve(registry, {}), value=ROWS, key=pa.array(["a", "b", "c"]))
    assert encoded.column("value").to_pylist() == [build_prefix(id) + b"\x02", None, build_prefix(id) + b"\x01"]
    assert encoded.column("key").to_pylist() == ["a", "b", "c"]


def test_rows_without_schema_id_are_payloads() -> None:
    encodings = resolve(None, {"schemaIdLocation": "none", "valueSchema": TEXT})
    assert encode(encodings, value=ROWS).column("value").to_pylist() == [b"\x02", None, b"\x01"]


def test_schema_id_in_header_is_added_to_other_headers(registry: HttpRegistry) -> None:
    id = registry.add("orders-value", ORDER)
    encodings = resolve(registry, {"schemaIdLocation": "header"})
    added = {"key": "__value_schema_id", "value": build_prefix(id)}
    encoded = encode(encodings, value=ROWS)
    assert encoded.column("value").to_pylist() == [b"\x02", None, b"\x01"]
    assert encoded.column("headers").to_pylist() == [[added], None, [added]]
    other = {"key": "a", "value": b"b"}
    headers = pa.array([[other], [other], None])
    assert encode(encodings, value=ROWS, headers=headers).column("headers").to_pylist() == [
        [other, added],
        [other],
        [added],
    ]


def test_keys_have_their_own_schema(registry: HttpRegistry) -> None:
    key, value = registry.add("orders-key", '"string"'), registry.add("orders-value", ORDER)
    encodings = resolve(registry, {"keyFormat": "avro"})
    encoded = encode(encodings, key=pa.array(["a"]), value=ROWS[:1])
    assert encoded.column("key").to_pylist() == [build_prefix(key) + b"\x02a"]
    assert encoded.column("value").to_pylist() == [build_prefix(value) + b"\x02"]


def test_row_that_does_not_match_is_rejected_with_its_index() -> None:
    encodings = resolve(None, {"schemaIdLocation": "none", "valueSchema": TEXT})
    with pytest.raises(SchemaError, match=r"column `value`: \[1\]\.id: expected int, got None"):
        encode(encodings, value=pa.array([{"id": 1}, {"id": None}], TYPES["value"]))


def test_protobuf_rows_get_message_indexes(registry: HttpRegistry) -> None:
    text = 'syntax = "proto3"; message Customer { int32 id = 1; } message Order { int32 id = 1; }'
    id = registry.add("orders-value", text, type="PROTOBUF")
    encodings = resolve(registry, {"valueFormat": "protobuf", "valueMessage": "Order"})
    encoded = encode(encodings, value=ROWS[:1])
    assert encoded.column("value").to_pylist() == [build_prefix(id, (1,)) + b"\x08\x01"]


def test_json_rows_are_validated(registry: HttpRegistry) -> None:
    schema = {"type": "object", "properties": {"id": {"type": "integer", "minimum": 0}}}
    id = registry.add("orders-value", schema, type="JSON")
    encodings = resolve(registry, {"valueFormat": "json-schema"})
    encoded = encode(encodings, value=ROWS[:1])
    assert encoded.column("value").to_pylist() == [build_prefix(id) + b'{"id":1}']
    with pytest.raises(SchemaError, match=r"column `value`: \[2\]"):
        encode(encodings, value=ROWS)

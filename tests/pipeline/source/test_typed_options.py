"""Tests of the options of typed keys and values, and of the schemas that they name."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from chronik.formats.codec import ValueFormat
from chronik.pipeline.errors import OptionError
from chronik.pipeline.source.options import parse_source_options, resolve_source_types, select_source_columns
from tests.formats.http_registry import HttpRegistry

COMMON = {"bootstrap.servers": "127.0.0.1:1", "subscribe": "orders", "valueFormat": "avro"}
ORDER = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}]}
NEW_ORDER = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}


@pytest.fixture
def registry() -> Iterator[HttpRegistry]:
    registry = HttpRegistry()
    yield registry
    registry.stop()


def resolve_value_type(options: dict[str, str], registry: HttpRegistry | None = None) -> str:
    given = COMMON | options
    if registry is not None:
        given["schema.registry.url"] = registry.url
    typed = resolve_source_types(given)
    assert typed is not None
    return str(typed.columns[-1].arrow_field.type)


def test_columns_without_format_are_not_typed() -> None:
    assert resolve_source_types({"bootstrap.servers": "127.0.0.1:1"}) is None


def test_schema_is_latest_version_of_subject_of_topic(registry: HttpRegistry) -> None:
    registry.add("orders-value", ORDER)
    registry.add("orders-value", NEW_ORDER)
    assert resolve_value_type({}, registry) == "struct<id: int64>"


def test_schema_may_be_an_id_a_text_or_of_another_subject(registry: HttpRegistry) -> None:
    first = registry.add("orders-value", ORDER)
    registry.add("com.shop.Order", NEW_ORDER)
    assert resolve_value_type({"valueSchema": str(first)}, registry) == "struct<id: int32>"
    assert resolve_value_type({"valueSubject": "com.shop.Order", "subscribe": "a,b"}, registry) == "struct<id: int64>"
    assert resolve_value_type({"valueSchema": json.dumps(ORDER)}, registry) == "struct<id: int32>"


def test_writer_schema_needs_no_registry() -> None:
    assert resolve_value_type({"valueWriterSchema": json.dumps(ORDER)}) == "struct<id: int32>"
    both = {"valueWriterSchema": json.dumps(ORDER), "valueSchema": json.dumps(NEW_ORDER)}
    assert resolve_value_type(both) == "struct<id: int64>"


def test_keys_and_values_have_their_own_subjects(registry: HttpRegistry) -> None:
    registry.add("orders-key", '"string"')
    registry.add("orders-value", ORDER)
    typed = resolve_source_types(COMMON | {"keyFormat": "avro", "schema.registry.url": registry.url})
    assert typed is not None
    assert [(each.name, str(each.arrow_field.type)) for each in typed.columns] == [
        ("key", "string"),
        ("value", "struct<id: int32>"),
    ]


def test_message_selects_the_type_of_a_protobuf_column(registry: HttpRegistry) -> None:
    text = 'syntax = "proto3"; package shop; message Customer { int32 id = 1; } message Order { string name = 1; }'
    registry.add("orders-value", text, type="PROTOBUF")
    options = {"valueFormat": "protobuf"}
    assert resolve_value_type(options, registry) == "struct<id: int32>"
    assert resolve_value_type(options | {"valueMessage": "shop.Order"}, registry) == "struct<name: string>"
    with pytest.raises(OptionError, match=r"valueSchema: .*shop\.Nothing"):
        resolve_value_type(options | {"valueMessage": "shop.Nothing"}, registry)


def test_registry_settings_are_used(registry: HttpRegistry) -> None:
    registry.add("orders-value", ORDER)
    resolve_value_type({"schema.registry.basic.auth.user.info": "ada:secret"}, registry)
    assert registry.headers[-1]["Authorization"] == "Basic YWRhOnNlY3JldA=="


def test_report_columns_follow_other_columns() -> None:
    names = select_source_columns(COMMON | {"keyFormat": "AVRO"})
    assert names[-5:] == ("timestampType", "keyError", "keyRescued", "valueError", "valueRescued")
    assert select_source_columns(COMMON | {"columns": "valueerror,value"}) == ("valueError", "value")
    assert "valueError" not in select_source_columns(COMMON | {"mode": "FAILFAST"})
    assert "valueError" not in select_source_columns({})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"valueFormat": "xml"}, "valueFormat = 'xml': expected avro, json-schema, protobuf"),
        ({"mode": "DROPMALFORMED"}, "mode = 'DROPMALFORMED': expected permissive or failfast"),
        ({"valueMessage": "Order"}, "valueMessage is for Protobuf only"),
        ({"keySchema": "7"}, "keySchema has no effect without keyFormat"),
        (
            {"schema.registry.url": "http://a", "schema.registry.ssl.truststore.type": "JKS"},
            "schema.registry.url: registry setting ssl.truststore.type = 'JKS': expected PEM",
        ),
        ({"schema.registry.url": "localhost:8081"}, "schema.registry.url: invalid registry URL 'localhost:8081'"),
        ({"valueWriterSchema": "{"}, "valueSchema: invalid Avro schema: The schema is not valid JSON"),
        ({"subscribe": "a,b", "schema.registry.url": "http://127.0.0.1:1"}, "set valueSubject or valueSchema"),
    ],
)
def test_invalid_option_is_rejected(options: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError) as rejected:
        resolve_source_types(COMMON | options)
    assert message in str(rejected.value)


@pytest.mark.parametrize("name", ["mode", "schema.registry.url", "valueSubject"])
def test_option_without_format_is_rejected(name: str) -> None:
    value = "failfast" if name == "mode" else "x"
    with pytest.raises(OptionError, match=f"{name} has no effect without"):
        parse_source_options({"bootstrap.servers": "a:1", "subscribe": "one", name: value}, streaming=False)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "Subject 'orders-value' not found"),
        ({"valueSchema": "99"}, "has no schema with id 99"),
        ({"valueSubject": "proto"}, "has the format protobuf: set valueFormat to protobuf"),
    ],
)
def test_schema_that_cannot_be_used_is_rejected(options: dict[str, str], message: str, registry: HttpRegistry) -> None:
    registry.add("proto", 'syntax = "proto3"; message Order {}', type="PROTOBUF")
    with pytest.raises(OptionError) as rejected:
        resolve_value_type(options, registry)
    assert message in str(rejected.value)


def test_secrets_are_not_shown(registry: HttpRegistry) -> None:
    registry.add("orders-value", ORDER)
    options = COMMON | {"schema.registry.url": registry.url, "schema.registry.basic.auth.user.info": "ada:secret"}
    typed: Any = resolve_source_types(options)
    assert "secret" not in repr(typed)


def test_formats_have_aliases() -> None:
    names = select_source_columns({"valueFormat": "json_schema"})
    assert "valueError" in names
    assert ValueFormat("json-schema")

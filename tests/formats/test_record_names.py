"""The names of the record types that a schema defines."""

from __future__ import annotations

import pytest

from chronik.formats.codec import ValueFormat
from chronik.formats.record_names import extract_record_names


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ('{"type": "record", "name": "Order", "namespace": "com.shop", "fields": []}', {"com.shop.Order"}),
        ('{"type": "record", "name": "com.shop.Order", "namespace": "other", "fields": []}', {"com.shop.Order"}),
        ('{"type": "enum", "name": "Size", "symbols": ["S"]}', {"Size"}),
        ('{"type": {"type": "record", "name": "Order", "fields": []}}', {"Order"}),
        ('"string"', {"string"}),
        ('{"type": "long", "logicalType": "timestamp-millis"}', {"long"}),
        ('["null", "string"]', set()),
    ],
)
def test_avro_schema_has_its_full_name(text: str, names: set[str]) -> None:
    assert extract_record_names(ValueFormat.AVRO, text) == names


@pytest.mark.parametrize(
    ("text", "names"), [('{"title": "Order", "type": "object"}', {"Order"}), ("{}", set()), ("true", set())]
)
def test_json_schema_has_its_title(text: str, names: set[str]) -> None:
    assert extract_record_names(ValueFormat.JSON_SCHEMA, text) == names


def test_protobuf_schema_has_the_full_names_of_all_messages() -> None:
    text = """syntax = "proto2";
package com.shop;

message Order {
  option (note) = "message String {";

  oneof kind {
    string message = 3;
  }

  message Line {
    required int32 count = 1;

    message Part {}
  }
  enum Unit {
    PIECE = 0;
  }
  message Box {}
}
message Refund {}
"""
    assert extract_record_names(ValueFormat.PROTOBUF, text) == {
        "com.shop.Order",
        "com.shop.Order.Line",
        "com.shop.Order.Line.Part",
        "com.shop.Order.Box",
        "com.shop.Refund",
    }


def test_protobuf_schema_without_package_has_simple_names() -> None:
    assert extract_record_names(ValueFormat.PROTOBUF, 'syntax = "proto3";\n\nmessage A {\n}\n') == {"A"}


def test_protobuf_schema_without_syntax_may_start_with_its_package() -> None:
    text = "package shop;\n\nmessage A {\n  oneof choice {\n    group B = 1 {\n    }\n  }\n}\n"
    assert extract_record_names(ValueFormat.PROTOBUF, text) == {"shop.A", "shop.A.B"}

"""The JSON Schema encoder: payloads of JSON forms and Arrow columns, and values that are rejected."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from chronik.formats.codec import UnsupportedSchemaError, ValueFormat, WriterSchema
from chronik.formats.encoding import UnencodableValueError, create_encoder
from chronik.formats.json_schema.encoder import JsonSchemaEncoder
from chronik.formats.json_schema.validation import NESTING_MAX

Schema = Any

CONNECT = "org.apache.kafka.connect.data."
DECIMAL = {"title": f"{CONNECT}Decimal", "connect.type": "bytes", "connect.parameters": {"scale": "2"}}


def create(schema: Schema) -> JsonSchemaEncoder:
    return JsonSchemaEncoder(WriterSchema(ValueFormat.JSON_SCHEMA, json.dumps(schema)))


def has(*required: str, **properties: Schema) -> Schema:
    return {"type": "object", "properties": properties, "required": list(required)}


def test_encoder_is_created_for_the_format() -> None:
    encoder = create_encoder(WriterSchema(ValueFormat.JSON_SCHEMA, '{"type":"integer"}'))
    assert encoder.encode_value(1) == b"1"
    assert encoder.message_indexes == ()


@pytest.mark.parametrize(
    ("schema", "form", "payload"),
    [
        ({"type": "integer"}, 2**70, b"1180591620717411303424"),
        ({"type": "number"}, Decimal("0.12345678901234567890"), b"0.12345678901234567890"),
        ({"type": "string"}, "ä", '"ä"'.encode()),
        ({"type": "string", "contentEncoding": "base64"}, "AAEC", b'"AAEC"'),
        ({"type": "string", "format": "date-time"}, "2026-11-19T08:30:00Z", b'"2026-11-19T08:30:00Z"'),
        ({"type": "number", **DECIMAL}, Decimal("1.50"), b"1.50"),
        ({"type": "string", **DECIMAL}, Decimal("1.25"), b'"fQ=="'),
        ({"type": "string", **DECIMAL}, Decimal("-1.28"), b'"gA=="'),
        ({"type": "integer", "title": f"{CONNECT}Date"}, "2025-11-19", b"20411"),
        ({"type": "integer", "title": f"{CONNECT}Timestamp"}, "2026-11-19T08:30:00.123Z", b"1795077000123"),
        (
            {"type": "object", "additionalProperties": {"type": ["integer", "null"]}},
            {"a": 1, "b": None},
            b'{"a":1,"b":null}',
        ),
        ({"oneOf": [{"type": "string"}, {"type": "integer"}]}, 1, b"1"),
        (True, {"a": [1, None]}, b'{"a":[1,null]}'),
        ({"type": "null"}, None, b"null"),
    ],
)
def test_json_form_is_encoded(schema: Schema, form: Any, payload: bytes) -> None:
    assert create(schema).encode_value(form) == payload


def test_null_stands_for_a_missing_property_unless_the_schema_requires_it() -> None:
    text, nullable = {"type": "string"}, {"type": ["string", "null"]}
    assert create(has(a=text)).encode_value({"a": None}) == b"{}"
    assert create(has(a=nullable)).encode_value({"a": None}) == b"{}"
    assert create(has("a", a=nullable)).encode_value({"a": None}) == b'{"a":null}'
    assert create({**has(a=nullable), "minProperties": 1}).encode_value({"a": None}) == b'{"a":null}'
    with pytest.raises(UnencodableValueError, match='"a" is a required property'):
        create(has("a", a=text)).encode_value({"a": None})


def test_properties_that_the_schema_does_not_list_are_encoded_if_it_allows_them() -> None:
    assert create(has(a={"type": "string"})).encode_value({"b": {"c": None}}) == b'{"b":{"c":null}}'
    with pytest.raises(UnencodableValueError, match="'b' was unexpected"):
        create({**has(a={"type": "string"}), "additionalProperties": False}).encode_value({"b": 1})


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ({"id": "x"}, 'id: "x" is not of type "integer"'),
        ({"list": [1, "x"]}, 'list[1]: "x" is not of type "integer"'),
        ({"list": [float("nan")]}, "list[0]: JSON has no nan"),
        ({"any": {"x": float("inf")}}, "any: JSON has no inf"),
        ({"day": "yesterday"}, "day: expected a date such as 2026-11-19, got 'yesterday'"),
        ({"any": "\ud800"}, "not valid JSON"),
        (5, '5 is not of type "object"'),
    ],
)
def test_value_that_does_not_match_is_rejected_with_its_path(value: Any, problem: str) -> None:
    day = {"type": "integer", "title": f"{CONNECT}Date"}
    encoder = create(has(id={"type": "integer"}, list={"type": "array", "items": {"type": "integer"}}, any={}, day=day))
    with pytest.raises(UnencodableValueError) as raised:
        encoder.encode_value(value)
    assert problem in str(raised.value)


def test_value_that_is_nested_too_deeply_is_rejected() -> None:
    value: Any = []
    for _ in range(NESTING_MAX - 1):
        value = [value]
    assert create(True).encode_value(value) == b"[" * NESTING_MAX + b"]" * NESTING_MAX
    for depth in (1, 100_000):
        for _ in range(depth):
            value = [value]
        with pytest.raises(UnencodableValueError, match="nested more than 200 deep"):
            create(True).encode_value(value)


# Columns


def test_column_is_encoded() -> None:
    schema = has(
        id={"type": "integer"},
        price={"type": "number"},
        day={"type": "string", "format": "date"},
        at={"type": "string", "format": "date-time"},
        data={"type": "string", "contentEncoding": "base64"},
        total={"type": "number", **DECIMAL},
        days={"type": "integer", "title": f"{CONNECT}Date"},
        tags={"type": "object", "additionalProperties": {"type": "integer"}},
        points={"type": "array", "items": has(x={"type": "number"})},
        other={"type": ["integer", "string"]},
    )
    row = {
        "id": 1,
        "price": 1.5,
        "day": date(2026, 11, 19),
        "at": datetime(2026, 11, 19, 8, 30, tzinfo=UTC),
        "data": b"\0\1\2",
        "total": Decimal("1.50"),
        "days": date(2025, 11, 19),
        "tags": [("a", 1)],
        "points": [{"x": 1.0}, {"x": None}],
        "other": '"text"',
    }
    arrow_type = pa.struct(
        [
            ("id", pa.int32()),
            ("price", pa.float32()),
            ("day", pa.date32()),
            ("at", pa.timestamp("us", "UTC")),
            ("data", pa.binary()),
            ("total", pa.decimal128(9, 2)),
            ("days", pa.date32()),
            ("tags", pa.map_(pa.string(), pa.int64())),
            ("points", pa.list_(pa.struct([("x", pa.float64())]))),
            ("other", pa.string()),
        ]
    )
    payload = (
        b'{"id":1,"price":1.5,"day":"2026-11-19","at":"2026-11-19T08:30:00Z","data":"AAEC","total":1.50,"days":20411,'
        b'"tags":{"a":1},"points":[{"x":1.0},{}],"other":"text"}'
    )
    empty = dict.fromkeys(row)
    assert create(schema).encode_column(pa.array([row, None, empty], arrow_type)) == [payload, None, b"{}"]


@pytest.mark.parametrize(
    ("schema", "column", "payload"),
    [
        ({}, pa.array(["[1]"]), b"[1]"),
        ({"type": "string"}, pa.array([date(2026, 11, 19)]), b'"2026-11-19"'),
        ({"type": "string"}, pa.array([datetime(2026, 11, 19, 8)], pa.timestamp("us")), b'"2026-11-19T08:00:00"'),
        ({"type": "string"}, pa.array([time(8, 30)]), b'"08:30:00"'),
        ({"type": "string"}, pa.array([b"\0"]), b'"AA=="'),
        ({"type": "array", "items": {"type": "integer"}}, pa.array([[1, 2]], pa.list_(pa.int8())), b"[1,2]"),
    ],
)
def test_column_of_another_type_is_encoded_if_its_values_match(
    schema: Schema, column: pa.Array, payload: bytes
) -> None:
    assert create(schema).encode_column(column) == [payload]


@pytest.mark.parametrize(
    ("schema", "column", "problem"),
    [
        ({"type": "integer"}, pa.array([1.0, 1.5]), '[1]: 1.5 is not of type "integer"'),
        ({"type": "number"}, pa.array([1.0, float("nan")]), "[1]: JSON has no nan"),
        ({}, pa.array(["{}", "{"]), "[1]: not valid JSON"),
        ({}, pa.array([1]), "[0]: expected JSON text, got 1"),
        ({"type": "string", "format": "date-time"}, pa.array([date(2026, 11, 19)]), "[0]: expected a timestamp"),
        ({"type": "string", "format": "date"}, pa.array([datetime(2026, 11, 19)]), "[0]: expected a date"),
        (has("a", a={"type": "integer"}), pa.array([{"a": None}], pa.struct([("a", pa.int64())])), "required"),
    ],
)
def test_column_with_an_element_that_does_not_match_is_rejected(schema: Schema, column: pa.Array, problem: str) -> None:
    with pytest.raises(UnencodableValueError) as raised:
        create(schema).encode_column(column)
    assert problem in str(raised.value)


def test_unsupported_schema_is_rejected() -> None:
    with pytest.raises(UnsupportedSchemaError, match="lookaround"):
        create({"pattern": "(?!a)"})

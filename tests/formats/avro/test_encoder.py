"""The Avro encoder: payloads of JSON forms and Arrow columns, and values that it rejects."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from chronik.formats.avro.encoder import AvroEncoder
from chronik.formats.codec import ReferencedSchema, UnsupportedSchemaError, ValueFormat, WriterSchema
from chronik.formats.encoding import UnencodableValueError


def create_encoder(schema: Any, *references: tuple[str, Any]) -> AvroEncoder:
    resolved = tuple(ReferencedSchema(name, json.dumps(each)) for name, each in references)
    return AvroEncoder(WriterSchema(ValueFormat.AVRO, json.dumps(schema), resolved))


def record(*fields: tuple[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "type": "record",
        "name": "Order",
        "fields": [{"name": name, "type": kind} for name, kind in fields],
        **more,
    }


def logical(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **more}


@pytest.mark.parametrize(
    ("schema", "value", "payload"),
    [
        ("null", None, b""),
        ("boolean", True, b"\x01"),
        ("int", -1, b"\x01"),
        ("int", Decimal("7.0"), b"\x0e"),
        ("long", 2**62, b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01"),
        ("float", Decimal("0.1"), b"\xcd\xcc\xcc\x3d"),
        ("double", "-Infinity", b"\x00\x00\x00\x00\x00\x00\xf0\xff"),
        ("bytes", "AP8=", b"\x04\x00\xff"),
        ("string", "é", b"\x04\xc3\xa9"),
        ({"type": "array", "items": "int"}, [1, 2], b"\x04\x02\x04\x00"),
        ({"type": "array", "items": "int"}, [], b"\x00"),
        ({"type": "map", "values": "int"}, {"a": 1}, b"\x02\x02a\x02\x00"),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "B", b"\x02"),
        ({"type": "fixed", "name": "F", "size": 2}, "AP8=", b"\x00\xff"),
        (["null", "int"], None, b"\x00"),
        (["null", "int"], 1, b"\x02\x02"),
        (["int", "null"], None, b"\x02"),
        (["double", "int"], 1, b"\x02\x02"),
        (["float", "double"], Decimal("0.1"), b"\x00\xcd\xcc\xcc\x3d"),
        (["float", "double"], 0.0841105335691813, b"\x02(\xc2\xed\x96D\x88\xb5?"),
        (
            ["double", logical("bytes", "decimal", precision=30, scale=20)],
            Decimal("0.12345678901234567890"),
            b"\x02\x12\x00\xabT\xa9\x8c\xeb\x1f\n\xd2",
        ),
        (["long", "double"], Decimal("-0.0"), b"\x02\x00\x00\x00\x00\x00\x00\x00\x80"),
        (["long", "string"], Decimal("2.0"), b"\x00\x04"),
        ([{"type": "map", "values": "int"}, {"type": "array", "items": "int"}], [], b"\x02\x00"),
        ([logical("long", "timestamp-millis"), "int"], 1, b"\x02\x02"),
        ([logical("long", "timestamp-millis"), "int"], "1970-01-01T00:00:00.001Z", b"\x00\x02"),
        ([logical("bytes", "decimal", precision=4, scale=1), "long"], 1, b"\x02\x02"),
        ([logical("bytes", "decimal", precision=4, scale=1), "long"], Decimal("1.0"), b"\x00\x02\x0a"),
        (
            ["double", logical("bytes", "decimal", precision=50)],
            Decimal(2**132 + 1),
            b"\x02\x22\x10" + bytes(15) + b"\x01",
        ),
        (["bytes", "string"], "AP8=", b"\x02\x08AP8="),
        (["bytes", "string"], {"bytes": "AP8="}, b"\x00\x04\x00\xff"),
        (logical("bytes", "decimal", precision=4, scale=2), Decimal("-1.28"), b"\x02\x80"),
        (logical("bytes", "decimal", precision=30, scale=0), 10**29, b"\x1a" + (10**29).to_bytes(13, "big")),
        (logical("int", "date"), "1970-01-02", b"\x02"),
        (logical("int", "time-millis"), "00:00:01", b"\xd0\x0f"),
        (logical("long", "timestamp-millis"), "1970-01-01T01:00:00.001+01:00", b"\x02"),
        (logical("long", "timestamp-micros"), "1970-01-01T00:00:00.000001Z", b"\x02"),
        (logical("long", "timestamp-nanos"), "1970-01-01T00:00:00.000000001Z", b"\x02"),
        (logical("long", "local-timestamp-millis"), "1970-01-01T00:00:00.001", b"\x02"),
        (logical("string", "uuid"), "00000000-0000-0000-0000-000000000001", b"H00000000-0000-0000-0000-000000000001"),
    ],
)
def test_json_form_is_encoded_as_avro(schema: Any, value: Any, payload: bytes) -> None:
    assert create_encoder(schema).encode_value(value) == payload


@pytest.mark.parametrize(
    ("schema", "value", "problem"),
    [
        ("int", 2**31, "2147483648 is out of range for int"),
        ("long", 2**63, "out of range for long"),
        ("int", True, "expected int, got True"),
        ("int", "1", "expected int, got '1'"),
        ("int", Decimal("1.5"), "expected int, got '1.5'"),
        ("int", Decimal("1e40"), "out of range for int"),
        ("int", Decimal("1e999999"), "expected int, got '1E+999999'"),
        ("double", 2**53 + 1, "out of range for double"),
        ("float", Decimal("1e39"), "out of range for float"),
        ("string", 1, "expected a string, got 1"),
        ("bytes", "?", "expected a Base64 string"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, "B", "expected one of A, got 'B'"),
        ({"type": "fixed", "name": "F", "size": 2}, "AA==", "expected 2 bytes, got 1"),
        (logical("bytes", "decimal", precision=4, scale=2), Decimal("1.005"), "without loss"),
        (logical("bytes", "decimal", precision=4, scale=2), 100, "out of range"),
        (logical("bytes", "decimal", precision=9999), Decimal("1" * 4001), "a number has 4001 digits"),
        (logical("bytes", "decimal", precision=4, scale=2), Decimal("1e999999"), "without loss"),
        (logical("long", "timestamp-millis"), "1970-01-01T00:00:00.0001Z", "without loss"),
        (logical("long", "timestamp-millis"), "1970-01-01T00:00:00", "expected a timestamp"),
        (logical("long", "local-timestamp-millis"), "1970-01-01T00:00:00Z", "expected a timestamp"),
        (["null", "int"], "x", "expected int"),
        (["string", "int"], [1], "expected one of string, int"),
        (record(("id", "int")), {}, "id: expected int, got None"),
        (record(("id", "int")), {"id": 1, "ID": 2}, "the schema has no field 'ID'"),
        (record(("items", {"type": "array", "items": "int"})), {"items": [1, "x"]}, "items[1]: expected int, got 'x'"),
    ],
)
def test_value_that_does_not_match_its_type_is_rejected(schema: Any, value: Any, problem: str) -> None:
    with pytest.raises(UnencodableValueError) as raised:
        create_encoder(schema).encode_value(value)
    assert problem in str(raised.value)


def test_missing_field_has_its_default() -> None:
    schema = record(("id", "int"))
    address = {"type": "record", "name": "Address", "fields": [{"name": "city", "type": "string", "default": "?"}]}
    schema["fields"] += [
        {"name": "data", "type": "bytes", "default": "\u00ff"},
        {"name": "address", "type": address, "default": {}},
        {"name": "other", "type": ["null", "Address"], "default": None},
    ]
    assert create_encoder(schema).encode_value({"id": 1}) == b"\x02\x02\xff\x02?\x00"


def test_recursive_type_is_encoded() -> None:
    schema = record(("id", "int"), ("next", ["null", "Order"]))
    assert create_encoder(schema).encode_value({"id": 1, "next": {"id": 2}}) == b"\x02\x02\x04\x00"


def test_type_of_reference_is_found() -> None:
    schema = record(("id", "int"), ("customer", "shop.Customer"))
    customer = {"type": "record", "name": "Customer", "namespace": "shop", "fields": [{"name": "n", "type": "string"}]}
    encoder = create_encoder(schema, ("shop.Customer", customer))
    assert encoder.encode_value({"id": 1, "customer": {"n": "a"}}) == b"\x02\x02a"


def test_invalid_schema_is_rejected() -> None:
    for schema in ("unknown", {"type": "record"}, {"type": "array"}):
        with pytest.raises(UnsupportedSchemaError):
            create_encoder(schema)


def test_column_has_the_payloads_of_its_json_forms() -> None:
    schema = record(
        ("id", "long"),
        ("name", ["null", "string"]),
        ("price", logical("bytes", "decimal", precision=9, scale=2)),
        ("day", logical("int", "date")),
        ("at", logical("long", "timestamp-micros")),
        ("tags", {"type": "map", "values": "int"}),
        ("data", "bytes"),
        ("any", ["null", "int", "string"]),
        ("next", ["null", "Order"]),
    )
    encoder = create_encoder(schema)
    arrow_type = pa.struct(
        [
            ("id", pa.int32()),
            ("name", pa.string()),
            ("price", pa.decimal128(9, 2)),
            ("day", pa.date32()),
            ("at", pa.timestamp("us", "UTC")),
            ("tags", pa.map_(pa.string(), pa.int32())),
            ("data", pa.binary()),
            ("any", pa.string()),
            ("next", pa.string()),
        ]
    )
    row = {
        "id": 1,
        "name": None,
        "price": Decimal("1.50"),
        "day": date(2026, 11, 19),
        "at": datetime(2026, 11, 19, tzinfo=UTC),
        "tags": [("a", 1)],
        "data": b"\x00",
        "any": '"text"',
        "next": None,
    }
    form = row | {"day": "2026-11-19", "at": "2026-11-19T00:00:00Z", "tags": {"a": 1}, "data": "AA==", "any": "text"}
    encoded = encoder.encode_column(pa.array([row, None], arrow_type))
    assert encoded == [encoder.encode_value(form), None]


DECIMAL = logical("bytes", "decimal", precision=20, scale=2)
FIXED_DECIMAL = {"type": "fixed", "name": "F", "size": 9, "logicalType": "decimal", "precision": 20, "scale": 2}
DECIMALS = [
    sign * (2 ** (8 * length - 1) + change) for length in range(1, 8) for change in (-1, 0, 1) for sign in (1, -1)
]


@pytest.mark.parametrize(
    ("schema", "data_type", "values"),
    [
        ("int", pa.int8(), [1, -1]),
        ("long", pa.int32(), [2**31 - 1, -64]),
        ("double", pa.float32(), [0.5, float("inf")]),
        ("string", pa.string(), ["", "é" * 100]),
        ("bytes", pa.binary(), [b"", b"\xff"]),
        ("boolean", pa.bool_(), [True, False]),
        (["int", "null"], pa.int32(), [1, None]),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, pa.string(), ["B", "A"]),
        ({"type": "fixed", "name": "F", "size": 2}, pa.binary(), [b"ab", b"\x00\xff"]),
        (DECIMAL, pa.decimal128(18, 2), [Decimal(number).scaleb(-2) for number in DECIMALS]),
        (DECIMAL, pa.decimal128(5, 2), [Decimal("-1.28"), Decimal("1.27"), Decimal("1.28")]),
        (FIXED_DECIMAL, pa.decimal128(18, 2), [Decimal(number).scaleb(-2) for number in DECIMALS]),
        (logical("int", "date"), pa.date32(), [date(1, 1, 1), date(9999, 12, 31)]),
        (logical("long", "timestamp-millis"), pa.timestamp("us", "UTC"), [-1000, 10**15]),
        (logical("long", "local-timestamp-micros"), pa.timestamp("us"), [-1, 1]),
        ({"type": "array", "items": ["null", "string"]}, pa.list_(pa.string()), [[], ["a", None] * 40]),
        ({"type": "map", "values": "long"}, pa.map_(pa.string(), pa.int64()), [[], [("a", 1), ("b", -(2**63))]]),
    ],
)
def test_long_column_is_encoded_like_single_values(schema: Any, data_type: pa.DataType, values: list[Any]) -> None:
    column = pa.array(values * 100, data_type)
    encoder = create_encoder(record(("a", schema)))
    structs = pa.StructArray.from_arrays([column], ["a"])
    one_by_one = [encoder.encode_column(structs.slice(index, 1))[0] for index in range(len(values))]
    assert encoder.encode_column(structs) == one_by_one * 100
    assert encoder.encode_column(structs[1:]) == (one_by_one * 100)[1:]


def test_long_column_with_null_rows_keeps_them() -> None:
    column = pa.array([{"id": 1}, None] * 100, pa.struct([("id", pa.int32())]))
    assert create_encoder(record(("id", "int"))).encode_column(column) == [b"\x02", None] * 100


@pytest.mark.parametrize(
    ("schema", "data_type", "value", "problem"),
    [
        ("int", pa.int32(), None, "expected int, got None"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, pa.string(), "B", "expected one of A, got 'B'"),
        (logical("long", "timestamp-millis"), pa.timestamp("us", "UTC"), 1, "without loss"),
        ({"type": "array", "items": "int"}, pa.list_(pa.int32()), [1, None], "[1]: expected int, got None"),
    ],
)
def test_error_in_long_column_names_its_row(schema: Any, data_type: pa.DataType, value: Any, problem: str) -> None:
    valid = {"int": 1, "enum": "A", "long": 0, "array": []}[schema if isinstance(schema, str) else schema["type"]]
    values = [{"a": valid}] * 40_000 + [{"a": value}]
    column = pa.array(values, pa.struct([("a", data_type)]))
    with pytest.raises(UnencodableValueError) as raised:
        create_encoder(record(("a", schema))).encode_column(column)
    assert str(raised.value).startswith("[40000].a")
    assert problem in str(raised.value)


def test_column_with_value_that_does_not_fit_is_rejected_with_its_index() -> None:
    encoder = create_encoder(record(("ratio", "float")))
    with pytest.raises(UnencodableValueError, match=r"\[1\]\.ratio: 0\.1 cannot be stored as float without loss"):
        encoder.encode_column(pa.array([{"ratio": 0.5}, {"ratio": 0.1}]))

"""The Protobuf encoder: JSON forms and Arrow columns to payloads, and values that do not match the schema."""

from __future__ import annotations

import json
import random
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from chronik.formats.codec import UndecodableValueError, UnsupportedSchemaError, ValueFormat, WriterSchema, encode_json
from chronik.formats.encoding import UnencodableValueError, create_encoder
from chronik.formats.protobuf.decoder import ProtobufDecoder
from chronik.formats.protobuf.encoder import ProtobufEncoder
from tests.formats.avro.random_values import get_forms
from tests.formats.protobuf.random_values import PayloadGenerator, SchemaGenerator, load_class, read_oracle, sort_keys
from tests.run_size import SEED, sized

SCHEMAS = sized(8, 1000)
PAYLOADS = 100


def write_schema(body: str, syntax: str = "proto3", imports: str = "") -> WriterSchema:
    lines = "".join(f'import "{path}";' for path in imports.split())
    return WriterSchema(ValueFormat.PROTOBUF, f'syntax = "{syntax}"; {lines} {body}')


def create_field_encoder(field: str, imports: str = "") -> ProtobufEncoder:
    return ProtobufEncoder(write_schema(f"message M {{ {field} }}", imports=imports))


def normalize(form: Any) -> Any:
    return sort_keys(json.loads(encode_json(form), parse_float=Decimal))


@pytest.mark.parametrize(
    ("field", "value", "payload"),
    [
        ("int32 f = 1;", -1, "08ffffffffffffffffff01"),
        ("int32 f = 1;", 0, ""),
        ("optional int32 f = 1;", 0, "0800"),
        ("int64 f = 1;", "-5", "08fbffffffffffffffff01"),
        ("uint64 f = 1;", Decimal(2**64 - 1), "08ffffffffffffffffff01"),
        ("sint32 f = 1;", -2, "0803"),
        ("sint64 f = 1;", -(2**63), "08ffffffffffffffffff01"),
        ("fixed32 f = 1;", 2**32 - 1, "0dffffffff"),
        ("sfixed64 f = 1;", -2, "09feffffffffffffff"),
        ("bool f = 1;", True, "0801"),
        ("double f = 1;", "NaN", "09000000000000f87f"),
        ("double f = 1;", -0.0, "090000000000000080"),
        ("float f = 1;", 0.1, "0dcdcccc3d"),
        ("string f = 1;", "é", "0a02c3a9"),
        ("bytes f = 1;", "/wA=", "0a02ff00"),
        ("repeated int32 f = 1;", [1, 0, 3], "0a03010003"),
        ("repeated int32 f = 1 [packed = false];", [1, 0], "08010800"),
        ("repeated string f = 1;", ["a", ""], "0a01610a00"),
        ("map<int64, bool> f = 1;", {"7": True}, "0a0408071001"),
        ("map<bool, string> f = 1;", {"true": ""}, "0a0408011200"),
    ],
)
def test_value_of_a_field_is_encoded(field: str, value: Any, payload: str) -> None:
    assert create_field_encoder(field).encode_value({"f": value}).hex() == payload


@pytest.mark.parametrize(
    ("name", "path", "value", "payload"),
    [
        ("google.protobuf.Timestamp", "protobuf/timestamp", "1970-01-01T00:00:10Z", "0a02080a"),
        (
            "google.protobuf.Timestamp",
            "protobuf/timestamp",
            "1969-12-31T23:59:59.999999999Z",
            "0a1108ffffffffffffffffff0110ff93ebdc03",
        ),
        ("google.protobuf.Timestamp", "protobuf/timestamp", {"seconds": 0, "nanos": -1}, "0a0b10ffffffffffffffffff01"),
        ("google.protobuf.Duration", "protobuf/duration", "-1.5s", "0a1608ffffffffffffffffff011080b6ca91feffffffff01"),
        ("google.protobuf.Duration", "protobuf/duration", {"seconds": 5}, "0a020805"),
        ("google.protobuf.Int32Value", "protobuf/wrappers", 0, "0a00"),
        ("google.protobuf.BytesValue", "protobuf/wrappers", "/w==", "0a030a01ff"),
        ("google.protobuf.Struct", "protobuf/struct", {"a": "x"}, "0a0a0a080a016112031a0178"),
        ("google.protobuf.Value", "protobuf/struct", [None, True], "0a0a32080a0208000a022001"),
        ("google.protobuf.Empty", "protobuf/empty", {}, "0a00"),
        ("google.type.Date", "type/date", "2026-11-19", "0a0708ea0f100b1813"),
        ("google.type.TimeOfDay", "type/timeofday", "08:30:00.000001", "0a070808101e20e807"),
    ],
)
def test_value_of_a_well_known_type_is_encoded(name: str, path: str, value: Any, payload: str) -> None:
    encoder = create_field_encoder(f"{name} f = 1;", f"google/{path}.proto")
    assert encoder.encode_value({"f": value}).hex() == payload


def test_decimal_is_encoded_with_the_scale_of_its_field() -> None:
    option = '[(confluent.field_meta) = { params: [{key: "precision", value: "5"}, {key: "scale", value: "2"}] }]'
    encoder = create_field_encoder(
        f"confluent.type.Decimal f = 1 {option};", "confluent/meta.proto confluent/type/decimal.proto"
    )
    assert encoder.encode_value({"f": Decimal("-1.2")}).hex() == "0a070a01881003" + "1802"
    with pytest.raises(UnencodableValueError, match=r"f: 1.234 cannot be stored as decimal\(5, 2\) without loss"):
        encoder.encode_value({"f": Decimal("1.234")})


@pytest.mark.parametrize(
    ("field", "value", "problem"),
    [
        ("int32 f = 1;", 2**31, "f: 2147483648 is out of range for int32"),
        ("uint32 f = 1;", -1, "f: -1 is out of range for uint32"),
        ("int32 f = 1;", 1.5, "f: expected int32, got 1.5"),
        ("int32 f = 1;", True, "f: expected int32, got True"),
        ("string f = 1;", 7, "f: expected a string, got 7"),
        ("string f = 1;", "\ud800", "f: the string contains a lone surrogate"),
        ("bytes f = 1;", "?", "f: expected a Base64 string"),
        ("float f = 1;", 16777217, "f: 16777217 cannot be stored as float without loss"),
        ("bool f = 1;", 1, "f: expected a boolean, got 1"),
        ("repeated int32 f = 1;", [1, None], r"f\[1\]: an element of a list is null"),
        ("repeated int32 f = 1;", 1, "f: expected a list, got 1"),
        ("map<int32, int32> f = 1;", {"x": 1}, "f.x: expected int32, got 'x'"),
        ("map<string, int32> f = 1;", {"x": None}, "f.x: a value of a map is null"),
        ("map<bool, int32> f = 1;", {"yes": 1}, "f.yes: expected true or false, got 'yes'"),
    ],
)
def test_value_that_does_not_match_its_field_is_an_error_with_its_path(field: str, value: Any, problem: str) -> None:
    with pytest.raises(UnencodableValueError, match=problem):
        create_field_encoder(field).encode_value({"f": value})


def test_enum_is_encoded_from_its_name_or_number() -> None:
    encoder = ProtobufEncoder(write_schema("enum E { A = 0; B = 5; } message M { E f = 1; }"), "M")
    assert encoder.encode_value({"f": "B"}) == encoder.encode_value({"f": 5}) == b"\x08\x05"
    assert encoder.encode_value({"f": 7}) == b"\x08\x07"
    with pytest.raises(UnencodableValueError, match="f: expected one of A, B, got 'C'"):
        encoder.encode_value({"f": "C"})


def test_unknown_number_of_a_proto2_enum_is_an_error() -> None:
    encoder = ProtobufEncoder(write_schema("enum E { A = 0; } message M { optional E f = 1; }", "proto2"))
    with pytest.raises(UnencodableValueError, match="f: expected one of A, got 7"):
        encoder.encode_value({"f": 7})


def test_oneof_with_two_values_is_an_error() -> None:
    encoder = create_field_encoder("oneof o { int32 a = 1; string b = 2; }")
    assert encoder.encode_value({"a": 0, "b": None}) == b"\x08\x00"
    with pytest.raises(UnencodableValueError, match="a and b exclude each other"):
        encoder.encode_value({"a": 0, "b": ""})


def test_missing_required_field_is_an_error() -> None:
    encoder = ProtobufEncoder(write_schema("message M { required int32 f = 1; }", "proto2"))
    with pytest.raises(UnencodableValueError, match="required field f is missing"):
        encoder.encode_value({})


def test_unknown_field_is_an_error_and_camel_case_is_accepted() -> None:
    encoder = create_field_encoder("int32 order_id = 1;")
    assert encoder.encode_value({"orderId": 7}) == encoder.encode_value({"order_id": 7}) == b"\x08\x07"
    with pytest.raises(UnencodableValueError, match="the message has no field 'order'"):
        encoder.encode_value({"order": 7})
    with pytest.raises(UnencodableValueError, match="the value has twice the field 'orderId'"):
        encoder.encode_value({"order_id": 7, "orderId": 7})


def test_groups_and_nested_messages_are_encoded() -> None:
    schema = write_schema(
        "message M { optional group G = 1 { optional int32 a = 1; } repeated N n = 2; "
        "message N { optional int32 b = 1; } }",
        "proto2",
    )
    assert ProtobufEncoder(schema).encode_value({"g": {"a": 7}, "n": [{"b": 1}, {}]}).hex() == "0b08070c120208011200"
    with pytest.raises(UnencodableValueError, match=r"n\[1\].b: expected int32, got 'x'"):
        ProtobufEncoder(schema).encode_value({"n": [{}, {"b": "x"}]})


@pytest.mark.parametrize(("depth", "is_valid"), [(100, True), (101, False)])
def test_nesting_depth_is_limited_to_that_of_decoders(depth: int, is_valid: bool) -> None:
    schema = write_schema("message M { M m = 1; }")
    value: Any = {}
    for _ in range(depth):
        value = {"m": value}
    if is_valid:
        assert ProtobufDecoder(schema).decode_value(ProtobufEncoder(schema).encode_value(value))
    else:
        with pytest.raises(UnencodableValueError, match="nested more than 100 levels deep"):
            ProtobufEncoder(schema).encode_value(value)


@pytest.mark.parametrize("message", ["p.A.B", (0, 0)])
def test_message_is_selected_by_name_or_indexes(message: Any) -> None:
    schema = write_schema("package p; message A { message B { int32 x = 1; } }")
    encoder = create_encoder(schema, message)
    assert encoder.message_indexes == (0, 0)
    assert encoder.encode_value({"x": 7}) == b"\x08\x07"


@pytest.mark.parametrize("message", ["p.A.C", "A", "p", (1,), (0, 0, 0)])
def test_unknown_message_is_unsupported(message: Any) -> None:
    with pytest.raises(UnsupportedSchemaError, match="no message type"):
        ProtobufEncoder(write_schema("package p; message A { message B { int32 x = 1; } }"), message)


def test_column_has_nulls_and_errors_with_their_index() -> None:
    encoder = create_field_encoder("uint32 f = 1;")
    column = pa.array([{"f": 1}, None, {"f": None}], pa.struct([("f", pa.int64())]))
    assert encoder.encode_column(column) == [b"\x08\x01", None, b""]
    with pytest.raises(UnencodableValueError, match=r"\[1\].f: -1 is out of range for uint32"):
        encoder.encode_column(pa.array([{"f": 1}, {"f": -1}]))


def test_json_text_that_is_not_json_is_an_error() -> None:
    encoder = ProtobufEncoder(write_schema("message M { M m = 1; }"))
    assert encoder.encode_column(pa.array([{"m": '{"m": {}}'}])) == [b"\x0a\x02\x0a\x00"]
    with pytest.raises(UnencodableValueError, match=r"\[0\].m: not valid JSON"):
        encoder.encode_column(pa.array([{"m": "{"}]))


def test_random_values_and_columns_are_encoded_to_equal_values() -> None:
    source = random.Random(SEED)
    for number in range(SCHEMAS):
        schema = WriterSchema(ValueFormat.PROTOBUF, SchemaGenerator(source).generate())
        message_class = load_class(schema.text)
        generator = PayloadGenerator(source, message_class, is_extreme=number % 2 == 0)
        decoder, encoder = ProtobufDecoder(schema), ProtobufEncoder(schema)
        payloads = []
        for payload in (generator.generate() for _ in range(PAYLOADS)):
            try:
                form = decoder.decode_value(payload)
            except UndecodableValueError:
                continue  # a required field is missing
            encoded = encoder.encode_value(form)
            assert normalize(decoder.decode_value(encoded)) == normalize(form), (schema.text, payload)
            assert normalize(read_oracle(message_class, encoded)) == normalize(form), (schema.text, payload)
            payloads.append(payload)
        column = decoder.decode_column(pa.array(payloads, pa.binary()))
        fitting = [index for index in range(len(payloads)) if index not in column.leftovers]
        encoded_column = encoder.encode_column(column.array.take(pa.array(fitting, pa.int64())))
        again = decoder.decode_column(pa.array(encoded_column, pa.binary()))
        forms, forms_again = (get_forms(each, decoder.arrow_field) for each in (column, again))
        assert [normalize(each) for each in forms_again] == [normalize(forms[index]) for index in fitting], schema.text

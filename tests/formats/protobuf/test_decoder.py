"""The Protobuf decoder: Arrow types, JSON forms, and payloads that do not match their schema."""

from __future__ import annotations

import base64
import json
import random
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from chronik.formats.codec import (
    DEFAULT_KEY,
    FORMAT_KEY,
    JSON_TEXT,
    NUMBER_KEY,
    DecodedColumn,
    ReferencedSchema,
    UndecodableValueError,
    UnsupportedSchemaError,
    ValueFormat,
    WriterSchema,
    encode_json,
)
from chronik.formats.protobuf.decoder import CHUNK_PAYLOADS, COLUMN_PAYLOADS_MIN, ProtobufDecoder
from chronik.formats.protobuf.descriptors import build_descriptor
from chronik.formats.protobuf.layout import COLUMNS_MAX
from chronik.formats.protobuf.names import NameIndex
from chronik.formats.protobuf.syntax import parse_file
from tests.formats.avro.random_values import get_forms
from tests.formats.protobuf.random_values import (
    AmbiguousPayloadError,
    PayloadGenerator,
    SchemaGenerator,
    load_class,
    read_oracle,
    sort_keys,
)
from tests.run_size import SEED, sized

SCHEMAS = sized(8, 5000)
"""Number of random schemas, each with 200 payloads: one million payloads in a long run."""

PAYLOADS = 200


def create_decoder(body: str, *indexes: int, syntax: str = "proto3", imports: str = "") -> ProtobufDecoder:
    text = f'syntax = "{syntax}"; {imports} {body}'
    return ProtobufDecoder(WriterSchema(ValueFormat.PROTOBUF, text), indexes)


def create_field_decoder(field: str, path: str = "") -> ProtobufDecoder:
    """Return a decoder of messages with one field, whose type is in a built-in file."""
    return create_decoder(f"message M {{ {field} }}", imports=f'import "{path}";' if path else "")


def decode_both(decoder: ProtobufDecoder, payload: bytes) -> tuple[Any, DecodedColumn]:
    """Decode a payload by itself, and in a column that is long enough to be decoded with NumPy."""
    count = COLUMN_PAYLOADS_MIN
    column = decoder.decode_column(pa.array([payload] * count, pa.binary()))
    form = decoder.decode_value(payload)
    assert [encode_json(each) for each in get_forms(column, decoder.arrow_field)] == [encode_json(form)] * count
    return form, column


def decode_or_fail(decoder: ProtobufDecoder, payload: bytes) -> tuple[Any, str | None]:
    """Return the JSON form of a payload, or the message of the error."""
    try:
        return decoder.decode_value(payload), None
    except UndecodableValueError as error:
        return None, str(error)


def unwrap(form: Any) -> Any:
    """Return a JSON form with objects in place of JSON text, and with sorted keys."""
    return sort_keys(json.loads(encode_json(form), parse_float=Decimal))


# Types


@pytest.mark.parametrize(
    ("field", "payload", "form", "arrow_type"),
    [
        ("int32 f = 1;", "08ffffffffffffffffff01", -1, pa.int32()),
        ("int64 f = 1;", "08ffffffffffffffffff01", -1, pa.int64()),
        ("uint32 f = 1;", "08ffffffff0f", 2**32 - 1, pa.int64()),
        ("uint64 f = 1;", "08ffffffffffffffffff01", Decimal(2**64 - 1), pa.decimal128(20, 0)),
        ("fixed64 f = 1;", "09ffffffffffffffff", Decimal(2**64 - 1), pa.decimal128(20, 0)),
        ("sint32 f = 1;", "0803", -2, pa.int32()),
        ("sint64 f = 1;", "0803", -2, pa.int64()),
        ("fixed32 f = 1;", "0dffffffff", 2**32 - 1, pa.int64()),
        ("sfixed32 f = 1;", "0dffffffff", -1, pa.int32()),
        ("sfixed64 f = 1;", "09feffffffffffffff", -2, pa.int64()),
        ("bool f = 1;", "0802", True, pa.bool_()),
        ("float f = 1;", "0dcdcccc3d", 0.1, pa.float32()),
        ("double f = 1;", "09000000000000f87f", "NaN", pa.float64()),
        ("string f = 1;", "0a02c3a9", "é", pa.string()),
        ("bytes f = 1;", "0a02ff00", "/wA=", pa.binary()),
        ("repeated int32 f = 1;", "0a03010203", [1, 2, 3], pa.list_(pa.int32())),
        ("repeated string f = 1;", "0a01610a0162", ["a", "b"], pa.list_(pa.string())),
        (
            "map<string, int32> f = 1;",
            "0a050a016110070a050a01621008",
            {"a": 7, "b": 8},
            pa.map_(pa.string(), pa.int32()),
        ),
        ("map<int64, bool> f = 1;", "0a0408071001", {"7": True}, pa.map_(pa.string(), pa.bool_())),
        (
            "map<bool, string> f = 1;",
            "0a0508011201610a00",
            {"true": "a", "false": ""},
            pa.map_(pa.string(), pa.string()),
        ),
        ("optional int32 f = 1;", "", None, pa.int32()),
        ("optional int32 f = 1;", "0800", 0, pa.int32()),
        ("int32 f = 1;", "", 0, pa.int32()),
        ("string f = 1;", "", "", pa.string()),
        ("repeated int32 f = 1;", "", [], pa.list_(pa.int32())),
    ],
)
def test_field_is_decoded_to_its_json_form_and_arrow_type(
    field: str, payload: str, form: Any, arrow_type: pa.DataType
) -> None:
    decoder = create_field_decoder(field)
    decoded, column = decode_both(decoder, bytes.fromhex(payload))
    assert decoded == {"f": form}
    assert decoder.arrow_field.type.field("f").type == arrow_type
    assert not column.leftovers


@pytest.mark.parametrize(
    ("name", "path", "payload", "form", "arrow_type"),
    [
        ("Timestamp", "timestamp", "0a02080a", "1970-01-01T00:00:10Z", pa.timestamp("us", "UTC")),
        ("Timestamp", "timestamp", "0a0410c0843d", "1970-01-01T00:00:00.001Z", pa.timestamp("us", "UTC")),
        ("Int32Value", "wrappers", "0a00", 0, pa.int32()),
        ("Int32Value", "wrappers", "", None, pa.int32()),
        ("UInt64Value", "wrappers", "0a020807", Decimal(7), pa.decimal128(20, 0)),
        ("StringValue", "wrappers", "0a030a0161", "a", pa.string()),
        ("Duration", "duration", "0a020805", {"seconds": 5, "nanos": 0}, None),
        ("FieldMask", "field_mask", "0a030a0161", {"paths": ["a"]}, None),
        ("Any", "any", "0a060a0161120162", {"type_url": "a", "value": "Yg=="}, None),
    ],
)
def test_well_known_type_is_decoded_to_its_json_form_and_arrow_type(
    name: str, path: str, payload: str, form: Any, arrow_type: pa.DataType | None
) -> None:
    decoder = create_field_decoder(f"google.protobuf.{name} f = 1;", f"google/protobuf/{path}.proto")
    decoded, _ = decode_both(decoder, bytes.fromhex(payload))
    assert decoded == {"f": form}
    found = decoder.arrow_field.type.field("f").type
    assert found == arrow_type if arrow_type is not None else pa.types.is_struct(found)


@pytest.mark.parametrize(
    ("name", "path", "payload", "text"),
    [
        ("Struct", "struct", "0a0a0a080a016112031a0178", '{"a":"x"}'),
        ("ListValue", "struct", "0a0b0a0911000000000000f83f", "[1.5]"),
        ("Value", "struct", "0a00", "null"),
        ("Empty", "empty", "0a00", "{}"),
    ],
)
def test_message_without_a_column_type_is_decoded_to_json_text(name: str, path: str, payload: str, text: str) -> None:
    decoder = create_field_decoder(f"google.protobuf.{name} f = 1;", f"google/protobuf/{path}.proto")
    form, column = decode_both(decoder, bytes.fromhex(payload))
    assert form == {"f": json.loads(text)}
    assert column.array[0]["f"].as_py() == text
    assert decoder.arrow_field.type.field("f").metadata[FORMAT_KEY] == JSON_TEXT


def test_date_and_time_of_day_are_decoded_to_a_date_and_text() -> None:
    body = "message M { google.type.Date day = 1; google.type.TimeOfDay time = 2; }"
    imports = 'import "google/type/date.proto"; import "google/type/timeofday.proto";'
    decoder = create_decoder(body, imports=imports)
    form, _ = decode_both(decoder, bytes.fromhex("0a0708ea0f100b18131207080810 1e20e807".replace(" ", "")))
    assert form == {"day": "2026-11-19", "time": "08:30:00.000001"}
    assert decoder.arrow_field.type.field("day").type == pa.date32()


def test_decimal_with_precision_and_scale_is_decoded_to_a_decimal() -> None:
    option = '[(confluent.field_meta) = { params: [{key: "precision", value: "5"}, {key: "scale", value: "2"}] }]'
    decoder = create_decoder(
        f"message M {{ confluent.type.Decimal f = 1 {option}; }}",
        imports='import "confluent/meta.proto"; import "confluent/type/decimal.proto";',
    )
    assert decoder.arrow_field.type.field("f").type == pa.decimal128(5, 2)
    form, _ = decode_both(decoder, bytes.fromhex("0a060a02ff851802"))
    assert form == {"f": Decimal("-1.23")}
    form, column = decode_both(decoder, bytes.fromhex("0a060a02ff851803"))
    assert form == {"f": {"value": "/4U=", "precision": 0, "scale": 3}}
    assert column.leftovers[0] == form


def test_enum_is_decoded_to_its_name_and_unknown_number_is_a_leftover() -> None:
    decoder = create_decoder("enum E { ZERO = 0; MINUS = -1; } message M { E f = 1; }")
    assert decode_both(decoder, b"")[0] == {"f": "ZERO"}
    assert decode_both(decoder, bytes.fromhex("08ffffffffffffffffff01"))[0] == {"f": "MINUS"}
    form, column = decode_both(decoder, b"\x08\x07")
    assert form == {"f": 7}
    assert column.array[0]["f"].as_py() is None
    assert column.leftovers[0] == {"f": 7}


def test_unknown_number_of_a_proto2_enum_is_an_unknown_field() -> None:
    decoder = create_decoder("enum E { ONE = 1; } message M { optional E f = 1; repeated E g = 2; }", syntax="proto2")
    form, column = decode_both(decoder, bytes.fromhex("080710011007"))
    assert form == {"f": None, "g": ["ONE"]}
    assert not column.leftovers


def test_proto2_defaults_are_the_values_of_absent_fields() -> None:
    decoder = create_decoder(
        'message M { optional int32 f = 1 [default = -5]; optional string g = 2 [default = "x"]; '
        "optional bool h = 3; }",
        syntax="proto2",
    )
    form, _ = decode_both(decoder, b"")
    assert form == {"f": -5, "g": "x", "h": None}
    fields = decoder.arrow_field.type
    assert [fields.field(name).metadata.get(DEFAULT_KEY) for name in "fgh"] == [b"-5", b'"x"', None]


def test_oneof_keeps_the_last_member() -> None:
    decoder = create_decoder("message M { oneof o { int32 f = 1; string g = 2; } }")
    assert decode_both(decoder, b"\x08\x00")[0] == {"f": 0, "g": None}
    assert decode_both(decoder, b"\x08\x07\x12\x01a")[0] == {"f": None, "g": "a"}
    assert decode_both(decoder, b"\x12\x01a\x08\x07")[0] == {"f": 7, "g": None}


def test_recursive_message_is_decoded_to_json_text() -> None:
    decoder = create_decoder("message Node { int32 v = 1; Node next = 2; }")
    payload = b"\x08\x01\x12\x06\x08\x02\x12\x02\x08\x03"
    form, column = decode_both(decoder, payload)
    assert unwrap(form) == {"v": 1, "next": {"v": 2, "next": {"v": 3, "next": None}}}
    assert json.loads(column.array[0]["next"].as_py()) == form["next"]


def test_nested_messages_and_groups_are_decoded_to_structs() -> None:
    decoder = create_decoder(
        "message M { optional group G = 1 { optional int32 a = 1; } optional N n = 2; repeated N ns = 3; "
        "message N { optional int32 b = 1; } }",
        syntax="proto2",
    )
    form, _ = decode_both(decoder, bytes.fromhex("0b08070c120208011a0208021a00"))
    assert form == {"g": {"a": 7}, "n": {"b": 1}, "ns": [{"b": 2}, {"b": None}]}


def test_fields_have_their_numbers_as_metadata() -> None:
    field = create_decoder("message M { int32 f = 7; N n = 9; } message N { int32 g = 5; }").arrow_field
    assert field.type.field("f").metadata[NUMBER_KEY] == b"7"
    assert field.type.field("n").type.field("g").metadata[NUMBER_KEY] == b"5"


# Wire format


@pytest.mark.parametrize(
    ("payload", "form"),
    [
        ("0801 0802", {"f": 2, "r": [], "n": None}),
        ("1001 12020203 1004", {"f": 0, "r": [1, 2, 3, 4], "n": None}),
        ("1a02 0801 1a02 1002", {"f": 0, "r": [], "n": {"a": 1, "b": 2}}),
        ("f87f01 f97f0000000000000000 fa7f0141 fd7f00000000 0805", {"f": 5, "r": [], "n": None}),
        ("fb7f 0801 fc7f 0805", {"f": 5, "r": [], "n": None}),
        ("0a0141 0805", {"f": 5, "r": [], "n": None}),
        ("08ffffffff1f", {"f": -1, "r": [], "n": None}),
        ("888080800003", {"f": 3, "r": [], "n": None}),
    ],
    ids=[
        "last-wins",
        "packed-and-not",
        "merged",
        "unknown",
        "unknown-group",
        "wrong-wire-type",
        "cut-to-32",
        "long-tag",
    ],
)
def test_unusual_but_valid_payload_is_decoded_as_by_google(payload: str, form: Any) -> None:
    decoder = create_decoder(
        "message M { int32 f = 1; repeated int32 r = 2; N n = 3; } message N { int32 a = 1; int32 b = 2; }"
    )
    assert decode_both(decoder, bytes.fromhex(payload))[0] == form


@pytest.mark.parametrize(
    "payload",
    [
        "08",
        "0880",
        "08ffffffffffffffffffff01",
        "00",
        "0f",
        "0c",
        "0b",
        "0b14",
        "0a05",
        "0aff",
        "8880808080800100",
        "0900",
    ],
)
def test_invalid_payload_is_an_error_in_both_paths(payload: str) -> None:
    decoder = create_decoder("message M { int32 f = 1; }")
    data = bytes.fromhex(payload)
    with pytest.raises(UndecodableValueError):
        decoder.decode_value(data)
    good = b"\x08\x01"
    column = decoder.decode_column(pa.array([good] * COLUMN_PAYLOADS_MIN + [data], pa.binary()))
    assert list(column.errors) == [COLUMN_PAYLOADS_MIN]
    assert column.array.null_count == 1
    assert column.array[0].as_py() == {"f": 1}


def test_string_that_is_not_utf8_is_an_error() -> None:
    decoder = create_field_decoder("string f = 1;")
    with pytest.raises(UndecodableValueError, match="field f is not valid UTF-8"):
        decoder.decode_value(b"\x0a\x01\xff")


def test_missing_required_field_is_an_error() -> None:
    body = "message M { optional N n = 1; } message N { required int32 f = 1; }"
    decoder = create_decoder(body, syntax="proto2")
    assert decode_both(decoder, b"\x0a\x02\x08\x00")[0] == {"n": {"f": 0}}
    column = decoder.decode_column(pa.array([b"\x0a\x00"] * COLUMN_PAYLOADS_MIN, pa.binary()))
    assert column.errors[0] == "required field f of N is missing"


@pytest.mark.parametrize(("depth", "is_valid"), [(100, True), (101, False)])
def test_nesting_depth_is_limited_as_by_google(depth: int, is_valid: bool) -> None:
    text = 'syntax = "proto3"; package p; message M { M m = 1; }'
    payload = b""
    for _ in range(depth):
        length = len(payload)
        prefix = bytes((length,)) if length < 128 else bytes((length & 127 | 128, length >> 7))
        payload = b"\x0a" + prefix + payload
    decoder = ProtobufDecoder(WriterSchema(ValueFormat.PROTOBUF, text))
    column = decoder.decode_column(pa.array([payload] * COLUMN_PAYLOADS_MIN, pa.binary()))
    assert (not column.errors) is is_valid
    assert (read_oracle(load_class(text), payload) is not None) is is_valid


def test_timestamps_beyond_microseconds_are_leftovers() -> None:
    decoder = create_field_decoder("google.protobuf.Timestamp f = 1;", "google/protobuf/timestamp.proto")
    form, column = decode_both(decoder, b"\x0a\x02\x10\x01")
    assert form == column.leftovers[0] == {"f": "1970-01-01T00:00:00.000000001Z"}
    assert column.array[0]["f"].as_py() is None
    form, column = decode_both(decoder, b"\x0a\x0b\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01")
    assert form == column.leftovers[0] == {"f": {"seconds": 0, "nanos": -1}}


def test_rows_with_errors_and_leftovers_keep_their_positions_across_chunks() -> None:
    decoder = create_decoder("enum E { ZERO = 0; } message M { E f = 1; int32 g = 2; }")
    count = CHUNK_PAYLOADS + 100
    payloads = [b"\x10" + bytes([index % 100]) for index in range(count)]
    payloads[7], payloads[count - 5] = b"\xff", b"\x08\x09"
    column = decoder.decode_column(pa.array(payloads, pa.binary()))
    assert list(column.errors) == [7]
    assert column.leftovers == {count - 5: {"f": 9}}
    values = column.array.field("g").to_pylist()
    assert values[8 : count - 5] == [index % 100 for index in range(8, count - 5)]


def test_empty_messages_with_many_fields_are_limited_in_both_paths() -> None:
    fields = " ".join(f"int32 f{number} = {number};" for number in range(1, 1001))
    decoder = create_decoder(
        f"message M {{ repeated N n = 1; R r = 2; }} message N {{ {fields} }} message R {{ R r = 1; N n = 2; }}"
    )
    for payload, is_valid in (
        (b"\x0a\x00" * 999, True),
        (b"\x0a\x00" * 1000, False),
        (b"\x12\x06\x0a\x02\x12\x00\x12\x00", True),
    ):
        column = decoder.decode_column(pa.array([b""] * 100 + [payload], pa.binary()))
        assert decode_or_fail(decoder, payload)[1] == column.errors.get(100)
        assert (100 not in column.errors) is is_valid


def test_chunk_with_too_many_fields_is_split(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chronik.formats.protobuf.columns.CELLS_MAX", 1000)
    decoder = create_decoder("message M { repeated N n = 1; } message N { int32 a = 1; }")
    payloads = [b"\x0a\x02\x08" + bytes([index % 100]) for index in range(5000)]
    column = decoder.decode_column(pa.array(payloads, pa.binary()))
    assert column.array.to_pylist() == [{"n": [{"a": index % 100}]} for index in range(5000)]


@pytest.mark.parametrize("count", [1, 20, 60])
def test_long_packed_lists_are_decoded_with_their_order(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chronik.formats.protobuf.columns.PACKED_BYTES_MAX", 50_000)
    decoder = create_field_decoder("repeated int32 f = 1;")
    payload = b"\x0a\xa0\x9c\x01" + b"".join(bytes((index % 128,)) for index in range(20_000))
    column = decoder.decode_column(pa.array([payload] * count, pa.binary()))
    assert column.array.field("f").to_pylist() == [[index % 128 for index in range(20_000)]] * count


def test_empty_column_has_the_arrow_type() -> None:
    decoder = create_field_decoder("int32 f = 1;")
    assert decoder.decode_column(pa.array([], pa.binary())).array.type == decoder.arrow_field.type


def test_sliced_column_is_decoded_from_its_offset() -> None:
    decoder = create_field_decoder("int32 f = 1;")
    payloads = pa.array([b"\x08" + bytes([index]) for index in range(100)], pa.binary()).slice(40)
    assert decoder.decode_column(payloads).array.field("f").to_pylist() == list(range(40, 100))


# Schemas


def test_message_indexes_select_a_nested_message() -> None:
    body = "enum E { Z = 0; } message A { enum F { Y = 0; } message B { int32 x = 1; } message C { int32 y = 1; } }"
    assert create_decoder(body, 0, 1).decode_value(b"\x08\x07") == {"y": 7}
    with pytest.raises(UnsupportedSchemaError, match=r"no message type with the path \(0, 2\)"):
        create_decoder(body, 0, 2)


def test_serialized_descriptor_is_accepted_as_schema() -> None:
    file = parse_file('syntax = "proto3"; message M { map<string, N> f = 1; message N { int32 x = 1; } }')
    text = base64.b64encode(build_descriptor(file, NameIndex(file, {}), "test.proto")).decode()
    decoder = ProtobufDecoder(WriterSchema(ValueFormat.PROTOBUF, text))
    assert decode_both(decoder, bytes.fromhex("0a070a016112020805"))[0] == {"f": {"a": {"x": 5}}}


def test_imported_types_are_found_in_references() -> None:
    references = (
        ReferencedSchema("c.proto", 'syntax = "proto3"; package c; message C { int32 x = 1; }'),
        ReferencedSchema("b.proto", 'syntax = "proto3"; package b; import "c.proto"; message B { c.C c = 1; }'),
    )
    text = 'syntax = "proto3"; import "b.proto"; message M { b.B b = 1; }'
    decoder = ProtobufDecoder(WriterSchema(ValueFormat.PROTOBUF, text, references))
    assert decode_both(decoder, bytes.fromhex("0a040a020805"))[0] == {"b": {"c": {"x": 5}}}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("no schema", "unexpected label"),
        ('syntax = "proto3"; message M { Unknown f = 1; }', "Could not resolve type: Unknown"),
        ('syntax = "proto3"; enum E {} message M { E f = 1; }', "enum E has no values"),
        ('syntax = "proto3"; enum E { A = 0; }', "no message type"),
        ('edition = "2023"; message M {}', "edition"),
    ],
)
def test_invalid_schema_is_unsupported(text: str, problem: str) -> None:
    with pytest.raises(UnsupportedSchemaError, match=problem):
        ProtobufDecoder(WriterSchema(ValueFormat.PROTOBUF, text))


def test_schema_with_too_many_columns_has_values_but_no_arrow_type() -> None:
    levels = [f"message L{n} {{ L{n + 1} a = 1; L{n + 1} b = 2; }}" for n in range(20)]
    decoder = create_decoder(" ".join([*levels, "message L20 { int32 x = 1; }"]))
    assert decoder.decode_value(b"")["a"] is None
    with pytest.raises(UnsupportedSchemaError, match=f"more than {COLUMNS_MAX} columns"):
        _ = decoder.arrow_field


def test_high_field_numbers_need_no_memory() -> None:
    assert decode_both(create_field_decoder("int32 f = 536870911;"), bytes.fromhex("f8ffffff0f07"))[0] == {"f": 7}


# The oracle


@pytest.mark.parametrize("is_mutated", [False, True], ids=["valid", "mutated"])
def test_random_payloads_are_decoded_as_by_google(is_mutated: bool) -> None:
    source = random.Random(f"{SEED} {is_mutated}")
    for number in range(SCHEMAS if not is_mutated else SCHEMAS // 2):
        text = SchemaGenerator(source).generate()
        message_class = load_class(text)
        decoder = ProtobufDecoder(WriterSchema(ValueFormat.PROTOBUF, text))
        generator = PayloadGenerator(source, message_class, is_extreme=number % 2 == 0)
        payloads = [generator.generate() for _ in range(PAYLOADS)]
        if is_mutated:
            payloads = [generator.mutate(each) if source.random() < 0.3 else each for each in payloads]
        column = decoder.decode_column(pa.array(payloads, pa.binary()))
        for index, (payload, form) in enumerate(zip(payloads, get_forms(column, decoder.arrow_field), strict=True)):
            try:
                expected = read_oracle(message_class, payload)
            except AmbiguousPayloadError:
                continue
            value, error = decode_or_fail(decoder, payload)
            assert column.errors.get(index) == error, (text, payload)
            if error is None:
                assert encode_json(sort_keys(value)) == encode_json(sort_keys(expected)), (text, payload)
                assert encode_json(form) == encode_json(value), (text, payload)
            else:
                # Google's parser of proto2 accepts strings that are not UTF-8.
                assert expected is None or "UTF-8" in error, (text, payload)


def test_random_bytes_are_decoded_or_rejected_without_other_errors() -> None:
    source = random.Random(SEED)
    decoder = ProtobufDecoder(WriterSchema(ValueFormat.PROTOBUF, SchemaGenerator(source).generate()))
    payloads = [source.randbytes(source.randrange(30)) for _ in range(sized(2000, 200_000))]
    column = decoder.decode_column(pa.array(payloads, pa.binary()))
    assert len(column.array) == len(payloads)
    assert column.array.null_count == len(column.errors) > 0

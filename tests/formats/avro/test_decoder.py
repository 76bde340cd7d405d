"""The Avro decoder: Arrow types, JSON forms, and payloads that do not match their schema."""

from __future__ import annotations

import json
import random
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from chronik.formats.avro.columns import COLUMNS_MAX
from chronik.formats.avro.decoder import CHUNK_PAYLOADS, COLUMN_PAYLOADS_MIN, AvroDecoder
from chronik.formats.avro.encoder import AvroEncoder
from chronik.formats.avro.values import DECIMAL_BYTES_MAX, EMPTY_VALUES_MAX, RECORD_DEPTH_MAX
from chronik.formats.codec import (
    ALIASES_KEY,
    DEFAULT_KEY,
    FORMAT_KEY,
    ReferencedSchema,
    UndecodableValueError,
    UnsupportedSchemaError,
    ValueFormat,
    WriterSchema,
    encode_json,
)
from tests.formats.avro.random_values import FastavroReader, PayloadGenerator, SchemaGenerator, get_forms
from tests.run_size import SEED, sized

SCHEMAS = sized(25, 5000)
"""Number of random schemas, each with 200 payloads."""

PAYLOADS = 200


def write_schema(schema: Any, *references: Any) -> WriterSchema:
    resolved = tuple(ReferencedSchema(each["name"], json.dumps(each)) for each in references)
    return WriterSchema(ValueFormat.AVRO, json.dumps(schema), resolved)


def create_decoder(schema: Any, *references: Any) -> AvroDecoder:
    return AvroDecoder(write_schema(schema, *references))


def record(*fields: tuple[str, Any], name: str = "Order") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": key, "type": kind} for key, kind in fields]}


def logical(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **more}


def fixed(size: int, **more: Any) -> dict[str, Any]:
    return {"type": "fixed", "name": "F", "size": size, **more}


ENUM = {"type": "enum", "name": "E", "symbols": ["A", "B"]}
NANOSECOND = b"\x02"
TYPES = [
    ("boolean", b"\x01", pa.bool_(), True, True),
    ("int", b"\x01", pa.int32(), -1, -1),
    ("long", b"\xff" * 9 + b"\x01", pa.int64(), -(2**63), -(2**63)),
    ("long", b"\xfe" + b"\xff" * 8 + b"\x01", pa.int64(), 2**63 - 1, 2**63 - 1),
    ("float", b"\xcd\xcc\xcc\x3d", pa.float32(), 0.10000000149011612, 0.1),
    ("double", b"\x00\x00\x00\x00\x00\x00\xf0\xff", pa.float64(), float("-inf"), "-Infinity"),
    ("bytes", b"\x04\x00\xff", pa.binary(), b"\x00\xff", "AP8="),
    ("string", b"\x04\xc3\xa9", pa.string(), "é", "é"),
    ("null", b"", pa.string(), None, None),
    (ENUM, b"\x02", pa.string(), "B", "B"),
    (fixed(2), b"\x00\xff", pa.binary(), b"\x00\xff", "AP8="),
    ({"type": "array", "items": "int"}, b"\x04\x02\x04\x00", pa.list_(pa.int32()), [1, 2], [1, 2]),
    ({"type": "array", "items": "int"}, b"\x01\x02\x02\x02\x04\x00", pa.list_(pa.int32()), [1, 2], [1, 2]),
    ({"type": "map", "values": "int"}, b"\x02\x02a\x02\x00", pa.map_(pa.string(), pa.int32()), [("a", 1)], {"a": 1}),
    (
        {"type": "map", "values": "int"},
        b"\x04\x02a\x02\x02a\x04\x00",
        pa.map_(pa.string(), pa.int32()),
        [("a", 2)],
        {"a": 2},
    ),
    (["null", "int"], b"\x00", pa.int32(), None, None),
    (["int", "null"], b"\x00\x02", pa.int32(), 1, 1),
    (["int"], b"\x00\x02", pa.int32(), 1, 1),
    (["null", "int", "string"], b"\x04\x02a", pa.string(), '"a"', "a"),
    (["null", "int", "string"], b"\x00", pa.string(), None, None),
    (["int", "double"], b"\x00\x02", pa.string(), "1", 1),
    (["bytes", "string"], b"\x00\x02\x00", pa.string(), '{"bytes":"AA=="}', {"bytes": "AA=="}),
    (["string", "double"], b"\x02\x00\x00\x00\x00\x00\x00\xf8\x7f", pa.string(), '{"double":"NaN"}', {"double": "NaN"}),
    (record(("id", "int")), b"\x02", pa.struct([("id", pa.int32())]), {"id": 1}, {"id": 1}),
    (record(), b"", pa.string(), "{}", {}),
    (
        logical("bytes", "decimal", precision=4, scale=2),
        b"\x02\x80",
        pa.decimal128(4, 2),
        Decimal("-1.28"),
        Decimal("-1.28"),
    ),
    (logical("bytes", "decimal", precision=4, scale=2), b"\x00", pa.decimal128(4, 2), Decimal("0.00"), Decimal("0.00")),
    (
        logical("bytes", "decimal", precision=38, scale=1),
        b"\x20" + (1 - 10**38).to_bytes(16, "big", signed=True),
        pa.decimal128(38, 1),
        Decimal(f"-{'9' * 37}.9"),
        Decimal(f"-{'9' * 37}.9"),
    ),
    (logical("bytes", "decimal", precision=39), b"\x02\x07", pa.string(), "7", Decimal(7)),
    (
        fixed(3, logicalType="decimal", precision=5, scale=1),
        b"\xff\xff\xfe",
        pa.decimal128(5, 1),
        Decimal("-0.2"),
        Decimal("-0.2"),
    ),
    (logical("int", "date"), b"\x02", pa.date32(), date(1970, 1, 2), "1970-01-02"),
    (logical("int", "time-millis"), b"\xd0\x0f", pa.string(), "00:00:01", "00:00:01"),
    (logical("long", "time-micros"), b"\x02", pa.string(), "00:00:00.000001", "00:00:00.000001"),
    (
        logical("long", "timestamp-millis"),
        b"\x01",
        pa.timestamp("us", "UTC"),
        datetime(1969, 12, 31, 23, 59, 59, 999000, UTC),
        "1969-12-31T23:59:59.999Z",
    ),
    (
        logical("long", "local-timestamp-micros"),
        b"\x02",
        pa.timestamp("us"),
        datetime(1970, 1, 1, 0, 0, 0, 1),
        "1970-01-01T00:00:00.000001",
    ),
    (logical("long", "timestamp-nanos"), NANOSECOND, pa.string(), *["1970-01-01T00:00:00.000000001Z"] * 2),
    (logical("long", "local-timestamp-nanos"), NANOSECOND, pa.string(), *["1970-01-01T00:00:00.000000001"] * 2),
    (logical("string", "uuid"), b"\x02a", pa.string(), "a", "a"),
    (fixed(16, logicalType="uuid"), bytes(15) + b"\x0a", pa.string(), *["00000000-0000-0000-0000-00000000000a"] * 2),
    (
        fixed(12, logicalType="duration"),
        b"\x01\x00\x00\x00\x02\x00\x00\x00\xff\xff\xff\xff",
        pa.struct([("months", pa.int64()), ("days", pa.int64()), ("milliseconds", pa.int64())]),
        *[{"months": 1, "days": 2, "milliseconds": 2**32 - 1}] * 2,
    ),
    (logical("int", "unknown"), b"\x02", pa.int32(), 1, 1),
]


@pytest.mark.parametrize("count", [1, COLUMN_PAYLOADS_MIN])
@pytest.mark.parametrize(("schema", "payload", "arrow_type", "element", "form"), TYPES)
def test_type_is_decoded_to_arrow_and_json(
    schema: Any, payload: bytes, arrow_type: pa.DataType, element: Any, form: Any, count: int
) -> None:
    decoder = create_decoder(schema)
    assert decoder.arrow_field.type == arrow_type
    decoded = decoder.decode_column(pa.array([payload] * count, pa.binary()))
    assert decoded.array.type == arrow_type
    assert decoded.array.to_pylist() == [element] * count
    assert not decoded.errors
    assert not decoded.leftovers
    assert decoder.decode_value(payload) == form


@pytest.mark.parametrize("count", [1, COLUMN_PAYLOADS_MIN])
@pytest.mark.parametrize(
    ("schema", "payload", "error"),
    [
        ("int", b"", "the payload ends within a number"),
        ("int", b"\x80", "the payload ends within a number"),
        ("int", b"\x80\x80\x80\x80\x10", "2147483648 is out of range for int"),
        ("long", b"\x80" * 9 + b"\x02", "a number exceeds 64 bits"),
        ("long", b"\x80" * 10 + b"\x01", "a number exceeds 64 bits"),
        ("int", b"\x02\x00", "1 bytes follow the value"),
        ("boolean", b"\x02", "2 is not a boolean"),
        ("double", b"\x00" * 7, "the payload ends within a value: expected 8 bytes, got 7"),
        ("string", b"\x06ab", "the payload ends within a value: expected 3 bytes, got 2"),
        ("bytes", b"\x01", "-1 is not a length"),
        ("string", b"\x02\xff", "a string is not valid UTF-8: invalid start byte"),
        (ENUM, b"\x04", "the enum has no symbol 2"),
        (fixed(2), b"a", "the payload ends within a value: expected 2 bytes, got 1"),
        (["null", "int"], b"\x04", "the union has no branch 2"),
        (["int", "string"], b"\x01", "the union has no branch -1"),
        (record(("id", "int"), ("name", "string")), b"\x02\x04a", "name: the payload ends within a value"),
        (
            record(("ids", {"type": "array", "items": "int"})),
            b"\x04\x02\x80",
            "ids[1]: the payload ends within a number",
        ),
        ({"type": "array", "items": "int"}, b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01", "is longer than the payload"),
        (
            {"type": "array", "items": "int"},
            b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x00",
            "is longer than the payload",
        ),
        ({"type": "array", "items": "null"}, b"\xfe\xff\x07\x00", "is longer than the payload"),
        (
            logical("bytes", "decimal", precision=99999),
            b"\x82\x40" + bytes(4097),
            f"expected at most {DECIMAL_BYTES_MAX}",
        ),
    ],
)
def test_payload_that_does_not_match_its_schema_is_an_error(
    schema: Any, payload: bytes, error: str, count: int
) -> None:
    decoder = create_decoder(schema)
    with pytest.raises(UndecodableValueError) as raised:
        decoder.decode_value(payload)
    assert error in str(raised.value)
    decoded = decoder.decode_column(pa.array([payload] * count, pa.binary()))
    assert decoded.errors == dict.fromkeys(range(count), str(raised.value))
    assert decoded.array.null_count == count


def test_payload_with_error_does_not_affect_others() -> None:
    decoder = create_decoder(record(("id", "long"), ("name", "string")))
    payloads = [b"\x02\x02a", b"\x02\x7f", b"", b"\x04\x02\xff", b"\x06\x00"] * COLUMN_PAYLOADS_MIN
    decoded = decoder.decode_column(pa.array(payloads, pa.binary()))
    assert decoded.array.to_pylist()[:5] == [{"id": 1, "name": "a"}, None, None, None, {"id": 3, "name": ""}]
    assert sorted(decoded.errors) == [index for index in range(len(payloads)) if index % 5 in (1, 2, 3)]


@pytest.mark.parametrize("count", [1, COLUMN_PAYLOADS_MIN])
@pytest.mark.parametrize(
    ("schema", "payload", "element", "leftover"),
    [
        (logical("int", "date"), b"\xff\xff\xff\xff\x0f", None, -(2**31)),
        (logical("int", "time-millis"), b"\x01", None, -1),
        (logical("long", "timestamp-millis"), b"\xfe" + b"\xff" * 8 + b"\x01", None, 2**63 - 1),
        (logical("bytes", "decimal", precision=2, scale=1), b"\x04\x00\x64", None, Decimal("10.0")),
        (logical("bytes", "decimal", precision=2), b"\x24" + b"\x01" * 18, None, Decimal(int("01" * 18, 16))),
        (
            record(("id", "int"), ("times", {"type": "array", "items": logical("int", "time-millis")})),
            b"\x02\x04\x00\x01\x00",
            {"id": 1, "times": None},
            {"times": ["00:00:00", -1]},
        ),
        (
            {"type": "map", "values": record(("id", "int"), ("time", ["null", logical("int", "time-millis")]))},
            b"\x04\x02a\x02\x00\x02b\x04\x02\x01\x00",
            [("a", {"id": 1, "time": None}), ("b", {"id": 2, "time": None})],
            {"b": {"time": -1}},
        ),
    ],
)
def test_value_that_its_column_cannot_store_is_a_leftover(
    schema: Any, payload: bytes, element: Any, leftover: Any, count: int
) -> None:
    decoded = create_decoder(schema).decode_column(pa.array([payload] * count, pa.binary()))
    assert decoded.array.to_pylist() == [element] * count
    assert decoded.leftovers == dict.fromkeys(range(count), leftover)
    assert not decoded.errors


def test_field_metadata_contains_aliases_and_defaults() -> None:
    address = record(("city", "string"), ("zip", ["null", "int"]), name="Address")
    address["fields"][0]["default"] = "?"
    schema = record(
        ("id", "int"),
        ("address", address),
        ("data", "bytes"),
        ("day", logical("int", "date")),
        ("any", ["null", "int"]),
    )
    fields = schema["fields"]
    fields[0]["aliases"] = ["number", "key"]
    fields[1]["default"] = {"city": "Bern", "zip": None}
    fields[2]["default"] = "\u00ff"
    fields[3]["default"] = 1
    fields[4]["default"] = None
    metadata = {field.name: dict(field.metadata or {}) for field in create_decoder(schema).arrow_field.type}
    assert metadata == {
        "id": {ALIASES_KEY: b'["number", "key"]'},
        "address": {DEFAULT_KEY: b'{"city":"Bern","zip":null}'},
        "data": {DEFAULT_KEY: b'"/w=="'},
        "day": {DEFAULT_KEY: b'"1970-01-02"'},
        "any": {DEFAULT_KEY: b"null"},
    }


def test_invalid_default_is_ignored() -> None:
    schema = record(("id", "int"), ("kind", ENUM))
    schema["fields"][0]["default"] = "x"
    schema["fields"][1]["default"] = "C"
    assert [field.metadata for field in create_decoder(schema).arrow_field.type] == [None, None]


def test_recursive_field_is_json_text() -> None:
    schema = record(("day", logical("int", "date")), ("next", ["null", "Order"]))
    decoder = create_decoder(schema)
    assert decoder.arrow_field.type == pa.struct([("day", pa.date32()), ("next", pa.string())])
    assert decoder.arrow_field.type.field("next").metadata == {FORMAT_KEY: b"json"}
    payload = b"\x02\x02\x04\x02\x06\x00"
    decoded = decoder.decode_column(pa.array([payload], pa.binary()))
    text = '{"day":"1970-01-03","next":{"day":"1970-01-04","next":null}}'
    assert decoded.array.to_pylist() == [{"day": date(1970, 1, 2), "next": text}]


def test_type_of_reference_is_found() -> None:
    customer = record(("name", "string"), name="Customer") | {"namespace": "shop"}
    decoder = create_decoder(record(("id", "int"), ("customer", "shop.Customer")), customer)
    assert decoder.decode_value(b"\x02\x02a") == {"id": 1, "customer": {"name": "a"}}


def test_type_that_is_used_before_its_definition_is_found() -> None:
    schema = record(("first", ["null", "Item"]), ("second", ["null", record(("id", "int"), name="Item")]))
    assert create_decoder(schema).decode_value(b"\x02\x02\x02\x04") == {"first": {"id": 1}, "second": {"id": 2}}


def test_values_nested_too_deeply_are_errors() -> None:
    decoder = create_decoder(record(("next", ["null", "Order"])))
    decoder.decode_value(b"\x02" * (RECORD_DEPTH_MAX - 1) + b"\x00")
    with pytest.raises(UndecodableValueError, match=f"nested more than {RECORD_DEPTH_MAX} levels"):
        decoder.decode_value(b"\x02" * RECORD_DEPTH_MAX + b"\x00")


def test_values_without_bytes_are_limited() -> None:
    decoder = create_decoder({"type": "array", "items": record()})
    blocks = b"\xa0\x1f" * (EMPTY_VALUES_MAX // 2000)  # of 2,000 items each
    assert len(decoder.decode_value(blocks + b"\x00")) == EMPTY_VALUES_MAX
    with pytest.raises(UndecodableValueError, match=f"more than {EMPTY_VALUES_MAX} values without content"):
        decoder.decode_value(blocks + b"\x02\x00")


def test_schema_with_too_many_columns_is_not_supported() -> None:
    definition: Any = record(("id", "int"), name="R0")
    for level in range(1, 15):  # each level doubles the number of columns
        definition = record(("a", definition), ("b", f"R{level - 1}"), name=f"R{level}")
    with pytest.raises(UnsupportedSchemaError, match=f"expected at most {COLUMNS_MAX}"):
        _ = create_decoder(definition).arrow_field


def test_schema_nested_too_deeply_by_names_is_not_supported() -> None:
    references = [record(("x", f"R{level - 1}" if level else "int"), name=f"R{level}") for level in range(200)]
    with pytest.raises(UnsupportedSchemaError, match="levels deep"):
        create_decoder(references[-1], *references[:-1])


@pytest.mark.parametrize("text", ["", "{", '"unknown"', '{"type": "record"}'])
def test_invalid_schema_is_not_supported(text: str) -> None:
    with pytest.raises(UnsupportedSchemaError):
        AvroDecoder(WriterSchema(ValueFormat.AVRO, text))


def test_empty_and_sliced_arrays_are_decoded() -> None:
    decoder = create_decoder(record(("name", "string")))
    assert decoder.decode_column(pa.array([], pa.binary())).array.type == decoder.arrow_field.type
    payloads = pa.array([bytes([2, 97 + index % 26]) for index in range(3 * COLUMN_PAYLOADS_MIN)], pa.binary())
    for array in (payloads[7:], payloads[7:-9], payloads.cast(pa.large_binary())[7:-9]):
        expected = [{"name": each.as_py()[1:].decode()} for each in array]
        assert decoder.decode_column(array).array.to_pylist() == expected


def test_chunks_are_joined() -> None:
    decoder = create_decoder(record(("id", "int")))
    payloads = [b"\x02"] * CHUNK_PAYLOADS + [b"\x80"] + [b"\x04"] * COLUMN_PAYLOADS_MIN
    decoded = decoder.decode_column(pa.array(payloads, pa.binary()))
    assert len(decoded.array) == len(payloads)
    assert list(decoded.errors) == [CHUNK_PAYLOADS]
    assert decoded.array[-1].as_py() == {"id": 2}


def damage(payload: bytes, source: random.Random) -> bytes:
    """Return a payload with a changed byte, a missing end or an additional byte."""
    match source.randrange(3):
        case 0 if payload:
            index = source.randrange(len(payload))
            return payload[:index] + source.randbytes(1) + payload[index + 1 :]
        case 1:
            return payload[: source.randrange(len(payload) + 1)]
        case _:
            return payload + b"\0"


def try_decode(decoder: AvroDecoder, payload: bytes) -> tuple[Any, str | None]:
    """Return the JSON form of a payload, or the error."""
    try:
        return decoder.decode_value(payload), None
    except UndecodableValueError as error:
        return None, str(error)


def test_columns_and_values_of_random_schemas_are_equal() -> None:
    source = random.Random(SEED)
    errors = leftovers = 0
    for _ in range(SCHEMAS):
        schema = SchemaGenerator(source).record()
        generator = PayloadGenerator(source, schema)
        payloads = [generator.generate() for _ in range(PAYLOADS)]
        payloads[::9] = [damage(payload, source) for payload in payloads[::9]]
        decoder = create_decoder(schema)
        decoded = decoder.decode_column(pa.array(payloads, pa.binary()))
        decoded.array.validate(full=True)
        for index, (payload, form) in enumerate(zip(payloads, get_forms(decoded, decoder.arrow_field), strict=True)):
            value, error = try_decode(decoder, payload)
            assert decoded.errors.get(index) == error, (schema, payload)
            assert encode_json(form) == encode_json(value), (schema, payload)
        errors += len(decoded.errors)
        leftovers += len(decoded.leftovers)
    assert errors > SCHEMAS
    assert leftovers > SCHEMAS


def test_values_of_random_schemas_match_fastavro() -> None:
    source = random.Random(SEED)
    for _ in range(SCHEMAS):
        schema = SchemaGenerator(source).record()
        generator = PayloadGenerator(source, schema, is_extreme=False)
        decoder = create_decoder(schema)
        oracle = FastavroReader(schema)
        payloads = [generator.generate() for _ in range(PAYLOADS)]
        decoded = decoder.decode_column(pa.array(payloads, pa.binary()))
        assert not decoded.errors
        forms = get_forms(decoded, decoder.arrow_field)
        for payload, form in zip(payloads, forms, strict=True):
            value = decoder.decode_value(payload)
            assert oracle.matches(payload, value), (schema, payload, value)
            assert encode_json(form) == encode_json(value)


def test_columns_of_random_schemas_are_encoded_to_equal_values() -> None:
    source = random.Random(SEED)
    in_bulk = 0
    for _ in range(SCHEMAS):
        schema = SchemaGenerator(source).record()
        generator = PayloadGenerator(source, schema, is_extreme=False)
        decoder = create_decoder(schema)
        payloads = pa.array([generator.generate() for _ in range(40)], pa.binary())
        column = decoder.decode_column(payloads)
        encoder = AvroEncoder(write_schema(schema))
        encoded = encoder.encode_column(column.array)
        one_by_one = [encoder.encode_column(column.array.slice(index, 1))[0] for index in range(40)]
        assert encoded == one_by_one, schema
        in_bulk += None not in encoder._write_columns.values()
        again = decoder.decode_column(pa.array(encoded, pa.binary()))
        forms, forms_again = (get_forms(each, decoder.arrow_field) for each in (column, again))
        assert list(map(parse_numbers, forms_again)) == list(map(parse_numbers, forms)), schema
    assert in_bulk


def parse_numbers(form: Any) -> Any:
    """Return a JSON form with decimals, so that 1.0 and 1.00 are equal: a union may have several types of numbers."""
    return json.loads(encode_json(form), parse_int=Decimal, parse_float=Decimal)

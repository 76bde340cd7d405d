"""The JSON Schema decoder: Arrow types, JSON forms, leftovers, and payloads and schemas that are rejected."""

from __future__ import annotations

import json
import sys
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from chronik.errors import ConfigError
from chronik.formats.codec import (
    DEFAULT_KEY,
    FORMAT_KEY,
    JSON_TEXT,
    ReferencedSchema,
    UndecodableValueError,
    UnsupportedSchemaError,
    ValueFormat,
    WriterSchema,
    create_decoder,
)
from chronik.formats.json_schema.decoder import CHUNK_PAYLOADS, JsonSchemaDecoder
from chronik.formats.json_schema.type_derivation import COLUMNS_MAX
from chronik.formats.json_schema.type_derivation import NESTING_MAX as TYPE_NESTING_MAX
from chronik.formats.json_schema.validation import MESSAGE_CHARACTERS_MAX, NESTING_MAX, PATTERNS_MAX

Schema = Any

DRAFT_4 = "http://json-schema.org/draft-04/schema#"
DRAFT_7 = "http://json-schema.org/draft-07/schema#"
DRAFT_2019_09 = "https://json-schema.org/draft/2019-09/schema"
DRAFT_2020_12 = "https://json-schema.org/draft/2020-12/schema"

CONNECT = "org.apache.kafka.connect.data."
DECIMAL = {"title": f"{CONNECT}Decimal", "connect.type": "bytes", "connect.parameters": {"scale": "2"}}
UTC_TIMESTAMP = pa.timestamp("us", "UTC")


def create(schema: Schema, *references: tuple[str, Schema], draft: str = DRAFT_7) -> JsonSchemaDecoder:
    text = json.dumps({"$schema": draft, **schema} if isinstance(schema, dict) else schema)
    resolved = tuple(ReferencedSchema(name, json.dumps(each)) for name, each in references)
    return JsonSchemaDecoder(WriterSchema(ValueFormat.JSON_SCHEMA, text, resolved))


def has(**properties: Schema) -> Schema:
    return {"type": "object", "properties": properties}


def get_type(schema: Schema, *references: tuple[str, Schema], draft: str = DRAFT_7) -> Any:
    """Return the Arrow type of a property with a schema, or `json` for JSON text."""
    decoder = create({**has(f=schema), "definitions": DEFINITIONS}, *references, draft=draft)
    field = decoder.arrow_field.type.field(0)
    return "json" if (field.metadata or {}).get(FORMAT_KEY) == JSON_TEXT else field.type


DEFINITIONS = {
    "text": {"type": "string"},
    "point": has(x={"type": "number"}, y={"type": "number"}),
    "node": has(value={"type": "integer"}, next={"$ref": "#/definitions/node"}),
}
POINT = pa.struct([("x", pa.float64()), ("y", pa.float64())])
REFERENCE = {"$ref": "#/definitions/point"}


def struct(**fields: pa.DataType) -> pa.DataType:
    return pa.struct(list(fields.items()))


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"type": "boolean"}, pa.bool_()),
        ({"type": "integer"}, pa.int64()),
        ({"type": "number"}, pa.float64()),
        ({"type": "string"}, pa.string()),
        ({"type": "null"}, "json"),
        # Several types
        ({"type": ["string", "null"]}, pa.string()),
        ({"type": ["integer", "number"]}, pa.float64()),
        ({"type": ["integer", "string"]}, "json"),
        ({}, "json"),
        (True, "json"),
        # Values
        ({"enum": ["a", "b"]}, pa.string()),
        ({"enum": [1, None]}, pa.int64()),
        ({"enum": [1, 1.5]}, pa.float64()),
        ({"enum": [1, "a"]}, "json"),
        ({"const": True}, pa.bool_()),
        ({"type": "integer", "enum": [1, 2, "a"]}, pa.int64()),
        # Types that keywords imply
        ({"maxLength": 3}, pa.string()),
        ({"minimum": 3}, pa.float64()),
        ({"properties": {"x": {"type": "integer"}}}, struct(x=pa.int64())),
        ({"items": {"type": "integer"}}, pa.list_(pa.int64())),
        ({"maxLength": 3, "minimum": 3}, "json"),
        # Formats
        ({"type": "string", "format": "date"}, pa.date32()),
        ({"type": "string", "format": "date-time"}, UTC_TIMESTAMP),
        ({"type": "string", "format": "time"}, pa.string()),
        ({"type": "string", "format": "uuid"}, pa.string()),
        ({"type": "string", "format": "byte"}, pa.binary()),
        ({"type": "string", "contentEncoding": "base64"}, pa.binary()),
        ({"type": "string", "contentEncoding": "base32"}, pa.string()),
        # Kafka Connect
        ({"type": "number", **DECIMAL}, pa.decimal128(38, 2)),
        ({"type": "string", **DECIMAL}, pa.decimal128(38, 2)),
        (
            {"type": "number", **DECIMAL, "connect.parameters": {"scale": "2", "connect.decimal.precision": "9"}},
            pa.decimal128(9, 2),
        ),
        ({"type": "number", **DECIMAL, "connect.parameters": {"scale": "39"}}, pa.float64()),
        ({"type": "string", "connect.type": "bytes"}, pa.binary()),
        ({"type": "integer", "title": f"{CONNECT}Date", "connect.type": "int32"}, pa.date32()),
        ({"type": "integer", "title": f"{CONNECT}Timestamp", "connect.type": "int64"}, UTC_TIMESTAMP),
        ({"type": "integer", "title": f"{CONNECT}Time", "connect.type": "int32"}, pa.int64()),
        # Objects
        (has(a={"type": "string"}, b=has(c={"type": "integer"})), struct(a=pa.string(), b=struct(c=pa.int64()))),
        ({"type": "object"}, "json"),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, pa.map_(pa.string(), pa.int64())),
        ({"type": "object", "additionalProperties": True}, "json"),
        (
            {"type": "object", "patternProperties": {"^a": {"type": "integer"}}, "additionalProperties": False},
            pa.map_(pa.string(), pa.int64()),
        ),
        ({"type": "object", "patternProperties": {"^a": {"type": "integer"}}}, "json"),
        ({**has(a={"type": "string"}), "additionalProperties": {"type": "integer"}}, struct(a=pa.string())),
        ({**has(a={"type": "string"}, b=False)}, struct(a=pa.string())),
        # Arrays
        ({"type": "array", "items": {"type": "array", "items": {"type": "string"}}}, pa.list_(pa.list_(pa.string()))),
        ({"type": "array"}, "json"),
        ({"type": "array", "items": {}}, "json"),
        ({"type": "array", "items": [{"type": "string"}]}, "json"),
        # References and combinations
        ({"$ref": "#/definitions/text"}, pa.string()),
        (REFERENCE, POINT),
        ({"allOf": [REFERENCE]}, POINT),
        (
            {"allOf": [REFERENCE, has(z={"type": "number"})]},
            struct(x=pa.float64(), y=pa.float64(), z=pa.float64()),
        ),
        ({"allOf": [{"type": ["string", "integer"]}, {"type": ["integer", "null"]}]}, pa.int64()),
        ({"oneOf": [{"type": "null"}, REFERENCE]}, POINT),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, pa.string()),
        ({"anyOf": [{"type": "integer"}, {"type": "number"}]}, pa.float64()),
        ({"anyOf": [{"type": "string"}, {"type": "string", "format": "date"}]}, pa.string()),
        ({"oneOf": [{"const": "a"}, {"const": "b"}]}, pa.string()),
        ({"oneOf": [{"type": "string"}, {"type": "integer"}]}, "json"),
        ({"oneOf": [REFERENCE, {"type": "integer"}]}, "json"),
        (
            {"oneOf": [has(k={"const": "a"}, v={"type": "integer"}), has(k={"const": "b"}, w={"type": "string"})]},
            struct(k=pa.string(), v=pa.int64(), w=pa.string()),
        ),
        (
            {**has(a={"type": "string"}, b={"type": "string"}), "anyOf": [{"required": ["a"]}, {"required": ["b"]}]},
            struct(a=pa.string(), b=pa.string()),
        ),
        (
            {"type": "array", "items": {"oneOf": [REFERENCE, has(z={"type": "integer"})]}},
            pa.list_(struct(x=pa.float64(), y=pa.float64(), z=pa.int64())),
        ),
    ],
)
def test_property_has_the_arrow_type_of_its_schema(schema: Schema, expected: pa.DataType | str) -> None:
    assert get_type(schema) == expected


def test_recursive_property_is_json_text() -> None:
    node = get_type({"$ref": "#/definitions/node"})
    assert node == struct(value=pa.int64(), next=pa.string())
    assert node.field("next").metadata == {FORMAT_KEY: JSON_TEXT}


@pytest.mark.parametrize("reference", ["point.json", "./point.json", "point.json#/$defs/p"])
def test_reference_to_another_document_is_resolved(reference: str) -> None:
    document = {**DEFINITIONS["point"], "$defs": {"p": DEFINITIONS["point"]}}
    assert get_type({"$ref": reference}, ("point.json", document)) == POINT


def test_later_drafts_combine_a_reference_with_other_keywords() -> None:
    schema = {"$ref": "#/definitions/point", "properties": {"z": {"type": "number"}}}
    assert get_type(schema) == POINT
    assert get_type(schema, draft=DRAFT_2020_12).num_fields == 3
    assert get_type({"prefixItems": [{}], "type": "array", "items": {"type": "string"}}, draft=DRAFT_2020_12) == "json"


def test_default_of_a_required_property_is_in_the_metadata() -> None:
    fields = {
        "a": {"type": "integer", "default": 7},
        "b": {"type": "integer", "default": 7},
        "c": {"type": "integer", "default": "x"},
        "d": {"type": "array", "items": {"type": "string", "format": "date"}, "default": ["2026-11-19"]},
    }
    arrow_type = create({**has(**fields), "required": ["a", "c", "d"]}).arrow_field.type
    defaults = [(field.metadata or {}).get(DEFAULT_KEY) for field in arrow_type]
    assert defaults == [b"7", None, None, b'["2026-11-19"]']


# Values


def decode(schema: Schema, payload: str) -> tuple[Any, Any, Any]:
    """Return the JSON form of a payload, the element of the array, and the leftover."""
    decoder = create(schema)
    form = decoder.decode_value(payload.encode())
    column = decoder.decode_column(pa.array([payload.encode()] * 3, pa.binary()))
    assert not column.errors
    assert column.array.to_pylist()[1:] == column.array.to_pylist()[:1] * 2
    return form, column.array[0].as_py(), column.leftovers.get(2)


@pytest.mark.parametrize(
    ("schema", "payload", "form"),
    [
        ({"type": "integer"}, "1.0", 1),
        ({"type": "integer"}, "1e3", 1000),
        ({"type": "integer"}, "-9223372036854775808", -(2**63)),
        ({"type": "number"}, "1", 1.0),
        ({"type": "number"}, "1.10", 1.1),
        ({"type": "number"}, "0.10000000000000001", 0.1),
        ({"type": "string", "format": "date"}, '"2026-11-19"', "2026-11-19"),
        ({"type": "string", "format": "date-time"}, '"2026-11-19T08:30:00Z"', "2026-11-19T08:30:00Z"),
        ({"type": "string", "format": "date-time"}, '"2026-11-19T08:30:00.5+01:00"', "2026-11-19T07:30:00.500Z"),
        ({"type": "string", "contentEncoding": "base64"}, '"AAEC"', "AAEC"),
        ({"type": "number", **DECIMAL}, "1.5", Decimal("1.50")),
        (
            {"type": "number", **DECIMAL},
            "123456789012345678901234567890.12",
            Decimal("123456789012345678901234567890.12"),
        ),
        ({"type": "string", **DECIMAL}, '"fQ=="', Decimal("1.25")),
        ({"type": "integer", "title": f"{CONNECT}Date"}, "20411", "2025-11-19"),
        ({"type": "integer", "title": f"{CONNECT}Timestamp"}, "1795077000123", "2026-11-19T08:30:00.123Z"),
    ],
)
def test_value_has_a_normalized_json_form(schema: Schema, payload: str, form: Any) -> None:
    found, element, leftover = decode(has(f=schema), f'{{"f":{payload}}}')
    assert found == {"f": form}
    assert type(found["f"]) is type(form)
    assert element["f"] is not None
    assert leftover is None


@pytest.mark.parametrize(
    ("schema", "payload", "form"),
    [
        ({"type": "integer"}, "9223372036854775808", 2**63),
        ({"type": "number"}, "9007199254740993", 2**53 + 1),
        ({"type": "number"}, "0.1234567890123456789", Decimal("0.1234567890123456789")),
        ({"type": "number"}, "1e400", Decimal("1e400")),
        ({"type": "string", "format": "date"}, '"2026-02-30"', "2026-02-30"),
        ({"type": "string", "format": "date"}, '"0000-01-01"', "0000-01-01"),
        ({"type": "string", "format": "date-time"}, '"2026-11-19T08:30:00"', "2026-11-19T08:30:00"),
        ({"type": "string", "format": "date-time"}, '"2026-11-19T08:30:60Z"', "2026-11-19T08:30:60Z"),
        ({"type": "string", "format": "date-time"}, '"2026-11-19T08:30:00.1234567Z"', "2026-11-19T08:30:00.1234567Z"),
        ({"type": "string", "format": "date-time"}, '"9999-12-31T23:59:59-01:00"', "9999-12-31T23:59:59-01:00"),
        ({"type": "string", "contentEncoding": "base64"}, '"AB=="', "AB=="),
        ({"type": "string", "contentEncoding": "base64"}, '"?"', "?"),
        ({"type": "number", **DECIMAL}, "1.125", 1.125),
        ({"type": "string", **DECIMAL}, '"AH0="', "AH0="),
        ({"type": "integer", "title": f"{CONNECT}Date"}, "99999999", 99999999),
        ({"minimum": 1}, '"text"', "text"),
        ({"maxLength": 9}, '{"a":[1]}', {"a": [1]}),
        (has(a={"type": "integer"}), '{"a":1,"b":null,"c":{"d":2}}', {"a": 1, "c": {"d": 2}}),
        ({"type": "array", "items": {"type": "integer"}}, f"[1,{2**63}]", [1, 2**63]),
        ({"type": "array", "items": has(a={"type": "integer"})}, '[{"a":1},{"b":2}]', [{"a": 1}, {"a": None, "b": 2}]),
    ],
)
def test_value_that_its_column_cannot_store_is_a_leftover(schema: Schema, payload: str, form: Any) -> None:
    found, element, leftover = decode(has(f=schema), f'{{"f":{payload}}}')
    assert found == {"f": form}
    expected, stored = ({"c": {"d": 2}}, {"a": 1}) if payload.startswith('{"a":1,') else (form, None)
    assert leftover == {"f": expected}
    assert element == {"f": stored}


def test_missing_property_is_null_and_entries_of_maps_are_kept() -> None:
    schema = has(a={"type": "string"}, m={"type": "object", "additionalProperties": {"type": ["integer", "null"]}})
    assert decode(schema, '{"m":{"x":1,"y":null}}') == (
        {"a": None, "m": {"x": 1, "y": None}},
        {"a": None, "m": [("x", 1), ("y", None)]},
        None,
    )


def test_leftover_of_a_map_names_its_key() -> None:
    schema = {"type": "object", "additionalProperties": {"type": "integer"}}
    assert decode(schema, f'{{"x":1,"y":{2**64}}}') == (
        {"x": 1, "y": 2**64},
        [("x", 1), ("y", None)],
        {"y": 2**64},
    )


@pytest.mark.parametrize(
    ("schema", "payload", "form"),
    [({"type": "integer"}, "5", 5), ({"type": ["integer", "null"]}, "null", None), (True, "[1]", [1])],
)
def test_value_that_is_no_object_is_decoded(schema: Schema, payload: str, form: Any) -> None:
    assert decode(schema, payload)[0] == form


def test_json_text_keeps_all_digits() -> None:
    text = '{"a":[1.10,1e400,9007199254740993,12345678901234567890.5,null]}'
    form, element, leftover = decode({}, text)
    assert json.loads(element, parse_float=Decimal) == json.loads(text, parse_float=Decimal)
    assert form["a"][3] == Decimal("12345678901234567890.5")
    assert leftover is None


# Payloads that are rejected


@pytest.mark.parametrize(
    ("payload", "problem"),
    [
        (b"", "not valid JSON"),
        (b"{", "not valid JSON"),
        (b'{"id":01}', "not valid JSON"),
        (b'{"id":NaN}', "not valid JSON"),
        (b'{"id":"\xff"}', "not valid JSON"),
        (b'{"id":' + b"9" * 5000 + b"}", "not valid JSON: Integer value out of range"),
        (b"[" * 100_000, "not valid JSON"),
        (b"[]", '[] is not of type "object"'),
        (b"{}", '"id" is a required property'),
        (b'{"id":"x"}', 'id: "x" is not of type "integer"'),
        (b'{"id":1,"tags":["a",2]}', 'tags[1]: 2 is not of type "string"'),
        (b'{"id":1,"x":' + b"[" * NESTING_MAX + b"]" * NESTING_MAX + b"}", "nested more than 200 deep"),
    ],
)
def test_invalid_payload_is_an_error_of_its_record_only(payload: bytes, problem: str) -> None:
    schema = {**has(id={"type": "integer"}, tags={"items": {"type": "string"}}), "required": ["id"]}
    decoder = create(schema)
    valid = b'{"id":1}'
    with pytest.raises(UndecodableValueError) as raised:
        decoder.decode_value(payload)
    assert problem in str(raised.value)
    column = decoder.decode_column(pa.array([valid, payload, valid], pa.binary()))
    assert column.errors == {1: str(raised.value)}
    assert column.array.to_pylist() == [{"id": 1, "tags": None}, None, {"id": 1, "tags": None}]


def test_nested_payload_is_accepted_up_to_the_limit() -> None:
    payload = b"[" * NESTING_MAX + b"]" * NESTING_MAX
    assert create(True).decode_column(pa.array([payload], pa.binary())).array.to_pylist() == [payload.decode()]


def test_error_message_is_limited() -> None:
    with pytest.raises(UndecodableValueError) as raised:
        create({"type": "integer"}).decode_value(json.dumps("x" * 10_000).encode())
    assert len(str(raised.value)) == MESSAGE_CHARACTERS_MAX


def test_violation_of_many_alternatives_is_an_error_without_a_description() -> None:
    decoder = create({"items": {"anyOf": [{"const": number} for number in range(1000)]}})
    with pytest.raises(UndecodableValueError, match=r"\[1\]: -1 is not valid under any of the schemas"):
        decoder.decode_value(b"[1,-1]")
    with pytest.raises(UndecodableValueError, match="the value does not match the JSON Schema"):
        decoder.decode_value(b"[" + b"-1," * 20_000 + b"-1]")


def test_formats_are_not_validated_but_patterns_are() -> None:
    decoder = create(has(a={"type": "string", "format": "email"}, b={"type": "string", "pattern": "^[a-z]+$"}))
    assert decoder.decode_value(b'{"a":"?"}')["a"] == "?"
    with pytest.raises(UndecodableValueError, match="does not match"):
        decoder.decode_value(b'{"b":"?"}')


def test_errors_and_leftovers_keep_their_positions_across_chunks() -> None:
    decoder = create({"type": "integer"})
    payloads = [b"1"] * (2 * CHUNK_PAYLOADS + 10)
    payloads[CHUNK_PAYLOADS + 3], payloads[-1] = b"x", str(2**64).encode()
    column = decoder.decode_column(pa.array(payloads, pa.binary()))
    assert list(column.errors) == [CHUNK_PAYLOADS + 3]
    assert column.leftovers == {len(payloads) - 1: 2**64}
    assert column.array.null_count == 2
    sliced = decoder.decode_column(pa.array(payloads, pa.binary()).slice(CHUNK_PAYLOADS, 10))
    assert list(sliced.errors) == [3]


def test_no_payloads_give_an_empty_array() -> None:
    decoder = create(has(a={"type": "string"}))
    assert decoder.decode_column(pa.array([], pa.binary())).array.equals(pa.array([], decoder.arrow_field.type))


# Schemas that are rejected


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ({"type": "strnig"}, "is not supported"),
        ({"minLength": -1}, "is not supported"),
        ({"properties": []}, "properties: an array is not valid here"),
        ({"items": 1}, "a schema is an object or a boolean, this is a number"),
        ({"$ref": "missing.json"}, "unresolved reference 'missing.json'"),
        ({"$ref": "http://localhost/missing.json"}, "unresolved reference"),
        ({"$ref": "file:///etc/passwd"}, "unresolved reference"),
        ({"pattern": "(?=a)b"}, "lookaround"),
        ({"pattern": r"(a)\1"}, "lookaround or back-references"),
        ({"pattern": "(((a{1,100}){1,100}){1,100})"}, "too large"),
        ({"patternProperties": {f"a{number}": {} for number in range(PATTERNS_MAX + 1)}}, "regular expressions"),
        ({"anyOf": [{} for _ in range(20_001)]}, "more than 20,000 subschemas"),
        (
            has(**{f"p{number}": {"type": "string"} for number in range(COLUMNS_MAX)}),
            "columns, expected at most 10,000",
        ),
    ],
)
def test_unsupported_schema_is_rejected(schema: Schema, problem: str) -> None:
    with pytest.raises(UnsupportedSchemaError, match=problem):
        create(schema)


def test_text_that_is_no_schema_is_rejected() -> None:
    for text in ("", "[]", "{", "[" * 100_000):
        with pytest.raises(UnsupportedSchemaError, match="invalid JSON Schema"):
            JsonSchemaDecoder(WriterSchema(ValueFormat.JSON_SCHEMA, text))


@pytest.mark.parametrize("keyword", ["anyOf", "allOf", "oneOf"])
def test_references_that_lead_to_billions_of_subschemas_are_rejected(keyword: str) -> None:
    definitions: dict[str, Schema] = {
        f"d{level}": {keyword: [{"$ref": f"#/definitions/d{level + 1}"}] * 2} for level in range(60)
    }
    definitions["d60"] = {"type": "string"}
    with pytest.raises(UnsupportedSchemaError, match="its references lead to too many subschemas"):
        create({"definitions": definitions, "$ref": "#/definitions/d0"})


def test_properties_that_multiply_columns_are_rejected() -> None:
    definitions: dict[str, Schema] = {
        f"d{level}": has(a={"$ref": f"#/definitions/d{level + 1}"}, b={"$ref": f"#/definitions/d{level + 1}"})
        for level in range(40)
    }
    definitions["d40"] = {"type": "string"}
    with pytest.raises(UnsupportedSchemaError, match="columns, expected at most"):
        create({"definitions": definitions, "$ref": "#/definitions/d0"})


def test_types_that_are_nested_too_deeply_are_json_text() -> None:
    schema: Schema = {"type": "string"}
    for _ in range(90):
        schema = {"items": schema}
    arrow_type, depth = create(schema).arrow_field.type, 0
    while pa.types.is_list(arrow_type):
        arrow_type, depth = arrow_type.value_type, depth + 1
    assert depth == TYPE_NESTING_MAX


def test_value_that_is_too_large_for_a_complex_schema_is_an_error() -> None:
    decoder = create({"items": {"anyOf": [{"const": number} for number in range(15_000)]}})
    assert decoder.decode_value(b"[1,2]") == [1, 2]
    with pytest.raises(UndecodableValueError, match="too large for a schema of this complexity"):
        decoder.decode_value(b"[" + b"1," * 15_000 + b"1]")


def test_value_that_is_nested_too_deeply_for_a_recursive_schema_is_an_error() -> None:
    union = {"anyOf": [{"$ref": f"#/definitions/T{number}"} for number in range(20)]}
    definitions = {f"T{number}": has(a=union, b=union) for number in range(20)}
    decoder = create({"definitions": definitions, "$ref": "#/definitions/T0"})
    assert decoder.decode_value(b'{"a":{"b":{}}}') is not None
    with pytest.raises(UndecodableValueError, match="the value does not match the JSON Schema"):
        decoder.decode_value(b'{"a":{"b":1}}')
    with pytest.raises(UndecodableValueError, match="nested objects: too large for a schema of this complexity"):
        decoder.decode_value(b'{"a":' * 30 + b"1" + b"}" * 30)


def test_schema_that_refers_to_itself_in_place_is_decoded() -> None:
    assert create({"$ref": "#"}).decode_value(b"1") == 1
    schema = {"definitions": {"a": {"anyOf": [{"$ref": "#/definitions/a"}, {"type": "integer"}]}}}
    assert create({**schema, "$ref": "#/definitions/a"}).decode_value(b"1") == 1


def test_decoder_without_the_library_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jsonschema_rs", None)
    with pytest.raises(ConfigError, match=r"require jsonschema-rs: pip install '\.\[schemas\]'"):
        create_decoder(WriterSchema(ValueFormat.JSON_SCHEMA, "{}"))


def test_drafts_have_their_rules_for_integers() -> None:
    assert create({"type": "integer"}).decode_value(b"1.0") == 1
    with pytest.raises(UndecodableValueError):
        create({"type": "integer"}, draft=DRAFT_4).decode_value(b"1.0")
    assert create({"$recursiveRef": "#", "type": "integer"}, draft=DRAFT_2019_09).decode_value(b"1.0") == 1

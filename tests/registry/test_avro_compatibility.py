"""The compatibility rules of Avro schemas, with the messages of Confluent's Schema Registry."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import pytest

from chronik.registry.avro import parse
from chronik.registry.avro_compatibility import DETAILS_CHARACTERS_MAX, MESSAGES_CHARACTERS_MAX, MESSAGES_MAX
from chronik.registry.schema import InvalidSchemaError, ResolvedReference

Schema = Any


def record(*fields: Any, name: str = "Order", **more: Any) -> dict[str, Any]:
    definitions = [{"name": each[0], "type": each[1]} if isinstance(each, tuple) else each for each in fields]
    return {"type": "record", "name": name, "fields": definitions, **more}


def enum(*symbols: str, **more: Any) -> dict[str, Any]:
    return {"type": "enum", "name": "Status", "symbols": list(symbols), **more}


def fixed(size: int, name: str = "Hash") -> dict[str, Any]:
    return {"type": "fixed", "name": name, "size": size}


def find_incompatibilities(reader: Schema, writer: Schema) -> list[str]:
    return parse(json.dumps(reader), []).find_incompatibilities(parse(json.dumps(writer), []))


def describe(error_type: str, description: str, details: str) -> str:
    return f"{{errorType:'{error_type}', description:'{description}', additionalInfo:'{details}'}}"


PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
PROMOTIONS = {
    ("long", "int"),
    ("float", "int"),
    ("float", "long"),
    ("double", "int"),
    ("double", "long"),
    ("double", "float"),
    ("bytes", "string"),
    ("string", "bytes"),
}


@pytest.mark.parametrize("reader", PRIMITIVES)
@pytest.mark.parametrize("writer", PRIMITIVES)
def test_primitive_types_are_compatible_if_equal_or_promoted(reader: str, writer: str) -> None:
    found = find_incompatibilities(record(("id", reader)), record(("id", writer)))
    if reader == writer or (reader, writer) in PROMOTIONS:
        assert found == []
    else:
        assert found == [
            describe(
                "TYPE_MISMATCH",
                "The type (path '/fields/0/type') of a field in the %s schema does not match with the %s schema",
                f"reader type: {reader.upper()} not compatible with writer type: {writer.upper()}",
            )
        ]


@pytest.mark.parametrize(
    ("reader", "writer"),
    [
        (record(), record(("id", "int"))),
        (record({"name": "id", "type": "int", "default": 0}), record()),
        (record({"name": "kind", "type": enum("A", default="A")}), record(("kind", enum("A", "B")))),
        (record({"name": "number", "type": "int", "aliases": ["id"]}), record(("id", "int"))),
        (record(("b", "int"), ("a", "int")), record(("a", "int"), ("b", "int"))),
        (record(name="Purchase", aliases=["Order"]), record()),
        (record(namespace="shop"), record(namespace="store")),
        (enum("A", "B"), enum("A")),
        (enum("A", default="A"), enum("A", "B")),
        (["null", "int"], "int"),
        (["null", "long"], "int"),
        ("int", ["int"]),
        (["int", "null", "string"], ["null", "int"]),
        ({"type": "array", "items": "long"}, {"type": "array", "items": "int"}),
        ({"type": "map", "values": "long"}, {"type": "map", "values": "int"}),
        ({"type": "long", "logicalType": "timestamp-micros"}, {"type": "long", "logicalType": "timestamp-millis"}),
        (record(("next", ["null", "Order"])), record(("next", ["null", "Order"]))),
    ],
)
def test_reader_can_read(reader: Schema, writer: Schema) -> None:
    assert find_incompatibilities(reader, writer) == []


@pytest.mark.parametrize(
    ("reader", "writer", "message"),
    [
        (
            record(("id", "int"), ("name", "string")),
            record(("id", "int")),
            describe(
                "READER_FIELD_MISSING_DEFAULT_VALUE",
                "The field 'name' at path '/fields/1' in the %s schema has no default value and is missing in the "
                "%s schema",
                "name",
            ),
        ),
        (
            record(name="Purchase"),
            record(namespace="shop"),
            describe(
                "NAME_MISMATCH",
                "The name of the schema has changed (path '/name')",
                "expected: shop.Order",
            ),
        ),
        (
            record(("hash", fixed(8))),
            record(("hash", fixed(4))),
            describe(
                "FIXED_SIZE_MISMATCH",
                "The size of FIXED type field at path '/fields/0/type/size' in the %s schema does not match with the "
                "%s schema",
                "expected: 4, found: 8",
            ),
        ),
        (
            record(("status", enum("A"))),
            record(("status", enum("C", "A", "B"))),
            describe(
                "MISSING_ENUM_SYMBOLS",
                "The %s schema is missing enum symbols '[B, C]' at path '/fields/0/type/symbols' in the %s schema",
                "[B, C]",
            ),
        ),
        (
            record(("id", ["null", "int"])),
            record(("id", ["null", "string"])),
            describe(
                "MISSING_UNION_BRANCH",
                "The %s schema is missing a type inside a union field at path '/fields/0/type/1' in the %s schema",
                "reader union lacking writer type: STRING",
            ),
        ),
        (
            ["int", "string"],
            "double",
            describe(
                "MISSING_UNION_BRANCH",
                "The %s schema is missing a type inside a union field at path '/' in the %s schema",
                "reader union lacking writer type: DOUBLE",
            ),
        ),
        (
            "int",
            ["int", "null"],
            describe(
                "TYPE_MISMATCH",
                "The type (path '/1') of a field in the %s schema does not match with the %s schema",
                "reader type: INT not compatible with writer type: NULL",
            ),
        ),
        (
            {"type": "array", "items": {"type": "map", "values": "int"}},
            {"type": "array", "items": {"type": "map", "values": "string"}},
            describe(
                "TYPE_MISMATCH",
                "The type (path '/items/values') of a field in the %s schema does not match with the %s schema",
                "reader type: INT not compatible with writer type: STRING",
            ),
        ),
        (
            record(("id", {"type": "array", "items": "int"})),
            record(("id", "int")),
            describe(
                "TYPE_MISMATCH",
                "The type (path '/fields/0/type') of a field in the %s schema does not match with the %s schema",
                "reader type: ARRAY not compatible with writer type: INT",
            ),
        ),
    ],
)
def test_incompatibility_has_the_message_of_confluent(reader: Schema, writer: Schema, message: str) -> None:
    assert find_incompatibilities(reader, writer) == [message]


def test_all_incompatibilities_are_returned_in_the_order_of_the_reader() -> None:
    reader = record(("new", "int"), ("id", "int"), ("hash", fixed(8)), name="Purchase")
    writer = record(("hash", fixed(4, "Digest")), ("id", "string"))
    found = [each.split("'")[1] for each in find_incompatibilities(reader, writer)]
    expected = ["NAME_MISMATCH", "READER_FIELD_MISSING_DEFAULT_VALUE", "TYPE_MISMATCH", "NAME_MISMATCH"]
    assert found == [*expected, "FIXED_SIZE_MISMATCH"]


def test_field_that_matches_several_fields_fails_the_check() -> None:
    reader = record({"name": "id", "type": "int", "aliases": ["number"]})
    writer = record(("id", "int"), ("number", "int"))
    assert find_incompatibilities(reader, writer) == [
        "Unexpected exception during compatibility check: Reader record field id type:INT pos:0 matches multiple "
        'fields in writer record schema {"type":"record","name":"Order","fields":[{"name":"id","type":"int"},'
        '{"name":"number","type":"int"}]}'
    ]


def test_types_of_references_are_compared() -> None:
    def parse_with_customer(kind: str) -> Any:
        customer = json.dumps(record(("id", kind), name="Customer"))
        reference = ResolvedReference("Customer", customer)
        return parse(json.dumps(record(("customer", "Customer"))), [reference])

    assert parse_with_customer("long").find_incompatibilities(parse_with_customer("int")) == []
    (found,) = parse_with_customer("int").find_incompatibilities(parse_with_customer("long"))
    assert "'/fields/0/type/fields/0/type'" in found


def test_number_of_incompatibilities_is_limited() -> None:
    reader: Schema = record(*[(f"f{index}", "int") for index in range(20)], name="R0")
    for level in range(1, 12):  # each level doubles their number
        reader = record(("a", reader), ("b", f"R{level - 1}"), name=f"R{level}")
    writer = json.loads(json.dumps(reader).replace('"int"', '"string"'))
    assert len(find_incompatibilities(reader, writer)) == MESSAGES_MAX


def test_schemas_that_are_nested_too_deeply_by_names_are_rejected() -> None:
    texts = [
        json.dumps(record(("next", ["null", f"R{level - 1}" if level else "int"]), name=f"R{level}"))
        for level in range(400)
    ]
    references = [ResolvedReference(f"R{level}", text) for level, text in enumerate(texts)]
    reader, writer = (parse(texts[-1], references[:-1]) for _ in range(2))
    with pytest.raises(InvalidSchemaError, match="nested too deeply"):
        reader.find_incompatibilities(writer)


def test_characters_of_messages_are_limited() -> None:
    fields = [(f"f{number}", "Status") for number in range(1, MESSAGES_MAX)]
    symbols = [f"symbol{number:0100d}" for number in range(1000)]
    messages = find_incompatibilities(record(("f0", enum("A")), *fields), record(("f0", enum(*symbols)), *fields))
    assert "MISSING_ENUM_SYMBOLS" in messages[0]
    assert sum(map(len, messages)) <= MESSAGES_CHARACTERS_MAX


def test_long_details_are_truncated() -> None:
    (message,) = find_incompatibilities(enum("A"), enum("s" * (2 * DETAILS_CHARACTERS_MAX)))
    shown = f"[{'s' * (DETAILS_CHARACTERS_MAX - 1)}…"
    description = f"The %s schema is missing enum symbols '{shown}' at path '/symbols' in the %s schema"
    assert message == describe("MISSING_ENUM_SYMBOLS", description, shown)


def test_comparing_many_aliases_with_many_records_is_too_complex() -> None:
    aliases = [f"alias{number}" for number in range(10_000)]
    reader = record({"name": "f", "type": "int", "aliases": aliases, "default": 0})
    writer = [record(name=f"Order{number}") for number in range(1000)]
    with pytest.raises(InvalidSchemaError, match="too complex"):
        find_incompatibilities(reader, writer)


def test_comparing_many_large_enums_is_too_complex() -> None:
    symbols = [f"symbol{number}" for number in range(10_000)]
    writer = [enum(*symbols, name="Large")]
    reader = [enum("A", name=f"Small{number}") for number in range(1000)]
    with pytest.raises(InvalidSchemaError, match="too complex"):
        find_incompatibilities(reader, writer)


def test_memory_for_incompatibilities_that_are_discarded_is_limited() -> None:
    reader = [enum("A", name=f"Reader{number}") for number in range(60)]
    writer = [enum("s" * DETAILS_CHARACTERS_MAX, name=f"Writer{number}") for number in range(60)]
    tracemalloc.start()
    try:
        find_incompatibilities(reader, writer)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 20_000_000  # all pairs of branches would have 72 MB

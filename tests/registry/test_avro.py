"""Avro schemas in the registry: what is accepted, and their canonical and normal text."""

from __future__ import annotations

import json
from typing import Any

import pytest

from chronik.formats.avro.schema import DEPTH_MAX, NAME_LENGTH_MAX, NODES_MAX, TEXT_LENGTH_MAX
from chronik.registry.avro import AvroSchema, parse
from chronik.registry.schema import InvalidSchemaError, ResolvedReference


def parse_json(schema: Any, *references: tuple[str, Any], is_new: bool = True) -> AvroSchema:
    resolved = [ResolvedReference(name, json.dumps(text)) for name, text in references]
    return parse(json.dumps(schema), resolved, is_new=is_new)


def record(*fields: Any, **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": "Order", "fields": list(fields), **more}


def field(name: str, kind: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **more}


@pytest.mark.parametrize(
    ("text", "canonical_text"),
    [
        ('"int"', '"int"'),
        ('{"type": "int"}', '"int"'),
        ('{"type": "int", "logicalType": "date"}', '{"type":"int","logicalType":"date"}'),
        (
            '{"fields": [], "name": "n.Order", "type": "record"}',
            '{"type":"record","name":"Order","namespace":"n","fields":[]}',
        ),
        (
            '{"type": "record", "name": "A", "fields": [{"type": "int", "name": "b", "default": 1, "doc": "x"}]}',
            '{"type":"record","name":"A","fields":[{"name":"b","type":"int","doc":"x","default":1}]}',
        ),
        ('/* note */ {"type": "array", "items": "int"} // end', '{"type":"array","items":"int"}'),
    ],
)
def test_canonical_text_is_that_of_javas_library(text: str, canonical_text: str) -> None:
    assert parse(text, []).canonical_text == canonical_text


def test_normal_text_is_equal_for_schemas_that_differ_in_the_order_of_attributes() -> None:
    first = record(field("id", {"type": "int", "b": 1, "a": {"d": 1, "c": 2}}), namespace="n", aliases=["B", "A"])
    second = record(field("id", {"a": {"c": 2, "d": 1}, "b": 1, "type": "int"}), aliases=["A", "B"], doc="")
    second["name"] = "n.Order"
    assert parse_json(first).canonical_text != parse_json(second).canonical_text
    assert parse_json(first).normalize() == parse_json(second).normalize()


def test_types_of_references_are_written_as_names() -> None:
    customer = record(field("id", "int")) | {"name": "shop.Customer"}
    schema = parse_json(record(field("customer", "shop.Customer")), ("shop.Customer", customer))
    text = '{"type":"record","name":"Order","fields":[{"name":"customer","type":"shop.Customer"}]}'
    assert schema.canonical_text == schema.normalize() == text


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "Cannot parse <null> schema"),
        ("{", "not valid JSON"),
        ("1", "Schema not yet supported: 1"),
        ('"Unknown"', "Undefined schema: Unknown"),
        ('{"name": "A"}', "No type"),
        ('{"type": "record", "name": "A"}', "Record has no fields"),
        ('{"type": "record", "name": "1A", "fields": []}', "Illegal initial character: 1A"),
        ('{"type": "record", "name": "A-B", "fields": []}', "Illegal character in: A-B"),
        ('{"type": "enum", "name": "A", "symbols": ["B", "B"]}', "Duplicate enum symbol: B"),
        ('{"type": "enum", "name": "A", "symbols": ["B"], "default": "C"}', "not in the enum symbol set"),
        ('{"type": "fixed", "name": "A", "size": -1}', "Length is negative: -1"),
        ('["int", "int"]', "Duplicate in union:int"),
        ('[["int"]]', "Nested union"),
        ('{"type": "array"}', "Array has no items type"),
        (json.dumps(record(field("a", "int"), field("a", "int"))), "Duplicate field a in record Order"),
        (json.dumps(record(field("a", "int", default="x"))), 'Invalid default for field a: "x" not a int'),
        (json.dumps(record(field("a", record(field("b", "int"))))), "Can't redefine: Order"),
    ],
)
def test_invalid_schema_is_rejected(text: str, error: str) -> None:
    with pytest.raises(InvalidSchemaError) as raised:
        parse(text, [])
    assert error in str(raised.value)


LATER = field("b", record() | {"name": "F"})
"""A field with a type that is used before it is defined."""


@pytest.mark.parametrize(
    ("schema", "is_valid"),
    [
        (record(field("a", "Order", default={})), False),
        (record(field("a", ["Order", "null"], default={})), False),
        (record(field("a", ["Order", {"type": "map", "values": "int"}], default={})), False),
        (record(field("a", [{"type": "map", "values": "int"}, "Order"], default={})), True),
        (record(field("a", ["Order", "null"], default=None)), True),
        (record(field("a", {"type": "array", "items": "Order"}, default=[])), True),
        (record(field("a", {"type": "array", "items": "Order"}, default=[{}])), False),
        (record(field("b", "int"), field("a", "Order", default={"b": 1})), False),
        (record(field("a", "F", default={}), LATER), True),
        (record(field("a", ["F", "null"], default={}), LATER), True),
        (record(field("a", ["F", "string"], default="x"), LATER), True),
        (record(field("a", ["F", "null"], default="x"), LATER), False),
        (record(field("a", "F", default=1), LATER), False),
    ],
)
def test_default_of_type_that_is_not_complete_is_checked_as_in_javas_library(schema: Any, is_valid: bool) -> None:
    if is_valid:
        parse_json(schema)
        return
    with pytest.raises(InvalidSchemaError, match="Invalid default"):
        parse_json(schema)


@pytest.mark.parametrize(
    "schema",
    [
        record(field("a", "int", default="x")),
        record(field("größe", "int")),
    ],
)
def test_schema_that_older_versions_registered_is_accepted_if_not_new(schema: Any) -> None:
    with pytest.raises(InvalidSchemaError):
        parse_json(schema)
    assert parse_json(schema, is_new=False).canonical_text


def nest(levels: int) -> Any:
    schema: Any = "int"
    for _ in range(levels):
        schema = {"type": "array", "items": schema}
    return schema


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (json.dumps(nest(DEPTH_MAX + 1)), f"nested more than {DEPTH_MAX} levels"),
        ('{"type":"array","items":' * 10_000, "nested more than"),
        ("[" * 100_000, "nested more than"),
        (json.dumps({"type": "int", "doc": "x" * TEXT_LENGTH_MAX}), f"more than {TEXT_LENGTH_MAX} characters"),
        (
            json.dumps({"type": "enum", "name": "E", "symbols": [f"S{index}" for index in range(NODES_MAX)]}),
            f"more than {NODES_MAX} types",
        ),
    ],
)
def test_schema_beyond_limits_is_rejected(text: str, error: str) -> None:
    with pytest.raises(InvalidSchemaError, match=error):
        parse(text, [])


def test_default_values_that_refer_to_each_other_exponentially_are_rejected() -> None:
    references = [("R0", record(field("a", "int", default=0)) | {"name": "R0"})]
    for level in range(1, 40):
        name = f"R{level - 1}"
        fields = [field("a", name, default={}), field("b", name, default={})]
        references.append((f"R{level}", record(*fields) | {"name": f"R{level}"}))
    with pytest.raises(InvalidSchemaError, match="too complex"):
        parse_json(references[-1][1], *references[:-1])


@pytest.mark.parametrize(
    "schema",
    [
        record(field("f", {"type": "fixed", "name": "Hash", "size": 1}), namespace="a." * (NAME_LENGTH_MAX // 2) + "a"),
        record(namespace="a" * (NAME_LENGTH_MAX - len("Order"))),
        record(aliases=["b" * (NAME_LENGTH_MAX - 1)], namespace="ab"),
        record(field("f", "B" * NAME_LENGTH_MAX), namespace="a"),
    ],
    ids=["nested type", "namespace", "alias", "reference"],
)
def test_name_that_is_too_long_with_its_namespace_is_rejected(schema: Any) -> None:
    with pytest.raises(InvalidSchemaError, match=f"a name has more than {NAME_LENGTH_MAX} characters"):
        parse_json(schema)


def test_longest_name_is_accepted() -> None:
    namespace = "a" * (NAME_LENGTH_MAX - len(".Order"))
    assert namespace in parse_json(record(namespace=namespace)).canonical_text


@pytest.mark.parametrize("is_field", [False, True])
def test_too_many_aliases_are_rejected(is_field: bool) -> None:
    aliases = [f"a{number}" for number in range(NODES_MAX)]
    schema = record(field("f", "int", aliases=aliases)) if is_field else record(aliases=aliases)
    with pytest.raises(InvalidSchemaError, match=f"more than {NODES_MAX} types, fields, aliases and enum symbols"):
        parse_json(schema)

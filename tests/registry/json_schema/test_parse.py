"""Parsing of JSON Schemas in the registry: canonical text, normal form, references, and hostile schemas."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from chronik.formats.json_schema.documents import NESTING_MAX, URI_CHARACTERS_MAX
from chronik.registry.json_schema import parse
from chronik.registry.json_schema.loader import PATTERNS_MAX, SUBSCHEMAS_MAX, TYPES_MAX
from chronik.registry.schema import InvalidSchemaError, ResolvedReference

DRAFT_4 = "http://json-schema.org/draft-04/schema#"
DRAFT_7 = "http://json-schema.org/draft-07/schema#"
DRAFT_2020_12 = "https://json-schema.org/draft/2020-12/schema"
DRAFTS = (DRAFT_4, DRAFT_7, DRAFT_2020_12)


def parse_schema(schema: Any, *references: tuple[str, Any], draft: str = DRAFT_7) -> None:
    resolved = [ResolvedReference(name, json.dumps(each)) for name, each in references]
    parse(json.dumps({"$schema": draft, **schema}), resolved)


# Texts


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        (' { "type" : "object" , "a":[1, 2] }\n', '{"type":"object","a":[1,2]}'),
        ('{"minimum":1.0,"maximum":1e2,"multipleOf":1E-7}', '{"minimum":1.0,"maximum":1E+2,"multipleOf":1E-7}'),
        ('{"maximum":123456789012345678901234567890.10}', '{"maximum":123456789012345678901234567890.10}'),
        ('{"minimum":-0.0}', '{"minimum":0.0}'),
        ('{"title":"\\u00e4\\/\\"\\u001f\\ud83d\\ude00"}', '{"title":"ä/\\"\\u001F😀"}'),
        ('{"title":"a","title":"b"}', '{"title":"b"}'),
        ("true", "true"),
        ("{}", "{}"),
    ],
)
def test_canonical_text_is_written_like_jackson(text: str, canonical: str) -> None:
    assert parse(text, []).canonical_text == canonical


def test_normal_form_has_sorted_properties() -> None:
    text = '{"type":"object","properties":{"b":{"type":"string","minLength":1},"a":true},"enum":[{"y":1,"x":2}]}'
    normal = '{"enum":[{"x":2,"y":1}],"properties":{"a":true,"b":{"minLength":1,"type":"string"}},"type":"object"}'
    assert parse(text, []).normalize() == normal
    assert parse(normal, []).normalize() == normal


def test_normal_form_sorts_by_utf16_code_units() -> None:
    assert list(json.loads(parse('{"\uff5e":1,"😀":2,"a":3}', []).normalize())) == ["a", "😀", "\uff5e"]


# Invalid schemas


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "invalid JSON"),
        ("{", "invalid JSON"),
        ('{"minimum":NaN}', "NaN is not a JSON number"),
        ('"string"', "a JSON Schema is an object or a boolean, this is a string"),
        ("[]", "this is an array"),
        ('{"type":"strnig"}', "#/type: unknown type: 'strnig'"),
        ('{"type":1}', "#/type: expected a string or an array of strings, found a number"),
        ('{"properties":[]}', "#/properties: expected an object, found an array"),
        ('{"properties":{"a":1}}', "#/properties/a: a schema is an object or a boolean, this is a number"),
        ('{"required":"a"}', "#/required: expected an array"),
        ('{"minLength":"1"}', "#/minLength: expected a number"),
        ('{"minLength":1.5}', "#/minLength: expected an integer of 32 bits"),
        ('{"minLength":1e999999999}', "#/minLength: expected an integer of 32 bits"),
        ('{"multipleOf":0}', "#/multipleOf: must not be 0"),
        ('{"pattern":"["}', r"#/pattern: invalid regular expression '\['"),
        ('{"patternProperties":{"(":{}}}', r"#/patternProperties/\(: invalid regular expression"),
        ('{"items":{"$ref":1}}', "#/items/\\$ref: expected a string"),
        ('{"$ref":"#/definitions/a"}', "unresolved reference '#/definitions/a': there is no 'definitions'"),
        ('{"$ref":"http://example.com/a.json"}', "unresolved reference 'http://example.com/a.json'"),
        ('{"$ref":"#a"}', "unresolved reference '#a': no schema has this anchor"),
        ('{"title":"\\ud800"}', "surrogate"),
        ('{"maximum":' + "9" * 5000 + "}", "invalid JSON"),
    ],
)
def test_invalid_schema_is_rejected_with_the_location(text: str, problem: str) -> None:
    with pytest.raises(InvalidSchemaError, match=problem):
        parse(text, [])


def test_stored_schema_is_checked_by_the_first_comparison_only() -> None:
    stored = parse('{"type":"strnig"}', [], is_new=False)
    assert stored.canonical_text == '{"type":"strnig"}'
    with pytest.raises(InvalidSchemaError, match="unknown type"):
        stored.find_incompatibilities(stored)


def test_pattern_with_lookahead_is_accepted() -> None:
    parse_schema({"pattern": "^(?=.*[A-Z]).+$"})


# References


@pytest.mark.parametrize("draft", DRAFTS)
@pytest.mark.parametrize(
    "reference", ["address.json", "./address.json", "address.json#", "address.json#/definitions/street"]
)
def test_reference_by_name_is_resolved(reference: str, draft: str) -> None:
    address = {"definitions": {"street": {"type": "string"}}}
    parse_schema({"properties": {"a": {"$ref": reference}}}, ("address.json", address), draft=draft)


@pytest.mark.parametrize("draft", DRAFTS)
def test_reference_is_resolved_against_the_identifier(draft: str) -> None:
    keyword = "id" if draft == DRAFT_4 else "$id"
    schema = {keyword: "http://example.com/order.json", "items": {"$ref": "address.json"}}
    parse_schema(schema, ("http://example.com/address.json", {"type": "string"}), draft=draft)


def test_references_of_references_are_resolved() -> None:
    parse_schema({"$ref": "b.json"}, ("a.json", {"type": "string"}), ("b.json", {"items": {"$ref": "a.json"}}))
    with pytest.raises(InvalidSchemaError, match=r"unresolved reference 'missing\.json'"):
        parse_schema({"$ref": "b.json"}, ("b.json", {"items": {"$ref": "missing.json"}}))


def test_invalid_referenced_schema_is_named() -> None:
    with pytest.raises(InvalidSchemaError, match=r"reference 'a\.json': invalid JSON"):
        parse("{}", [ResolvedReference("a.json", "{")])


def test_definitions_are_found_under_both_names() -> None:
    parse_schema({"definitions": {"a": {}}, "$ref": "#/$defs/a"})
    parse_schema({"$defs": {"a": {}}, "$ref": "#/$defs/a"}, draft=DRAFT_2020_12)


@pytest.mark.parametrize("draft", DRAFTS)
def test_reference_to_the_schema_of_schemas_needs_no_document(draft: str) -> None:
    parse_schema({"properties": {"schema": {"$ref": draft}}}, draft=draft)


def test_anchors_are_resolved() -> None:
    parse_schema({"$defs": {"a": {"$anchor": "here"}}, "$ref": "#here"}, draft=DRAFT_2020_12)
    parse_schema({"definitions": {"a": {"$id": "#here"}}, "$ref": "#here"})


# Limits


def nest(keyword: str, depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(depth):
        schema = {keyword: schema}
    return schema


@pytest.mark.parametrize("keyword", ["not", "items", "additionalProperties", "if", "contains"])
@pytest.mark.parametrize("draft", [DRAFT_7, DRAFT_2020_12])
def test_nested_schema_is_accepted_up_to_the_limit(keyword: str, draft: str) -> None:
    schema = parse(json.dumps({"$schema": draft, **nest(keyword, NESTING_MAX - 1)}), [])
    assert schema.find_incompatibilities(schema) == []
    with pytest.raises(InvalidSchemaError, match="nested more than"):
        parse_schema(nest(keyword, NESTING_MAX + 1), draft=draft)


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, '{"not":' * 100_000 + "true" + "}" * 100_000])
def test_deeply_nested_text_is_rejected(text: str) -> None:
    with pytest.raises(InvalidSchemaError):
        parse(text, [])


def test_subschemas_are_limited() -> None:
    parse_schema({"anyOf": [{} for _ in range(SUBSCHEMAS_MAX)]})
    with pytest.raises(InvalidSchemaError, match="more than 20,000 subschemas"):
        parse_schema({"anyOf": [{} for _ in range(SUBSCHEMAS_MAX + 1)]})


def test_types_are_limited() -> None:
    parse_schema({"type": ["string"] * TYPES_MAX})
    for draft in DRAFTS:
        with pytest.raises(InvalidSchemaError, match="more than 20 types"):
            parse_schema({"type": ["string"] * (TYPES_MAX + 1)}, draft=draft)


def test_regular_expressions_are_limited() -> None:
    parse_schema({"patternProperties": {f"a{number}": {} for number in range(PATTERNS_MAX)}})
    with pytest.raises(InvalidSchemaError, match="more than 1,000 regular expressions"):
        parse_schema({"patternProperties": {f"a{number}": {} for number in range(PATTERNS_MAX + 1)}})


@pytest.mark.parametrize("pattern", ["(a+)+b", "(((a{1,100}){1,100}){1,100})", "(.*)*" * 100, "a" * 100_000])
def test_regex_bomb_is_parsed_in_bounded_time(pattern: str) -> None:
    started = time.process_time()
    parse_schema({"pattern": pattern})
    assert time.process_time() - started < 1


def test_identifiers_are_limited() -> None:
    schema = nest("not", 3)
    for each in (schema, schema["not"], schema["not"]["not"]):
        each["$id"] = "a/" * (URI_CHARACTERS_MAX // 5)
    with pytest.raises(InvalidSchemaError, match="more than 2,000 characters"):
        parse_schema(schema)


def test_long_chain_of_references_is_followed() -> None:
    count = 5000
    definitions: dict[str, Any] = {f"d{number}": {"$ref": f"#/definitions/d{number + 1}"} for number in range(count)}
    definitions[f"d{count}"] = {"type": "string"}
    schema = parse(json.dumps({"definitions": definitions, "$ref": "#/definitions/d0"}), [])
    assert schema.find_incompatibilities(parse('{"type":"string"}', [])) == []

"""The compatibility rules of JSON Schemas: a case for each type of difference, in both directions."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import pytest

from chronik.registry.json_schema import JsonSchema, comparison, parse
from chronik.registry.json_schema.comparison import DIFFERENCES_MAX, MESSAGES_CHARACTERS_MAX, compare
from chronik.registry.json_schema.differences import COMPATIBLE, JsonDifferenceType
from chronik.registry.schema import InvalidSchemaError, ResolvedReference

Schema = Any

DRAFT_4 = "http://json-schema.org/draft-04/schema#"
DRAFT_6 = "http://json-schema.org/draft-06/schema#"
DRAFT_7 = "http://json-schema.org/draft-07/schema#"
DRAFT_2019_09 = "https://json-schema.org/draft/2019-09/schema"
DRAFT_2020_12 = "https://json-schema.org/draft/2020-12/schema"
DRAFTS = (DRAFT_4, DRAFT_6, DRAFT_7, DRAFT_2019_09, DRAFT_2020_12)
CLASSIC = (DRAFT_6, DRAFT_7)
MODERN = (DRAFT_2019_09, DRAFT_2020_12)

STRING, NUMBER, INTEGER = {"type": "string"}, {"type": "number"}, {"type": "integer"}


def parse_schema(schema: Schema, draft: str = DRAFT_7) -> JsonSchema:
    return parse(json.dumps({**schema, "$schema": draft} if isinstance(schema, dict) else schema), [])


def find_differences(writer: Schema, reader: Schema, draft: str = DRAFT_7) -> list[str]:
    parsed_writer, parsed_reader = (parse_schema(each, draft) for each in (writer, reader))
    differences = compare(parsed_writer.root, parsed_reader.root)
    return [f"{difference.type} {difference.path}" for difference in differences]


def find_incompatibilities(writer: Schema, reader: Schema, draft: str = DRAFT_7) -> list[str]:
    return parse_schema(reader, draft).find_incompatibilities(parse_schema(writer, draft))


def has(**properties: Schema) -> Schema:
    return {"type": "object", "properties": properties}


def closed(**properties: Schema) -> Schema:
    return {**has(**properties), "additionalProperties": False}


def partly_open(schema: Schema, **properties: Schema) -> Schema:
    return {**has(**properties), "additionalProperties": schema}


class Case(NamedTuple):
    """Two schemas, and their differences in both directions."""

    first: Schema
    second: Schema
    forward: list[str]
    """The differences if the first schema is the writer's and the second one the reader's."""
    backward: list[str]
    drafts: tuple[str, ...] = DRAFTS


def keyword(name: str, low: Any, high: Any, prefix: str, **base: Any) -> dict[str, Case]:
    """Return the cases of a keyword with a number."""
    path = f"#/{name}"
    return {
        f"{name} is added": Case(
            base, {**base, name: low}, [f"{prefix}_ADDED {path}"], [f"{prefix}_REMOVED {path}"], CLASSIC
        ),
        f"{name} is increased": Case(
            {**base, name: low},
            {**base, name: high},
            [f"{prefix}_INCREASED {path}"],
            [f"{prefix}_DECREASED {path}"],
            CLASSIC,
        ),
    }


CASES: dict[str, Case] = {
    "annotations": Case(
        {"type": "string", "title": "a", "description": "a", "default": "a"},
        {"type": "string", "title": "b", "description": "b", "default": None},
        ["TITLE_CHANGED #/", "DESCRIPTION_CHANGED #/", "DEFAULT_CHANGED #/"],
        ["TITLE_CHANGED #/", "DESCRIPTION_CHANGED #/", "DEFAULT_CHANGED #/"],
    ),
    "id": Case(
        {"$id": "http://a/", **STRING}, {"$id": "http://b/", **STRING}, ["ID_CHANGED #/"], ["ID_CHANGED #/"], CLASSIC
    ),
    "types": Case(STRING, {"type": "boolean"}, ["TYPE_CHANGED #/"], ["TYPE_CHANGED #/"]),
    "integer to number": Case(INTEGER, NUMBER, ["TYPE_EXTENDED #/"], ["TYPE_NARROWED #/"]),
    "any value": Case(STRING, {}, [], ["TYPE_CHANGED #/"]),
    "types in Connect": Case({**STRING, "connect.type": "bytes"}, {**NUMBER, "connect.type": "bytes"}, [], [], CLASSIC),
    **keyword("maxLength", 1, 2, "MAX_LENGTH", **STRING),
    **keyword("minLength", 1, 2, "MIN_LENGTH", **STRING),
    **keyword("maximum", 1, 2.5, "MAXIMUM", **NUMBER),
    **keyword("minimum", 1, 2.5, "MINIMUM", **NUMBER),
    **keyword("exclusiveMaximum", 1, 2.5, "EXCLUSIVE_MAXIMUM", **NUMBER),
    **keyword("exclusiveMinimum", 1, 2.5, "EXCLUSIVE_MINIMUM", **NUMBER),
    **keyword("maxProperties", 1, 2, "MAX_PROPERTIES", type="object"),
    **keyword("minProperties", 1, 2, "MIN_PROPERTIES", type="object"),
    **keyword("maxItems", 1, 2, "MAX_ITEMS", type="array"),
    **keyword("minItems", 1, 2, "MIN_ITEMS", type="array"),
    **keyword("maxContains", 1, 2, "MAX_CONTAINS", type="array", contains=STRING),
    **keyword("minContains", 1, 2, "MIN_CONTAINS", type="array", contains=STRING),
    "pattern is added": Case(
        STRING, {**STRING, "pattern": "a"}, ["PATTERN_ADDED #/pattern"], ["PATTERN_REMOVED #/pattern"]
    ),
    "pattern is changed": Case(
        {**STRING, "pattern": "a"},
        {**STRING, "pattern": "b"},
        ["PATTERN_CHANGED #/pattern"],
        ["PATTERN_CHANGED #/pattern"],
    ),
    "multipleOf is added": Case(
        NUMBER, {**NUMBER, "multipleOf": 2}, ["MULTIPLE_OF_ADDED #/multipleOf"], ["MULTIPLE_OF_REMOVED #/multipleOf"]
    ),
    "multipleOf is expanded": Case(
        {**NUMBER, "multipleOf": 0.5},
        {**NUMBER, "multipleOf": 10},
        ["MULTIPLE_OF_EXPANDED #/multipleOf"],
        ["MULTIPLE_OF_REDUCED #/multipleOf"],
    ),
    "multipleOf is changed": Case(
        {**NUMBER, "multipleOf": 2},
        {**NUMBER, "multipleOf": 3},
        ["MULTIPLE_OF_CHANGED #/multipleOf"],
        ["MULTIPLE_OF_CHANGED #/multipleOf"],
    ),
    "multipleOf is equal": Case({**NUMBER, "multipleOf": 0.5}, {**NUMBER, "multipleOf": 5e-1}, [], []),
    "required": Case(
        has(a=STRING),
        {**has(a=STRING), "required": ["a"]},
        ["REQUIRED_ATTRIBUTE_ADDED #/required/a"],
        ["REQUIRED_ATTRIBUTE_REMOVED #/required/a"],
    ),
    "required with a default": Case(
        has(a={**STRING, "default": ""}),
        {**has(a={**STRING, "default": ""}), "required": ["a"]},
        ["REQUIRED_ATTRIBUTE_WITH_DEFAULT_ADDED #/required/a"],
        ["REQUIRED_ATTRIBUTE_REMOVED #/required/a"],
    ),
    "optional property, open": Case(
        has(),
        has(a=STRING),
        ["OPTIONAL_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL #/properties/a"],
        ["PROPERTY_REMOVED_FROM_OPEN_CONTENT_MODEL #/properties/a"],
    ),
    "required property, open": Case(
        has(),
        {**has(a=STRING), "required": ["a"]},
        ["REQUIRED_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL #/properties/a"],
        ["PROPERTY_REMOVED_FROM_OPEN_CONTENT_MODEL #/properties/a"],
    ),
    "required property with a default, open": Case(
        has(),
        {**has(a={**STRING, "default": ""}), "required": ["a"]},
        ["REQUIRED_PROPERTY_WITH_DEFAULT_ADDED_TO_OPEN_CONTENT_MODEL #/properties/a"],
        ["PROPERTY_REMOVED_FROM_OPEN_CONTENT_MODEL #/properties/a"],
    ),
    "property with any value, open": Case(
        has(),
        has(a={}),
        ["PROPERTY_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL #/properties/a"],
        ["PROPERTY_REMOVED_FROM_OPEN_CONTENT_MODEL #/properties/a"],
    ),
    "optional property, closed": Case(
        closed(),
        closed(a=STRING),
        ["OPTIONAL_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL #/properties/a"],
        ["PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL #/properties/a"],
    ),
    "required property, closed": Case(
        closed(),
        {**closed(a=STRING), "required": ["a"]},
        ["REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL #/properties/a"],
        ["PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL #/properties/a"],
    ),
    "required property with a default, closed": Case(
        closed(),
        {**closed(a={**STRING, "default": ""}), "required": ["a"]},
        ["REQUIRED_PROPERTY_WITH_DEFAULT_ADDED_TO_UNOPEN_CONTENT_MODEL #/properties/a"],
        ["PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL #/properties/a"],
    ),
    "forbidden property, closed": Case(
        closed(a=False),
        closed(),
        ["PROPERTY_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL #/properties/a"],
        ["OPTIONAL_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL #/properties/a"],
        (DRAFT_6, DRAFT_7, *MODERN),
    ),
    "property that is covered": Case(
        partly_open(STRING),
        partly_open(STRING, a=STRING),
        [
            "PROPERTY_ADDED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL #/properties/a",
            "OPTIONAL_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL #/properties/a",
        ],
        ["PROPERTY_REMOVED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL #/properties/a"],
    ),
    "property that is not covered": Case(
        partly_open(STRING),
        partly_open(STRING, a=INTEGER),
        [
            "TYPE_CHANGED #/properties/a",
            "PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL #/properties/a",
            "OPTIONAL_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL #/properties/a",
        ],
        [
            "TYPE_CHANGED #/properties/a",
            "PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL #/properties/a",
        ],
    ),
    "property that a pattern covers": Case(
        {"type": "object", "patternProperties": {"^a": STRING}, "additionalProperties": False},
        {**has(ab=STRING), "patternProperties": {"^a": STRING}, "additionalProperties": False},
        [
            "PROPERTY_ADDED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL #/properties/ab",
            "OPTIONAL_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL #/properties/ab",
        ],
        ["PROPERTY_REMOVED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL #/properties/ab"],
    ),
    "additionalProperties is forbidden": Case(
        has(),
        closed(),
        ["ADDITIONAL_PROPERTIES_REMOVED #/additionalProperties"],
        ["ADDITIONAL_PROPERTIES_ADDED #/additionalProperties"],
    ),
    "additionalProperties has a schema": Case(
        has(),
        partly_open(STRING),
        ["ADDITIONAL_PROPERTIES_NARROWED #/additionalProperties"],
        ["ADDITIONAL_PROPERTIES_EXTENDED #/additionalProperties"],
    ),
    "additionalProperties has another schema": Case(
        partly_open(INTEGER),
        partly_open(NUMBER),
        ["TYPE_EXTENDED #/additionalProperties"],
        ["TYPE_NARROWED #/additionalProperties"],
    ),
    "unevaluatedProperties is forbidden": Case(
        has(),
        {**has(), "unevaluatedProperties": False},
        ["UNEVALUATED_PROPERTIES_REMOVED #/unevaluatedProperties"],
        ["UNEVALUATED_PROPERTIES_ADDED #/unevaluatedProperties"],
        MODERN,
    ),
    "unevaluatedProperties has a schema": Case(
        {**has(), "unevaluatedProperties": True},
        {**has(), "unevaluatedProperties": STRING},
        ["UNEVALUATED_PROPERTIES_NARROWED #/unevaluatedProperties"],
        ["UNEVALUATED_PROPERTIES_EXTENDED #/unevaluatedProperties"],
        MODERN,
    ),
    "dependency is added": Case(
        {"type": "object"},
        {"type": "object", "dependencies": {"a": ["b"], "c": STRING}},
        ["DEPENDENCY_ARRAY_ADDED #/dependencies/a", "DEPENDENCY_SCHEMA_ADDED #/dependencies/c"],
        ["DEPENDENCY_ARRAY_REMOVED #/dependencies/a", "DEPENDENCY_SCHEMA_REMOVED #/dependencies/c"],
        (DRAFT_4, *CLASSIC),
    ),
    "dependency is extended": Case(
        {"type": "object", "dependencies": {"a": ["b"]}},
        {"type": "object", "dependencies": {"a": ["b", "c"]}},
        ["DEPENDENCY_ARRAY_EXTENDED #/dependencies/a"],
        ["DEPENDENCY_ARRAY_NARROWED #/dependencies/a"],
        (DRAFT_4, *CLASSIC),
    ),
    "dependency is changed": Case(
        {"type": "object", "dependentRequired": {"a": ["b"]}, "dependentSchemas": {"d": INTEGER}},
        {"type": "object", "dependentRequired": {"a": ["c"]}, "dependentSchemas": {"d": NUMBER}},
        ["DEPENDENCY_ARRAY_CHANGED #/dependencies/a", "TYPE_EXTENDED #/dependencies/d"],
        ["DEPENDENCY_ARRAY_CHANGED #/dependencies/a", "TYPE_NARROWED #/dependencies/d"],
        MODERN,
    ),
    "uniqueItems": Case(
        {"type": "array"},
        {"type": "array", "uniqueItems": True},
        ["UNIQUE_ITEMS_ADDED #/uniqueItems"],
        ["UNIQUE_ITEMS_REMOVED #/uniqueItems"],
    ),
    "items are added": Case(
        {"type": "array"}, {"type": "array", "items": STRING}, ["SCHEMA_ADDED #/items"], ["SCHEMA_REMOVED #/items"]
    ),
    "items are changed": Case(
        {"type": "array", "items": INTEGER},
        {"type": "array", "items": NUMBER},
        ["TYPE_EXTENDED #/items"],
        ["TYPE_NARROWED #/items"],
    ),
    "item, open": Case(
        {"type": "array", "items": [INTEGER]},
        {"type": "array", "items": [INTEGER, STRING]},
        ["ITEM_ADDED_TO_OPEN_CONTENT_MODEL #/items/1"],
        ["ITEM_REMOVED_FROM_OPEN_CONTENT_MODEL #/items/1"],
        (DRAFT_4, *CLASSIC),
    ),
    "item with any value, open": Case(
        {"type": "array", "items": [INTEGER]},
        {"type": "array", "items": [NUMBER, {}]},
        ["TYPE_EXTENDED #/items/0", "ITEM_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL #/items/1"],
        ["TYPE_NARROWED #/items/0", "ITEM_REMOVED_FROM_OPEN_CONTENT_MODEL #/items/1"],
        (DRAFT_4, *CLASSIC),
    ),
    "item, closed": Case(
        {"type": "array", "items": [INTEGER], "additionalItems": False},
        {"type": "array", "items": [INTEGER, STRING], "additionalItems": False},
        ["ITEM_ADDED_TO_CLOSED_CONTENT_MODEL #/items/1"],
        ["ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL #/items/1"],
        (DRAFT_4, *CLASSIC),
    ),
    "forbidden item, closed": Case(
        {"type": "array", "items": [INTEGER, False], "additionalItems": False},
        {"type": "array", "items": [INTEGER], "additionalItems": False},
        ["ITEM_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL #/items/1"],
        ["ITEM_ADDED_TO_CLOSED_CONTENT_MODEL #/items/1"],
        CLASSIC,
    ),
    "item that is covered": Case(
        {"type": "array", "prefixItems": [INTEGER], "items": STRING},
        {"type": "array", "prefixItems": [INTEGER, STRING], "items": STRING},
        ["ITEM_ADDED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL #/items/1"],
        ["ITEM_REMOVED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL #/items/1"],
        (DRAFT_2020_12,),
    ),
    "item that is not covered": Case(
        {"type": "array", "prefixItems": [INTEGER], "items": STRING},
        {"type": "array", "prefixItems": [INTEGER, INTEGER], "items": STRING},
        ["TYPE_CHANGED #/items/1", "ITEM_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL #/items/1"],
        ["TYPE_CHANGED #/items/1", "ITEM_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL #/items/1"],
        (DRAFT_2020_12,),
    ),
    "additionalItems is forbidden": Case(
        {"type": "array", "items": [INTEGER]},
        {"type": "array", "items": [INTEGER], "additionalItems": False},
        ["ADDITIONAL_ITEMS_REMOVED #/additionalItems"],
        ["ADDITIONAL_ITEMS_ADDED #/additionalItems"],
        (DRAFT_4, *CLASSIC, DRAFT_2019_09),
    ),
    "additionalItems has a schema": Case(
        {"type": "array", "items": [INTEGER]},
        {"type": "array", "items": [INTEGER], "additionalItems": STRING},
        ["ADDITIONAL_ITEMS_NARROWED #/additionalItems"],
        ["ADDITIONAL_ITEMS_EXTENDED #/additionalItems"],
        (DRAFT_4, *CLASSIC, DRAFT_2019_09),
    ),
    "unevaluatedItems is forbidden": Case(
        {"type": "array"},
        {"type": "array", "unevaluatedItems": False},
        ["UNEVALUATED_ITEMS_REMOVED #/unevaluatedItems"],
        ["UNEVALUATED_ITEMS_ADDED #/unevaluatedItems"],
        MODERN,
    ),
    "unevaluatedItems has a schema": Case(
        {"type": "array", "unevaluatedItems": {}},
        {"type": "array", "unevaluatedItems": STRING},
        ["UNEVALUATED_ITEMS_NARROWED #/unevaluatedItems"],
        ["UNEVALUATED_ITEMS_EXTENDED #/unevaluatedItems"],
        MODERN,
    ),
    "enum is extended": Case(
        {"enum": ["a", 1]}, {"enum": [1, "b", "a"]}, ["ENUM_ARRAY_EXTENDED #/enum"], ["ENUM_ARRAY_NARROWED #/enum"]
    ),
    "enum is changed": Case(
        {"enum": [1]}, {"enum": [True]}, ["ENUM_ARRAY_CHANGED #/enum"], ["ENUM_ARRAY_CHANGED #/enum"]
    ),
    "enum is equal": Case({"enum": [1, [{"a": 1, "b": 2}]]}, {"enum": [[{"b": 2, "a": 1.0}], 1.0]}, [], []),
    "const": Case(
        {"const": None},
        {"const": False},
        ["ENUM_ARRAY_CHANGED #/const"],
        ["ENUM_ARRAY_CHANGED #/const"],
        (*CLASSIC, *MODERN),
    ),
    "type is added to a union": Case(
        STRING, {"type": ["string", "null"]}, ["SUM_TYPE_EXTENDED #/"], ["TYPE_CHANGED #/"]
    ),
    "alternative is added": Case(
        {"oneOf": [STRING, INTEGER]},
        {"oneOf": [STRING, INTEGER, {"type": "null"}]},
        ["SUM_TYPE_EXTENDED #/"],
        ["SUM_TYPE_NARROWED #/"],
    ),
    "alternatives are reordered": Case({"oneOf": [STRING, INTEGER]}, {"oneOf": [INTEGER, STRING]}, [], []),
    "alternative is widened": Case(
        {"oneOf": [INTEGER, STRING]},
        {"oneOf": [STRING, NUMBER]},
        ["TYPE_EXTENDED #/oneOf/0"],
        ["COMBINED_TYPE_SUBSCHEMAS_CHANGED #/"],
    ),
    "allOf is extended": Case(
        {"allOf": [has(a=STRING), has(b=STRING)]},
        {"allOf": [has(a=STRING), has(b=STRING), has(c=STRING)]},
        ["PRODUCT_TYPE_EXTENDED #/"],
        ["PRODUCT_TYPE_NARROWED #/"],
    ),
    "criterion": Case(
        {"allOf": [STRING, INTEGER]},
        {"anyOf": [STRING, INTEGER]},
        ["COMBINED_TYPE_EXTENDED #/"],
        ["COMBINED_TYPE_CHANGED #/"],
    ),
    "combination of one schema": Case(STRING, {"allOf": [STRING]}, [], []),
    "allOf of a schema and others": Case(
        {"allOf": [STRING, {"minLength": 1}]}, STRING, ["PRODUCT_TYPE_NARROWED #/"], ["TYPE_CHANGED #/"]
    ),
    "not": Case({"not": NUMBER}, {"not": INTEGER}, ["NOT_TYPE_NARROWED #/not"], ["NOT_TYPE_EXTENDED #/not"]),
    "conditions are not compared": Case(
        {"if": STRING, "then": {"minLength": 1}}, {"if": STRING, "then": {"minLength": 2}}, [], [], (DRAFT_7, *MODERN)
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_pair_has_expected_differences(name: str) -> None:
    case = CASES[name]
    for draft in case.drafts:
        assert sorted(find_differences(case.first, case.second, draft)) == sorted(case.forward), draft
        assert sorted(find_differences(case.second, case.first, draft)) == sorted(case.backward), draft


@pytest.mark.parametrize("name", CASES)
def test_schema_is_compatible_with_itself(name: str) -> None:
    case = CASES[name]
    for draft in case.drafts:
        assert find_incompatibilities(case.first, case.first, draft) == []
        assert find_incompatibilities(case.second, case.second, draft) == []


def test_every_type_of_difference_has_a_case() -> None:
    found = {each.split(" ")[0] for case in CASES.values() for each in (*case.forward, *case.backward)}
    assert found == set(JsonDifferenceType)


def test_incompatible_differences_have_messages() -> None:
    for case in CASES.values():
        for writer, reader, expected in (
            (case.first, case.second, case.forward),
            (case.second, case.first, case.backward),
        ):
            messages = find_incompatibilities(writer, reader, case.drafts[0])
            types = sorted(
                each.split(" ")[0] for each in expected if JsonDifferenceType(each.split(" ")[0]) not in COMPATIBLE
            )
            assert sorted(message.split('"')[1] for message in messages) == types
            assert all(message.count("%s") == 2 for message in messages), messages


def test_message_is_worded_like_confluents() -> None:
    assert find_incompatibilities(has(a=STRING), has(a=INTEGER)) == [
        '{errorType:"TYPE_CHANGED", description:"A type at path \'#/properties/a\' is different between the %s schema '
        "and the %s schema'}"
    ]


# References


def test_reference_is_compared_like_the_schema_to_which_it_refers() -> None:
    writer = {"definitions": {"a": {"$ref": "#/definitions/b"}, "b": INTEGER}, **has(x={"$ref": "#/definitions/a"})}
    assert find_differences(writer, has(x=NUMBER)) == ["TYPE_EXTENDED #/properties/x"]
    assert find_differences(has(x=NUMBER), writer) == ["TYPE_NARROWED #/properties/x"]


def test_reference_to_another_document_is_compared_with_its_schema() -> None:
    text = json.dumps({"$schema": DRAFT_7, **has(x={"$ref": "x.json#/definitions/y"})})
    old = [ResolvedReference("x.json", json.dumps({"definitions": {"y": INTEGER}}))]
    new = [ResolvedReference("x.json", json.dumps({"definitions": {"y": STRING}}))]
    assert len(parse(text, new).find_incompatibilities(parse(text, old))) == 1
    assert parse(text, old).find_incompatibilities(parse(text, old)) == []


def test_references_that_refer_only_to_each_other_accept_any_value() -> None:
    schema = {"definitions": {"a": {"$ref": "#/definitions/b"}, "b": {"$ref": "#/definitions/a"}}}
    assert find_differences(STRING, {**schema, "$ref": "#/definitions/a"}) == []


def recursive(*kinds: str) -> Schema:
    """Return a schema of T0 or T1, where T0 contains T2 and T2 contains T0."""
    targets = ("T2", "T2", "T0")
    definitions = {
        f"T{number}": has(id={"type": kind}, next={"oneOf": [{"$ref": f"#/definitions/{target}"}]})
        for number, (kind, target) in enumerate(zip(kinds, targets, strict=True))
    }
    union = {"oneOf": [{"$ref": "#/definitions/T0"}, {"$ref": "#/definitions/T1"}]}
    return {"definitions": definitions, **has(root=union)}


@pytest.mark.parametrize("draft", DRAFTS)
def test_incompatibility_in_a_cycle_is_found_though_the_cycle_was_assumed_to_be_compatible(draft: str) -> None:
    writer, reader = recursive("integer", "boolean", "integer"), recursive("boolean", "number", "integer")
    assert find_incompatibilities(writer, reader, draft)
    assert find_differences(writer, writer, draft) == []


# Limits


def repeat_references(depth: int, kind: str) -> Schema:
    """Return a schema in which each definition refers to the next one twice."""
    definitions: dict[str, Schema] = {
        f"d{level}": has(a={"$ref": f"#/definitions/d{level + 1}"}, b={"$ref": f"#/definitions/d{level + 1}"})
        for level in range(depth)
    }
    return {"definitions": {**definitions, f"d{depth}": {"type": kind}}, "$ref": "#/definitions/d0"}


@pytest.mark.parametrize("draft", [DRAFT_7, DRAFT_2020_12])
def test_differences_are_limited_if_references_multiply_them(draft: str) -> None:
    writer, reader = repeat_references(60, "string"), repeat_references(60, "number")
    assert len(find_differences(writer, reader, draft)) == DIFFERENCES_MAX
    assert len(find_incompatibilities(writer, reader, draft)) == DIFFERENCES_MAX


def test_messages_are_limited_if_names_are_long() -> None:
    names = [f"{number}{'x' * (MESSAGES_CHARACTERS_MAX // 4)}" for number in range(6)]
    writer, reader = has(**dict.fromkeys(names, STRING)), has(**dict.fromkeys(names, NUMBER))
    assert 1 < len(find_incompatibilities(writer, reader)) < len(names)


def test_unions_of_many_types_that_refer_to_each_other_are_compared() -> None:
    def build(kind: str) -> Schema:
        union = {"oneOf": [{"$ref": f"#/definitions/T{number}"} for number in range(30)]}
        types = {f"T{number}": has(kind={"const": number}, a=union, b=union) for number in range(30)}
        types["T0"]["properties"]["kind"] = {"type": kind}
        return {"definitions": types, **has(root=union)}

    assert find_differences(build("string"), build("string")) == []
    assert len(find_incompatibilities(build("string"), build("null"))) == 1


def test_comparison_with_too_many_steps_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    def build(bound: str, count: int) -> Schema:
        return {"oneOf": [{"title": str(number), bound: number} for number in range(count)]}

    monkeypatch.setattr(comparison, "STEPS_MAX", 1000)
    assert find_incompatibilities(build("minimum", 30), build("maximum", 30))
    writer, reader = build("minimum", 33), build("maximum", 33)
    with pytest.raises(InvalidSchemaError, match="too complex to compare"):
        find_incompatibilities(writer, reader)


def test_pattern_that_re2_lacks_is_an_error_if_a_comparison_needs_it() -> None:
    writer = {"type": "object", "patternProperties": {"^(?=a)": STRING}, "additionalProperties": False}
    with pytest.raises(InvalidSchemaError, match="regular expression '\\^\\(\\?=a\\)' is not supported"):
        find_incompatibilities(writer, {**writer, "properties": {"ab": STRING}})
    assert find_incompatibilities(writer, writer) == []


def test_numbers_with_huge_exponents_are_compared() -> None:
    texts = ('{"multipleOf": 1e999999999}', '{"multipleOf": 3e-999999999}')
    first, second = (parse(text, []) for text in texts)
    assert "MULTIPLE_OF_CHANGED" in first.find_incompatibilities(second)[0]
    assert "MULTIPLE_OF_CHANGED" in second.find_incompatibilities(first)[0]

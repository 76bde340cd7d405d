"""Tests of Spark SQL types as text."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chronik.errors import ConfigError
from chronik.pipeline.tables.values.column_names import get_json_key
from chronik.pipeline.tables.values.sql_types import (
    SIMPLE_TYPES,
    SqlType,
    format_sql_type,
    get_json_format,
    parse_sql_columns,
    parse_sql_type,
)

JSON = SqlType(pa.string(), "json")


@pytest.mark.parametrize("name", sorted(SIMPLE_TYPES))
def test_simple_type_is_parsed_in_any_case(name: str) -> None:
    assert parse_sql_type(name) == parse_sql_type(f"  {name.upper()} ") == SqlType(SIMPLE_TYPES[name])


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("byte", "tinyint"),
        ("short", "smallint"),
        ("integer", "int"),
        ("long", "bigint"),
        ("real", "float"),
        ("timestamp_ltz", "timestamp"),
        ("decimal", "decimal(10,0)"),
        ("numeric( 5 )", "decimal(5,0)"),
        ("dec(38,38)", "decimal(38,38)"),
        ("array<array<json>>", "array<array<json>>"),
        ("map<string,struct<a int>>", "map<string, struct<a: int>>"),
        ("struct<id: bigint, `first name`: string>", "struct<id: bigint, `first name`: string>"),
        ("struct<`a``b` : map<string, timestamp_ntz>>", "struct<`a``b`: map<string, timestamp_ntz>>"),
        ("struct<``: bigint>", "struct<``: bigint>"),
        ("struct<`` bigint, ```` : int>", "struct<``: bigint, ````: int>"),
        ("struct<id:bigint,Id:string>", "struct<id: bigint, Id: string>"),
        ("ARRAY<STRUCT<x: DATE>>", "array<struct<x: date>>"),
    ],
)
def test_type_is_formatted_in_canonical_form(text: str, canonical: str) -> None:
    parsed = parse_sql_type(text)
    assert format_sql_type(*parsed) == canonical
    assert parse_sql_type(canonical) == parsed


def build_structs(types: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    name = st.text(max_size=3) | st.sampled_from(["array", "int", "", "`", "``", "a`"])
    names = st.lists(name, min_size=1, max_size=3, unique=True)

    def join(fields: list[tuple[str, str]]) -> str:
        return ", ".join(f"`{name.replace('`', '``')}`: {each}" for name, each in fields)

    fields = names.flatmap(lambda found: st.tuples(*(st.tuples(st.just(name), types) for name in found)))
    return fields.map(lambda found: f"struct<{join(list(found))}>")


SCALARS = st.sampled_from([*SIMPLE_TYPES, "json", "decimal(5,2)"])
TYPES = st.recursive(
    SCALARS,
    lambda types: (
        types.map(lambda each: f"array<{each}>") | types.map(lambda each: f"map<string, {each}>") | build_structs(types)
    ),
    max_leaves=6,
)


@settings(deadline=None)
@given(TYPES)
def test_every_formatted_type_is_parsed_again(text: str) -> None:
    parsed = parse_sql_type(text)
    printed = format_sql_type(*parsed)
    again = parse_sql_type(printed)
    assert again == parsed
    assert format_sql_type(*again) == printed
    assert parse_sql_columns(f"`` {printed}, id: {printed}") == [("", parsed), ("id", parsed)]


def test_json_is_string_with_format() -> None:
    assert parse_sql_type("json") == JSON
    element = parse_sql_type("array<json>").data_type.value_field
    assert (element.name, element.type, get_json_format(element)) == ("element", pa.string(), "json")


def test_nested_field_with_invalid_name_is_renamed() -> None:
    fields = list(parse_sql_type("struct<`a b`: int, `a.b`: int, ID: int, id: int>").data_type)
    assert [field.name for field in fields] == ["a_b", "a_b_2", "ID", "id_2"]
    assert [get_json_key(field) for field in fields] == ["a b", "a.b", "ID", "id"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "expected a type"),
        ("bigin", "did you mean 'bigint'?"),
        ("text", "unknown type 'text'"),
        ("int int", "character 5: expected the end"),
        ("array<int", "expected '>'"),
        ("array", "expected '<'"),
        ("map<int, string>", "use map<string, …>"),
        ("map<string>", "expected ','"),
        ("struct<>", "expected a name"),
        ("struct<a>", "expected a type"),
        ("struct<a int, a string>", "the name 'a' occurs twice"),
        ("decimal(39)", "at most 38 digits"),
        ("decimal(0)", "invalid decimal(0,0)"),
        ("decimal(5,6)", "invalid decimal(5,6)"),
        ("decimal(a)", "expected a number instead of 'a'"),
        ("decimal(5,-1)", "expected a number"),
        ("variant", "use json"),
        ("int; drop", "expected the end"),
        ("`int", "expected a type"),
    ],
)
def test_invalid_type_is_rejected_with_its_position(text: str, reason: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_sql_type(text)
    message = str(caught.value)
    assert reason in message
    assert message.startswith(f"invalid type {text!r}, character ")
    assert "\n" not in message


def test_columns_are_parsed_in_order() -> None:
    assert parse_sql_columns("id bigint, `first name` string, raw: json") == [
        ("id", SqlType(pa.int64())),
        ("first name", SqlType(pa.string())),
        ("raw", JSON),
    ]


@pytest.mark.parametrize("text", ["", "id", "id bigint,", "id bigint name string", "id bigint, id int"])
def test_invalid_column_list_is_rejected(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_sql_columns(text)


@pytest.mark.parametrize(
    ("data_type", "name"),
    [
        (pa.large_string(), "string"),
        (pa.string_view(), "string"),
        (pa.large_binary(), "binary"),
        (pa.large_list(pa.int8()), "array<tinyint>"),
        (pa.timestamp("ns"), "timestamp_ntz"),
        (pa.timestamp("ms", tz="UTC"), "timestamp"),
        (pa.uint8(), "uint8"),
    ],
)
def test_other_arrow_type_is_formatted_as_nearest_sql_type(data_type: pa.DataType, name: str) -> None:
    assert format_sql_type(data_type) == name

"""Tests of declared schemas: documents, names, paths and error messages."""

from __future__ import annotations

import json
import math
import tomllib
from datetime import date, datetime, time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from chronik.errors import ConfigError
from chronik.pipeline.tables.layout import RESERVED_NAMES
from chronik.pipeline.tables.values.column_names import NAME_CHARACTERS_MAX, choose_column_name, find_name_problem
from chronik.pipeline.tables.values.schema_text import format_schema_toml
from chronik.pipeline.tables.values.sql_types import format_sql_type, parse_sql_type
from chronik.pipeline.tables.values.table_schema import (
    COLUMNS_MAX,
    INFERRED,
    Column,
    InvalidValues,
    TableSchema,
    UnknownFields,
    build_schema_document,
    count_leaf_columns,
    format_path,
    is_declared,
    parse_path,
    parse_schema_document,
    parse_schema_json,
    parse_schema_text,
    read_schema,
    restore_column_from_field,
)
from tests.pipeline.tables.random_json import table_of

DOCUMENT: dict[str, Any] = {
    "unknown_fields": "drop",
    "invalid_values": "cast",
    "name": "web_orders",
    "comment": "Orders of the shop.",
    "properties": {"owner": "sales"},
    "columns": {
        "id": "bigint",
        "amount": {"type": "decimal(10,2)", "required": True, "format": "string", "invalid_values": "dead_letter"},
        "customer_id": {"type": "bigint", "path": "$.customer.id", "comment": "as in CRM"},
        "first_name": {"type": "string", "path": "$.customer['first name']", "default": "unknown"},
        "is_new": {"type": "boolean", "default": False},
        "count": {"type": "int", "default": 0},
        "ordered": {"type": "timestamp", "zone": "Europe/Berlin"},
        "raw": {"type": "json", "path": "$.raw-data"},
        "items": "array<struct<`item no`: bigint, tags: map<string, json>>>",
        "empty": {"type": "string", "path": "$['']"},
        "quoted": {"type": "string", "path": '$["it\'s"].x'},
    },
}


def test_schema_document_is_parsed_completely() -> None:
    schema = parse_schema_document(DOCUMENT)
    assert (schema.unknown_fields, schema.invalid_values) == (UnknownFields.DROP, InvalidValues.CAST)
    assert (schema.name, schema.comment) == ("web_orders", "Orders of the shop.")
    assert schema.properties == {"owner": "sales"}
    columns = {column.name: column for column in schema.columns}
    assert list(columns) == list(DOCUMENT["columns"])
    assert columns["id"] == Column("id", pa.int64(), ("id",))
    assert columns["amount"] == Column(
        "amount", pa.decimal128(10, 2), ("amount",), "string", required=True, invalid_values=InvalidValues.DEAD_LETTER
    )
    assert columns["customer_id"] == Column("customer_id", pa.int64(), ("customer", "id"), comment="as in CRM")
    assert columns["first_name"] == Column("first_name", pa.string(), ("customer", "first name"), default="unknown")
    assert columns["ordered"].zone == "Europe/Berlin"
    assert columns["raw"] == Column("raw", pa.string(), ("raw-data",), "json")
    assert (columns["is_new"].default, columns["count"].default) == (False, 0)
    assert (columns["empty"].path, columns["quoted"].path) == (("",), ("it's", "x"))


def test_schema_is_restored_from_its_document() -> None:
    schema = parse_schema_document(DOCUMENT)
    assert build_schema_document(schema) == DOCUMENT
    assert parse_schema_json(json.dumps(build_schema_document(schema))) == schema
    assert parse_schema_document(tomllib.loads(format_schema_toml(schema))) == schema


def test_schema_is_restored_from_fields_of_table() -> None:
    schema = parse_schema_document(DOCUMENT)
    table = table_of(schema)
    assert schema.resolve_columns(table) == INFERRED.resolve_columns(table) == schema.columns
    assert [is_declared(table.field(column.name)) for column in schema.columns] == [True] * len(schema.columns)
    added = Column("new", pa.int64(), ("a new field",)).to_field(is_declared=False)
    assert (is_declared(added), restore_column_from_field(added).path) == (False, ("a new field",))


@pytest.mark.parametrize(
    "sql_type",
    [
        "array<json>",
        "map<string, json>",
        "struct<a: array<json>, b: bigint>",
        "array<struct<m: map<string, array<json>>>>",
    ],
)
def test_type_is_restored_without_metadata_of_elements(sql_type: str) -> None:
    """Delta tables have no metadata of list elements and map values."""
    column = Column("c", parse_sql_type(sql_type).data_type, ("c",))
    field = column.to_field()
    stored = field.with_type(remove_element_metadata(field.type))
    assert format_sql_type(stored.type) == sql_type.replace("json", "string")
    assert restore_column_from_field(stored).type_name == sql_type


def remove_element_metadata(data_type: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(data_type):
        return pa.struct([field.with_type(remove_element_metadata(field.type)) for field in data_type])
    if pa.types.is_map(data_type):
        return pa.map_(pa.string(), remove_element_metadata(data_type.item_type))
    return pa.list_(remove_element_metadata(data_type.value_type)) if pa.types.is_list(data_type) else data_type


def test_empty_document_rescues_all_fields() -> None:
    schema = parse_schema_document({})
    assert schema == TableSchema((), UnknownFields.RESCUE, InvalidValues.RESCUE)
    assert INFERRED.unknown_fields is UnknownFields.COLUMN


def test_empty_comment_is_no_comment() -> None:
    schema = parse_schema_document({"comment": "", "columns": {"id": {"type": "bigint", "comment": ""}}})
    assert schema == parse_schema_document({"columns": {"id": "bigint"}})
    assert schema.resolve_columns(table_of(schema)) == schema.columns


def test_default_of_nested_json_values_is_kept() -> None:
    default = {"a": [1, 0.5, "x", None, True, {}]}
    (column,) = parse_schema_document({"columns": {"a": {"type": "json", "default": default}}}).columns
    assert column.default == default
    assert restore_column_from_field(column.to_field()) == column


def test_column_list_is_parsed_with_names_of_fields() -> None:
    schema = parse_schema_text("id bigint, `first name` string, ID string, _offset int, raw json")
    assert [(column.name, column.path) for column in schema.columns] == [
        ("id", ("id",)),
        ("first_name", ("first name",)),
        ("ID_2", ("ID",)),
        ("_offset_2", ("_offset",)),
        ("raw", ("raw",)),
    ]
    assert (schema.unknown_fields, schema.columns[4].format) == (UnknownFields.RESCUE, "json")


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        ({"column": {}}, "schema: unknown key 'column'; did you mean 'columns'?"),
        ({"xyz": 1}, "schema: unknown key 'xyz'; expected columns,"),
        ({"columns": []}, 'columns: expected a table, such as [columns] id = "bigint"'),
        ({"columns": {"id": 5}}, "column 'id': expected a type, such as id = \"bigint\""),
        ({"columns": {"id": {"path": "$.id"}}}, "column 'id': expected a type"),
        ({"columns": {"id": "bigin"}}, "did you mean 'bigint'?"),
        ({"columns": {"id": {"type": "bigint", "requird": True}}}, "did you mean 'required'?"),
        ({"columns": {"id": {"type": "bigint", "required": "yes"}}}, "required: expected true or false"),
        ({"columns": {"id": {"type": "bigint", "format": 5}}}, "format: expected a text"),
        ({"columns": {"id": {"type": "bigint", "path": "id"}}}, "invalid path 'id': expected a path such as $."),
        ({"columns": {"id": {"type": "bigint", "path": "$.a[0]"}}}, "paths into lists are not supported; use an array"),
        ({"columns": {"id": {"type": "bigint", "path": 5}}}, "path: expected a text such as $.customer.id"),
        ({"columns": {"id": {"type": "bigint", "invalid_values": "fail"}}}, "expected rescue, dead_letter, cast"),
        ({"columns": {"id": {"type": "bigint", "required": True, "default": 1}}}, "a required column has no default"),
        ({"columns": {"a b": "bigint"}}, "column 'a b': the name is not a valid column name"),
        ({"columns": {"_offset": "bigint"}}, "column '_offset': the name is reserved"),
        ({"columns": {"id": "bigint", "ID": "bigint"}}, "the name differs from column 'id' only in case"),
        ({"columns": {"a": {"type": "string", "path": "$['x\"y']"}}}, "quote, backslash or control character"),
        ({"columns": {"a": "struct<`x\\y`: int>"}}, "quote, backslash or control character"),
        ({"columns": {"a": {"type": "json", "default": date(2026, 1, 1)}}}, "default: a date is not a JSON value"),
        ({"columns": {"a": {"type": "date", "default": date(2026, 1, 1)}}}, 'write it as a text: "2026-01-01"'),
        ({"columns": {"a": {"type": "json", "default": {"x": [time(9)]}}}}, "default: a time is not a JSON value"),
        ({"columns": {"a": {"type": "json", "default": [datetime(2026, 1, 1)]}}}, 'as a text: "2026-01-01T00:00:00"'),
        ({"columns": {"a": {"type": "double", "default": math.nan}}}, "column 'a': default: nan is not a JSON value"),
        ({"columns": {"a": {"type": "float", "default": -math.inf}}}, "default: -inf is not a JSON value"),
        ({"columns": {"a": {"type": "json", "default": {"x": math.inf}}}}, "default: inf is not a JSON value"),
        ({"unknown_fields": "ignore"}, "invalid unknown_fields = 'ignore': expected column, rescue, drop"),
        ({"invalid_values": "deadletter"}, "did you mean 'dead_letter'?"),
        ({"properties": {"a": 1}}, "properties: expected texts"),
        ({"properties": {"chronik.topic": "a"}}, "properties: chronik.topic is reserved"),
        ({"properties": {"delta.appendOnly": "true"}}, "properties: delta.appendOnly is reserved"),
        ({"comment": 5}, "comment: expected a text"),
        ({"comment": "x" * 4001}, "comment: at most 4000 characters"),
        ({"name": "web.orders"}, "name: expected at most 128 letters, digits and underscores, not 'web.orders'"),
        ({"name": ""}, "name: expected at most 128 letters"),
    ],
)
def test_invalid_document_is_rejected_in_one_line(document: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_schema_document(document)
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)


def test_stored_schema_may_have_a_name_that_was_not_reserved() -> None:
    document = {"columns": {"_file": "string"}}
    with pytest.raises(ConfigError, match="column '_file': the name is reserved"):
        parse_schema_document(document)
    assert parse_schema_document(document, is_stored=True).columns[0].name == "_file"
    with pytest.raises(ConfigError, match="the name is reserved"):
        parse_schema_document({"columns": {"_offset": "bigint"}}, is_stored=True)


@pytest.mark.parametrize("number", ["NaN", "-Infinity", "1e999"])
def test_number_that_json_does_not_have_is_rejected_as_default(number: str) -> None:
    with pytest.raises(ConfigError, match="is not a JSON value"):
        parse_schema_json(f'{{"columns": {{"a": {{"type": "double", "default": {number}}}}}}}')


@pytest.mark.parametrize("text", ["", "[]", "5", '{"columns": {"id": "bigint"}'])
def test_schema_that_is_not_a_json_object_is_rejected(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_schema_json(text)


def test_schema_is_read_from_toml_json_or_text(tmp_path: Path) -> None:
    schema = parse_schema_document(DOCUMENT)
    (tmp_path / "orders.toml").write_text(format_schema_toml(schema), encoding="utf-8")
    (tmp_path / "orders.json").write_text(json.dumps(DOCUMENT), encoding="utf-8")
    assert read_schema(str(tmp_path / "orders.toml")) == read_schema(str(tmp_path / "orders.json")) == schema
    assert read_schema("id bigint") == parse_schema_text("id bigint")


@pytest.mark.parametrize("content", [b"columns = [", b"\xff", b"colums = {}", None])
def test_unreadable_schema_file_is_reported_with_its_name(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "orders.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"orders\.toml: "):
        read_schema(str(path))


def test_schema_with_too_many_columns_is_rejected() -> None:
    fields = ", ".join(f"f{number}: int" for number in range(COLUMNS_MAX - 1))
    assert parse_schema_document({"columns": {"a": f"array<struct<{fields}>>", "b": "int"}})
    with pytest.raises(ConfigError, match=f"more than {COLUMNS_MAX} columns"):
        parse_schema_document({"columns": {"a": f"array<struct<{fields}>>", "b": "int", "c": "int"}})


@pytest.mark.parametrize(
    ("data_type", "leaves"),
    [("int", 1), ("array<int>", 1), ("struct<a int, b struct<c int, d int>>", 3), ("map<string, struct<a int>>", 1)],
)
def test_leaves_of_nested_types_are_counted(data_type: str, leaves: int) -> None:
    assert count_leaf_columns(parse_sql_type(data_type).data_type) == leaves


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("$.id", ("id",)),
        ("$.customer.id", ("customer", "id")),
        ("$['first name'].x", ("first name", "x")),
        ('$["a.b"]["c"]', ("a.b", "c")),
        ("$.größe.日本", ("größe", "日本")),
        ("$['a]b']", ("a]b",)),
        ("$.a-b", ("a-b",)),
        ("$['']", ("",)),
    ],
)
def test_path_is_parsed(text: str, path: tuple[str, ...]) -> None:
    assert parse_path(text) == path
    assert parse_path(format_path(path)) == path


@pytest.mark.parametrize("key", ["a", "first name", "it's", "a']['b", "a.b", "", "$", "[0]", "a]", "`", "-a", "\x7f"])
def test_path_with_any_key_is_restored_from_its_text(key: str) -> None:
    for path in ((key,), (key, "x"), ("x", key)):
        assert parse_path(format_path(path)) == path


@pytest.mark.parametrize(
    "text", ["", "$", "id", "$.", "$..a", "$.a.", "$.a b", "$['a", "$.a[0]", "$.a[*]", "$[]", None]
)
def test_invalid_path_is_rejected(text: Any) -> None:
    with pytest.raises(ConfigError):
        parse_path(text)


@pytest.mark.parametrize(
    ("first", "second"),
    [("$.a", "$.a"), ("$.a", "$.a.b"), ("$.a.b.c", "$.a"), ("$.a.b", "$['a']['b']")],
)
def test_overlapping_paths_are_rejected(first: str, second: str) -> None:
    columns = {"x": {"type": "string", "path": first}, "y": {"type": "string", "path": second}}
    with pytest.raises(ConfigError, match=r"('x' and 'y'|'y' and 'x') overlap"):
        parse_schema_document({"columns": columns})


def test_paths_with_common_parent_do_not_overlap() -> None:
    columns = {"x": {"type": "int", "path": "$.a.b"}, "y": {"type": "int", "path": "$.a.bc"}, "a": "int"}
    assert parse_schema_document({"columns": {name: columns[name] for name in "xy"}})
    with pytest.raises(ConfigError, match="overlap"):
        parse_schema_document({"columns": columns})


@pytest.mark.parametrize("name", sorted(RESERVED_NAMES))
def test_reserved_name_gets_suffix(name: str) -> None:
    assert find_name_problem(name.upper(), (), RESERVED_NAMES) == "the name is reserved"
    assert choose_column_name(name, ()) == f"{name}_2"
    assert choose_column_name(name.upper(), (f"{name}_2",)) == f"{name.upper()}_3"


@pytest.mark.parametrize(
    ("source", "name"),
    [("id", "id"), ("_id", "_id"), ("größe", "größe"), ("first name", "first_name"), ("a.b", "a_b"), ("", "_")],
)
def test_column_name_is_chosen_near_field_name(source: str, name: str) -> None:
    assert choose_column_name(source, ()) == name


@pytest.mark.parametrize("name", ["", "a b", "a,b", "a=b", "a.b", "a`b", "a\nb", "a\x00b", "a;b", "a(b)", "x" * 256])
def test_invalid_name_is_replaced_by_valid_one(name: str) -> None:
    assert find_name_problem(name, ()) == "the name is not a valid column name"
    assert find_name_problem(choose_column_name(name, ()), ()) is None


def test_taken_name_gets_first_free_suffix() -> None:
    assert choose_column_name("ID", ["id", "id_2"]) == "ID_3"
    long_name = "x" * (NAME_CHARACTERS_MAX + 10)
    shortened = choose_column_name(long_name, ())
    assert shortened == "x" * NAME_CHARACTERS_MAX
    assert choose_column_name(long_name, [shortened]) == "x" * (NAME_CHARACTERS_MAX - 2) + "_2"


@pytest.mark.parametrize(
    ("document", "rejects"),
    [
        ({}, False),
        ({"columns": {"id": "bigint"}}, False),
        ({"columns": {"id": {"type": "bigint", "required": True}}}, True),
        ({"columns": {"id": {"type": "bigint", "invalid_values": "dead_letter"}}}, True),
        ({"invalid_values": "dead_letter"}, True),
        ({"invalid_values": "cast"}, False),
    ],
)
def test_schema_reports_whether_it_rejects_records(document: dict[str, Any], rejects: bool) -> None:
    assert parse_schema_document(document).rejects_records is rejects

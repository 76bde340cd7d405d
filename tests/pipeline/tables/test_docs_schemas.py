"""Tests of the tables "What is inferred" and "What lands where" in docs/guides/schemas.md: each row is tried."""

from __future__ import annotations

import json
import re
from typing import Any

import pyarrow as pa
import pytest

from chronik.pipeline.tables.layout import RESCUED
from chronik.pipeline.tables.values.json_decoder import JsonDecoder
from chronik.pipeline.tables.values.row_decoder import infer_statistics
from chronik.pipeline.tables.values.schema_evolution import plan_new_columns
from chronik.pipeline.tables.values.table_schema import (
    INFERRED,
    TableSchema,
    parse_schema_document,
    restore_column_from_field,
)
from tests.docs.blocks import ROOT

PAGE = ROOT / "docs" / "guides" / "schemas.md"


def read_rows(heading: str = "What lands where") -> list[list[str]]:
    """Return the cells of the rows of the table under a heading."""
    section = PAGE.read_text(encoding="utf-8").partition(f"## {heading}")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| ")][1:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


WITH: dict[str, dict[str, Any]] = {
    "name string": {"columns": {"name": "string"}},
    "name string` and `cast": {"columns": {"name": "string"}, "invalid_values": "cast"},
    "id bigint": {"columns": {"id": "bigint"}},
    "x double": {"columns": {"x": "double"}},
    "user struct<id: bigint>": {"columns": {"user": "struct<id: bigint>"}},
    "user struct<id: bigint, name: string>": {"columns": {"user": "struct<id: bigint, name: string>"}},
    "ids array<bigint>": {"columns": {"ids": "array<bigint>"}},
    "user_id bigint` from `$.user.id": {"columns": {"user_id": {"type": "bigint", "path": "$.user.id"}}},
    "": {"columns": {"a": "bigint"}},
}
"""The schemas of the first column, as it names them."""


def parse_case(cell: str) -> tuple[bytes, TableSchema]:
    """Return the value and the schema that a cell such as "`{…}`, with `name string`" describes."""
    value, _, rest = cell.partition("`, with `")
    return value.strip("`").encode(), parse_schema_document(WITH[rest.strip("`")])


CASES = [cells for cells in read_rows() if cells[0].startswith("`{")]


def test_all_rows_but_two_are_values() -> None:
    assert [cells[0] for cells in read_rows() if cells not in CASES] == [
        "no JSON object, or nested more than 200 levels deep",
        "takes more than 16 MiB in columns, and more than 64 times its bytes",
    ]
    assert len(CASES) >= 11


@pytest.mark.parametrize("cells", CASES, ids=lambda cells: cells[0])
def test_documented_value_lands_where_the_page_says(cells: list[str]) -> None:
    value, schema = parse_case(cells[0])
    fields = [column.to_field() for column in schema.columns]
    decoded = JsonDecoder(schema, pa.schema([*fields, pa.field(RESCUED, pa.string())])).decode([value])
    assert decoded.errors == {}
    found = decoded.columns[fields[0].name][0].as_py()
    rescued = decoded.columns[RESCUED][0].as_py()
    if cells[1].startswith("null"):
        assert found is None
    else:
        (shown,) = re.findall(r"`(.*?)`", cells[1])
        expected = shown if isinstance(found, str) else json.loads(shown)
        assert drop_nulls(found) == expected
    if cells[2] == "the value":
        assert json.loads(rescued) == json.loads(value)
    else:
        assert rescued == (cells[2].strip("`") or None)


@pytest.mark.parametrize("cells", read_rows("What is inferred"), ids=lambda cells: cells[0])
def test_documented_columns_are_inferred(cells: list[str]) -> None:
    values = [
        value.encode() for count, value in re.findall(r"(?:(\d+) × )?`(.*?)`", cells[0]) for _ in range(int(count or 1))
    ]
    table = pa.schema([pa.field(RESCUED, pa.string())])
    planned = plan_new_columns(INFERRED, table, infer_statistics(values)).added
    columns = [restore_column_from_field(field) for field in planned]
    assert ", ".join(f"{column.name} {column.type_name}" for column in columns) == cells[1].strip("`")
    decoded = JsonDecoder(INFERRED, pa.schema([*planned, *table])).decode(values)
    assert decoded.errors == {}
    assert [text for text in decoded.columns[RESCUED].to_pylist() if text] == re.findall(r"`(.*?)`", cells[2])


def drop_nulls(value: Any) -> Any:
    """Return the value without null fields, which the page does not show."""
    return {name: each for name, each in value.items() if each is not None} if isinstance(value, dict) else value


@pytest.mark.parametrize("value", [b"[1]", b"text", b'{"a":' * 201 + b"1" + b"}" * 201])
def test_value_that_is_no_object_becomes_a_dead_letter_record(value: bytes) -> None:
    decoded = JsonDecoder(TableSchema(), pa.schema([pa.field(RESCUED, pa.string())])).decode([value])
    assert list(decoded.errors) == [0]

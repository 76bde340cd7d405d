"""Tests of schema evolution: columns are only added, and rejected fields are reported and stay in `_rescued`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from chronik.pipeline.tables.commit_plan import PartitionRange, TaskOutput
from chronik.pipeline.tables.layout import RESCUED, RESERVED_NAMES, TableKind, build_table_batch
from chronik.pipeline.tables.parquet import PartitionedParquetWriter
from chronik.pipeline.tables.storage import TableStorage
from chronik.pipeline.tables.topic_table import TableSpec
from chronik.pipeline.tables.values.column_names import NAME_CHARACTERS_MAX, get_json_key
from chronik.pipeline.tables.values.field_statistics import DetectedType, FieldStatistics
from chronik.pipeline.tables.values.json_decoder import JsonDecoder
from chronik.pipeline.tables.values.row_decoder import infer_statistics
from chronik.pipeline.tables.values.schema_evolution import PlannedColumns, has_unchanged_columns, plan_new_columns
from chronik.pipeline.tables.values.sql_types import format_field_type, parse_sql_type
from chronik.pipeline.tables.values.table_schema import (
    COLUMNS_MAX,
    INFERRED,
    Column,
    is_declared,
    parse_schema_document,
    restore_column_from_field,
)
from tests.pipeline.table_fixtures import (
    SPEC,
    build_batch,
    expected_offsets,
    open_test_table,
    read_offsets,
    read_rows,
    write_task_output,
)
from tests.pipeline.tables.random_json import DECODED_TABLE, table_of

DECODED = TableSpec(SPEC.topic, SPEC.topic_id, TableKind.DECODED)


def statistics_of(*records: Any) -> FieldStatistics:
    return infer_statistics([json.dumps(record).encode() for record in records])


def plan_columns(table: pa.Schema, *records: Any) -> PlannedColumns:
    return plan_new_columns(INFERRED, table, statistics_of(*records))


def types_of(fields: Sequence[pa.Field]) -> dict[str, str]:
    return {field.name: format_field_type(field) for field in fields}


def with_column(name: str, sql_type: str) -> pa.Schema:
    return DECODED_TABLE.append(pa.field(name, parse_sql_type(sql_type).data_type))


def test_new_fields_become_last_columns() -> None:
    plan = plan_columns(DECODED_TABLE, {"id": 1, "name": "x", "mixed": 1}, {"mixed": "x"})
    assert types_of(plan.added) == {"id": "bigint", "name": "string", "mixed": "json"}
    assert plan.rejected == {}
    assert not any(is_declared(field) for field in plan.added)


def test_existing_column_keeps_its_type() -> None:
    plan = plan_columns(with_column("id", "bigint"), {"id": "x"})
    assert (plan.added, plan.rejected) == ((), {})


def test_types_in_strings_are_detected_on_request() -> None:
    statistics = statistics_of({"at": "2024-05-01T10:00:00Z", "n": "5"})
    plan = plan_new_columns(INFERRED, DECODED_TABLE, statistics, DetectedType)
    assert types_of(plan.added) == {"at": "timestamp", "n": "bigint"}
    assert restore_column_from_field(plan.added[1]).format == "string"


@pytest.mark.parametrize("own", sorted(RESERVED_NAMES))
def test_field_with_reserved_name_gets_another_name(own: str) -> None:
    plan = plan_columns(DECODED_TABLE, {own: "x", own.upper(): "y"})
    assert [(field.name, restore_column_from_field(field).path) for field in plan.added] == [
        (f"{own}_2", (own,)),
        (f"{own.upper()}_3", (own.upper(),)),
    ]


def test_other_underscore_names_are_kept() -> None:
    assert types_of(plan_columns(DECODED_TABLE, {"_id": "x"}).added) == {"_id": "string"}


def test_names_that_differ_only_in_case_get_suffix() -> None:
    plan = plan_columns(DECODED_TABLE, {"id": 1, "Id": 1})
    assert [field.name for field in plan.added] == ["id", "Id_2"]
    (added,) = plan_columns(with_column("id", "bigint"), {"ID": 1}).added
    assert (added.name, restore_column_from_field(added).path) == ("ID_2", ("ID",))


@pytest.mark.parametrize("name", ["", "a b", "a,b", "a=b", "a.b", "a`b", "a;b", "a(b)", "x" * 256])
def test_field_with_invalid_name_gets_valid_one_and_keeps_its_path(name: str) -> None:
    (added,) = plan_columns(DECODED_TABLE, {name: 1}).added
    assert 0 < len(added.name) <= NAME_CHARACTERS_MAX
    assert restore_column_from_field(added).path == (name,)
    decoded = JsonDecoder(INFERRED, DECODED_TABLE.append(added)).decode([json.dumps({name: 7}).encode()])
    assert (decoded.columns[added.name].to_pylist(), decoded.columns[RESCUED].to_pylist()) == ([7], [None])


@pytest.mark.parametrize("name", ["a\nb", "a\x00b", 'a"b', "a\\b"])
def test_name_that_parser_does_not_support_is_rejected(name: str) -> None:
    plan = plan_columns(DECODED_TABLE, {name: 1, "o": {name: 1, "x": 1}})
    assert types_of(plan.added) == {"o": "struct<x: bigint>"}
    assert list(plan.rejected.values()) == ["the name has a quote, backslash or control character"]


@pytest.mark.parametrize("value", [{}, [{}], {"a": {}}, [], None])
def test_value_without_type_is_not_a_column(value: Any) -> None:
    plan = plan_columns(DECODED_TABLE, {"empty": value})
    assert (plan.added, plan.rejected) == ((), {})


def test_column_limit_is_enforced_exactly() -> None:
    remaining_columns = COLUMNS_MAX - len(DECODED_TABLE) - 1  # headers have two fields
    plan = plan_columns(DECODED_TABLE, {f"f{number}": 1 for number in range(remaining_columns + 1)})
    assert len(plan.added) == remaining_columns
    assert plan.rejected == {f"$.f{remaining_columns}": f"the table would have more than {COLUMNS_MAX} columns"}


def test_nested_fields_are_added_and_counted() -> None:
    table = with_column("user", "struct<id: bigint>")
    plan = plan_columns(table, {"user": {"name": "x", "id": "x", "ID": 1, "a b": 1}})
    assert types_of(plan.added) == {"user": "struct<id: bigint, name: string, ID: bigint, `a b`: bigint>"}
    names = {field.name: get_json_key(field) for field in plan.added[0].type}
    assert names == {"id": "id", "name": "name", "ID_2": "ID", "a_b": "a b"}
    many = {f"user{number}": 1 for number in range(COLUMNS_MAX)}
    full = plan_columns(table, {"user": many, "users": many, "other": 1})
    assert set(full.rejected) == {"$.user", "$.users"}
    assert types_of(full.added) == {"other": "bigint"}


def test_objects_in_lists_are_extended() -> None:
    plan = plan_columns(with_column("l", "array<struct<a: bigint>>"), {"l": [{"b": 1}]})
    assert types_of(plan.added) == {"l": "array<struct<a: bigint, b: bigint>>"}


def test_extended_column_keeps_its_path() -> None:
    column = Column("user", parse_sql_type("struct<id: bigint>").data_type, ("the user",))
    plan = plan_columns(DECODED_TABLE.append(column.to_field(is_declared=False)), {"the user": {"name": "x"}})
    assert [restore_column_from_field(field).path for field in plan.added] == [("the user",)]
    assert types_of(plan.added) == {"user": "struct<id: bigint, name: string>"}


def test_new_field_next_to_declared_path_gets_own_column() -> None:
    schema = parse_schema_document(
        {"unknown_fields": "column", "columns": {"customer_id": {"type": "bigint", "path": "$.customer.id"}}}
    )
    statistics = statistics_of({"customer": {"id": "x", "name": "x"}, "customer_name": 1})
    plan = plan_new_columns(schema, table_of(schema), statistics)
    assert [(field.name, restore_column_from_field(field).path) for field in plan.added] == [
        ("customer_name", ("customer", "name")),
        ("customer_name_2", ("customer_name",)),
    ]


@pytest.mark.parametrize(
    ("table", "written", "fits"),
    [
        ("struct<a: bigint>", "struct<a: bigint>", True),
        ("struct<a: bigint, b: string>", "struct<a: bigint>", True),
        ("array<struct<a: bigint, b: string>>", "array<struct<a: bigint>>", True),
        ("struct<a: bigint>", "struct<a: bigint, b: string>", False),
        ("struct<a: string>", "struct<a: bigint>", False),
        ("bigint", "int", False),
    ],
)
def test_files_with_fewer_fields_can_be_added(table: str, written: str, fits: bool) -> None:
    assert has_unchanged_columns(with_column("f", table), with_column("f", written)) is fits
    assert has_unchanged_columns(with_column("f", table), DECODED_TABLE)
    assert not has_unchanged_columns(DECODED_TABLE, with_column("f", written))


def test_column_with_other_path_is_another_column() -> None:
    first, second = (Column("f", pa.int64(), (path,)).to_field() for path in ("a", "b"))
    assert has_unchanged_columns(pa.schema([first]), pa.schema([first]))
    assert not has_unchanged_columns(pa.schema([first]), pa.schema([second]))


# Delta tables


def test_schema_with_new_nested_fields_is_written_and_read(tmp_path: Path) -> None:
    committer = open_test_table(tmp_path, DECODED)
    batches: list[list[Any]] = [
        [{"user": {"id": 1}}, {"user": {"id": 2}}],
        [{"user": {"id": 3, "name": "x"}}, {"user": {"id": "four"}, "new": True}],
    ]
    for number, objects in enumerate(batches):
        span = PartitionRange(0, 2 * number, 2 * number + 2)
        values = [json.dumps(each).encode() for each in objects]
        schema = committer.add_columns(infer_statistics(values)).schema
        base = build_batch(span, schema)
        own = {name: base.column(index) for index, name in enumerate(base.schema.names)}
        columns = JsonDecoder(INFERRED, schema).decode(values).columns
        with PartitionedParquetWriter(TableStorage(str(tmp_path)), schema, ("_date",)) as writer:
            writer.write(build_table_batch(own | columns, schema))
        committer.commit([TaskOutput((span,), writer.files)], schema)
    table = read_rows(committer.snapshot()).sort_by("_offset")
    assert table["user"].to_pylist() == [
        {"id": 1, "name": None},
        {"id": 2, "name": None},
        {"id": 3, "name": "x"},
        {"id": None, "name": None},
    ]
    assert table["new"].to_pylist() == [None, None, None, True]
    assert table[RESCUED].to_pylist() == [None, None, None, '{"user":{"id":"four"}}']


def test_rows_older_than_a_column_are_null_in_it(tmp_path: Path) -> None:
    committer = open_test_table(tmp_path, DECODED)
    committer.commit([write_task_output(tmp_path, PartitionRange(0, 0, 2), schema=committer.snapshot().schema)])
    evolved = committer.add_columns(statistics_of({"price": 0.5, 'a"b': 1}))
    assert list(evolved.rejected) == ["$['a\"b']"]
    assert evolved.schema.field("price").type == pa.float64()
    assert committer.next_offsets() == {0: 2}
    committer.commit([write_task_output(tmp_path, PartitionRange(0, 2, 4), schema=evolved.schema)])
    table = read_rows(committer.snapshot())
    assert table.schema.field("price").type == pa.float64()
    assert read_offsets(committer.snapshot()) == expected_offsets(PartitionRange(0, 0, 4))


def test_nested_columns_can_be_added_and_written(tmp_path: Path) -> None:
    committer = open_test_table(tmp_path, DECODED)
    evolved = committer.add_columns(statistics_of({"address": {"street": "x", "numbers": [1]}}))
    assert format_field_type(evolved.schema.field("address")) == "struct<street: string, numbers: array<bigint>>"
    committer.commit([write_task_output(tmp_path, PartitionRange(0, 0, 2), schema=evolved.schema)])
    assert read_rows(committer.snapshot())["address"].to_pylist() == [None, None]


def test_table_keeps_paths_and_formats_of_columns(tmp_path: Path) -> None:
    records = [{"first name": {"last name": 1, "mixed": 1}, "mixed": 1}, {"first name": {"mixed": "x"}, "mixed": "x"}]
    values = [json.dumps(each).encode() for each in records]
    open_test_table(tmp_path, DECODED).add_columns(infer_statistics(values))
    open_test_table(tmp_path, DECODED).add_columns(statistics_of({"first name": {"new": 1}}))
    schema = open_test_table(tmp_path, DECODED).snapshot().schema
    assert types_of([schema.field("first_name"), schema.field("mixed")]) == {
        "first_name": "struct<`last name`: bigint, mixed: json, new: bigint>",
        "mixed": "json",
    }
    assert restore_column_from_field(schema.field("first_name")).path == ("first name",)
    decoded = JsonDecoder(INFERRED, schema).decode(values)
    assert decoded.columns[RESCUED].to_pylist() == [None, None]
    assert decoded.columns["mixed"].to_pylist() == ["1", '"x"']


def test_table_keeps_formats_of_elements_and_map_values(tmp_path: Path) -> None:
    values = [b'{"l":[1,"x"],"o":{"p":[[1],["x"],[2],[true]]}}']
    committer = open_test_table(tmp_path, DECODED)
    committer.add_columns(infer_statistics(values))
    committer.add_columns(statistics_of({"o": {"q": [1, "x"]}}))
    schema = committer.snapshot().schema
    columns = {column.name: column for column in INFERRED.resolve_columns(schema)}
    assert columns["l"].type_name == "array<json>"
    assert columns["o"].type_name == "struct<p: array<array<json>>, q: array<json>>"
    decoded = JsonDecoder(INFERRED, schema).decode(values)
    assert decoded.columns["l"].to_pylist() == [["1", '"x"']]
    assert decoded.columns[RESCUED].to_pylist() == [None]
    base = build_batch(PartitionRange(0, 0, 1), schema)
    own = {name: base.column(index) for index, name in enumerate(base.schema.names)}
    assert build_table_batch(own | decoded.columns, schema).schema == schema


def test_adding_existing_columns_creates_no_version(tmp_path: Path) -> None:
    committer = open_test_table(tmp_path, DECODED)
    committer.add_columns(statistics_of({"id": 1}))
    before = committer.snapshot().version
    assert committer.add_columns(statistics_of({"id": "x"})).schema.field("id").type == pa.int64()
    assert committer.snapshot().version == before


def test_concurrent_drivers_add_all_their_columns(tmp_path: Path) -> None:
    open_test_table(tmp_path, DECODED)
    values = [1, "x", 0.5]

    def add(number: int) -> pa.Schema:
        statistics = statistics_of({"common": values[number], f"own{number}": 1})
        return open_test_table(tmp_path, DECODED).add_columns(statistics).schema

    with ThreadPoolExecutor(3) as drivers:
        seen = list(drivers.map(add, range(3)))
    schema = open_test_table(tmp_path, DECODED).snapshot().schema
    assert {"common", "own0", "own1", "own2"} <= set(schema.names)
    assert {each.field("common").type for each in seen} == {schema.field("common").type}


def test_commit_succeeds_after_concurrent_column_addition(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    committer, other = open_test_table(tmp_path, DECODED), open_test_table(tmp_path, DECODED)
    schema = committer.snapshot().schema
    unit = write_task_output(tmp_path, PartitionRange(0, 0, 3), schema=schema)
    commit = DeltaTable.create_write_transaction
    attempts = []

    def commit_after_other(self: DeltaTable, *arguments: Any, **named: Any) -> None:
        attempts.append(1)
        if len(attempts) == 1:
            other.add_columns(statistics_of({"new": 1}))
        commit(self, *arguments, **named)

    monkeypatch.setattr(DeltaTable, "create_write_transaction", commit_after_other)
    assert committer.commit([unit], schema).rows == 3
    assert len(attempts) == 2
    assert "new" in committer.snapshot().schema.names

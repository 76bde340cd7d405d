"""Tests of schema evolution: columns are only added, and rejected fields are reported and stay in `_rescued`."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from chronik.pipeline.tables.commit_plan import PartitionRange
from chronik.pipeline.tables.layout import RESERVED_NAMES, TableKind, initial_schema
from chronik.pipeline.tables.topic_table import TableSpec
from chronik.pipeline.tables.values.schema_evolution import COLUMNS_MAX, NAME_CHARACTERS_MAX, plan_new_columns
from tests.pipeline.table_fixtures import (
    SPEC,
    expected_offsets,
    open_test_table,
    read_offsets,
    read_rows,
    write_task_output,
)

DECODED = TableSpec(SPEC.topic, SPEC.topic_id, TableKind.DECODED)
EMPTY = initial_schema(TableKind.DECODED)


def test_new_fields_become_last_columns() -> None:
    plan = plan_new_columns(EMPTY, [pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string())])
    assert plan.added == (pa.field("id", pa.int64()), pa.field("name", pa.string()))
    assert plan.rejected == {}


def test_existing_column_keeps_its_type() -> None:
    plan = plan_new_columns(EMPTY.append(pa.field("id", pa.int64())), [pa.field("id", pa.string())])
    assert (plan.added, plan.rejected) == ((), {})


@pytest.mark.parametrize("own", sorted(RESERVED_NAMES))
def test_reserved_column_names_are_rejected(own: str) -> None:
    plan = plan_new_columns(EMPTY, [pa.field(own, pa.string()), pa.field(own.upper(), pa.string())])
    assert set(plan.rejected) == {own, own.upper()}


def test_other_underscore_names_are_accepted() -> None:
    assert plan_new_columns(EMPTY, [pa.field("_id", pa.string())]).added == (pa.field("_id", pa.string()),)


def test_names_that_differ_only_in_case_are_rejected() -> None:
    plan = plan_new_columns(EMPTY, [pa.field("id", pa.int64()), pa.field("Id", pa.int64())])
    assert [field.name for field in plan.added] == ["id"]
    assert "'id' only in case" in plan.rejected["Id"]
    again = plan_new_columns(EMPTY.append(pa.field("id", pa.int64())), [pa.field("ID", pa.int64())])
    assert list(again.rejected) == ["ID"]


@pytest.mark.parametrize("name", ["", "a b", "a,b", "a=b", "a.b", "a`b", "a\nb", "a\x00b", "a;b", "a(b)", "x" * 256])
def test_invalid_column_names_are_rejected(name: str) -> None:
    assert list(plan_new_columns(EMPTY, [pa.field(name, pa.string())]).rejected) == [name]


def test_column_name_of_maximum_length_is_accepted() -> None:
    assert plan_new_columns(EMPTY, [pa.field("x" * NAME_CHARACTERS_MAX, pa.string())]).rejected == {}


@pytest.mark.parametrize("kind", [pa.struct([]), pa.list_(pa.struct([])), pa.struct([("a", pa.struct([]))])])
def test_object_without_fields_is_not_a_column(kind: pa.DataType) -> None:
    assert list(plan_new_columns(EMPTY, [pa.field("empty", kind)]).rejected) == ["empty"]


def test_column_limit_is_enforced_exactly() -> None:
    remaining_columns = COLUMNS_MAX - len(EMPTY) - 1  # headers have two fields
    fields = [pa.field(f"f{number}", pa.int64()) for number in range(remaining_columns + 1)]
    plan = plan_new_columns(EMPTY, fields)
    assert len(plan.added) == remaining_columns
    assert list(plan.rejected) == [f"f{remaining_columns}"]


def test_nested_fields_are_added_and_counted() -> None:
    schema = EMPTY.append(pa.field("user", pa.struct([("id", pa.int64())])))
    wanted = pa.struct([("name", pa.string()), ("id", pa.string()), ("ID", pa.int64())])
    plan = plan_new_columns(schema, [pa.field("user", wanted)])
    assert plan.added == (pa.field("user", pa.struct([("id", pa.int64()), ("name", pa.string())])),)
    many = pa.struct([(f"user{number}", pa.int64()) for number in range(COLUMNS_MAX)])
    full = plan_new_columns(schema, [pa.field("user", many), pa.field("users", many), pa.field("other", pa.int64())])
    assert set(full.rejected) == {"user", "users"}
    assert [field.name for field in full.added] == ["other"]


def test_rows_older_than_a_column_are_null_in_it(tmp_path: Path) -> None:
    committer = open_test_table(tmp_path, DECODED)
    committer.commit([write_task_output(tmp_path, PartitionRange(0, 0, 2), schema=committer.snapshot().schema)])
    evolved = committer.add_columns([pa.field("price", pa.float64()), pa.field("_offset", pa.string())])
    assert list(evolved.rejected) == ["_offset"]
    assert evolved.schema.field("price").type == pa.float64()
    assert committer.next_offsets() == {0: 2}
    committer.commit([write_task_output(tmp_path, PartitionRange(0, 2, 4), schema=evolved.schema)])
    table = read_rows(committer.snapshot())
    assert table.schema.field("price").type == pa.float64()
    assert read_offsets(committer.snapshot()) == expected_offsets(PartitionRange(0, 0, 4))


def test_nested_columns_can_be_added_and_written(tmp_path: Path) -> None:
    committer = open_test_table(tmp_path, DECODED)
    kind = pa.struct([("street", pa.string()), ("numbers", pa.list_(pa.field("element", pa.int64())))])
    evolved = committer.add_columns([pa.field("address", kind)])
    assert evolved.schema.field("address").type == kind
    committer.commit([write_task_output(tmp_path, PartitionRange(0, 0, 2), schema=evolved.schema)])
    assert read_rows(committer.snapshot())["address"].to_pylist() == [None, None]


def test_adding_existing_columns_creates_no_version(tmp_path: Path) -> None:
    committer = open_test_table(tmp_path, DECODED)
    committer.add_columns([pa.field("id", pa.int64())])
    before = committer.snapshot().version
    assert committer.add_columns([pa.field("id", pa.string())]).schema.field("id").type == pa.int64()
    assert committer.snapshot().version == before


def test_concurrent_drivers_add_all_their_columns(tmp_path: Path) -> None:
    open_test_table(tmp_path, DECODED)
    kinds = [pa.int64(), pa.string(), pa.float64()]

    def add(number: int) -> pa.Schema:
        fields = [pa.field("common", kinds[number]), pa.field(f"own{number}", pa.int64())]
        return open_test_table(tmp_path, DECODED).add_columns(fields).schema

    with ThreadPoolExecutor(3) as drivers:
        seen = list(drivers.map(add, range(3)))
    schema = open_test_table(tmp_path, DECODED).snapshot().schema
    assert {"common", "own0", "own1", "own2"} <= set(schema.names)
    assert {each.field("common").type for each in seen} == {schema.field("common").type}


def test_commit_succeeds_after_concurrent_column_addition(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    committer, other = open_test_table(tmp_path, DECODED), open_test_table(tmp_path, DECODED)
    unit = write_task_output(tmp_path, PartitionRange(0, 0, 3), schema=committer.snapshot().schema)
    commit = DeltaTable.create_write_transaction
    attempts = []

    def commit_after_other(self: DeltaTable, *arguments: Any, **named: Any) -> None:
        attempts.append(1)
        if len(attempts) == 1:
            other.add_columns([pa.field("new", pa.int64())])
        commit(self, *arguments, **named)

    monkeypatch.setattr(DeltaTable, "create_write_transaction", commit_after_other)
    assert committer.commit([unit]).rows == 3
    assert len(attempts) == 2
    assert "new" in committer.snapshot().schema.names

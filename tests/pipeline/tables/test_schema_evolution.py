"""Tests of schema evolution: columns are only added, and rejected fields are reported and stay in `_rescued`."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from chronik.pipeline.tables.layout import RESERVED, Kind, schema_of
from chronik.pipeline.tables.spans import Span
from chronik.pipeline.tables.topic_table import TableSpec
from chronik.pipeline.tables.values.growth import COLUMNS_MAX, NAME_CHARACTERS_MAX, plan_columns
from tests.pipeline.landing_rows import SPEC, every, landed, offsets, opened, rows

DECODED = TableSpec(SPEC.topic, SPEC.topic_id, Kind.DECODED)
EMPTY = schema_of(Kind.DECODED)


def test_new_fields_become_last_columns() -> None:
    plan = plan_columns(EMPTY, [pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string())])
    assert plan.added == (pa.field("id", pa.int64()), pa.field("name", pa.string()))
    assert plan.refused == {}


def test_existing_column_keeps_its_type() -> None:
    plan = plan_columns(EMPTY.append(pa.field("id", pa.int64())), [pa.field("id", pa.string())])
    assert (plan.added, plan.refused) == ((), {})


@pytest.mark.parametrize("own", sorted(RESERVED))
def test_reserved_column_names_are_rejected(own: str) -> None:
    plan = plan_columns(EMPTY, [pa.field(own, pa.string()), pa.field(own.upper(), pa.string())])
    assert set(plan.refused) == {own, own.upper()}


def test_other_underscore_names_are_accepted() -> None:
    assert plan_columns(EMPTY, [pa.field("_id", pa.string())]).added == (pa.field("_id", pa.string()),)


def test_names_that_differ_only_in_case_are_rejected() -> None:
    plan = plan_columns(EMPTY, [pa.field("id", pa.int64()), pa.field("Id", pa.int64())])
    assert [field.name for field in plan.added] == ["id"]
    assert "'id' only in case" in plan.refused["Id"]
    again = plan_columns(EMPTY.append(pa.field("id", pa.int64())), [pa.field("ID", pa.int64())])
    assert list(again.refused) == ["ID"]


@pytest.mark.parametrize("name", ["", "a b", "a,b", "a=b", "a.b", "a`b", "a\nb", "a\x00b", "a;b", "a(b)", "x" * 256])
def test_invalid_column_names_are_rejected(name: str) -> None:
    assert list(plan_columns(EMPTY, [pa.field(name, pa.string())]).refused) == [name]


def test_column_name_of_maximum_length_is_accepted() -> None:
    assert plan_columns(EMPTY, [pa.field("x" * NAME_CHARACTERS_MAX, pa.string())]).refused == {}


@pytest.mark.parametrize("kind", [pa.struct([]), pa.list_(pa.struct([])), pa.struct([("a", pa.struct([]))])])
def test_object_without_fields_is_not_a_column(kind: pa.DataType) -> None:
    assert list(plan_columns(EMPTY, [pa.field("empty", kind)]).refused) == ["empty"]


def test_column_limit_is_enforced_exactly() -> None:
    remaining_columns = COLUMNS_MAX - len(EMPTY) - 1  # headers have two fields
    fields = [pa.field(f"f{number}", pa.int64()) for number in range(remaining_columns + 1)]
    plan = plan_columns(EMPTY, fields)
    assert len(plan.added) == remaining_columns
    assert list(plan.refused) == [f"f{remaining_columns}"]


def test_nested_fields_are_added_and_counted() -> None:
    schema = EMPTY.append(pa.field("user", pa.struct([("id", pa.int64())])))
    wanted = pa.struct([("name", pa.string()), ("id", pa.string()), ("ID", pa.int64())])
    plan = plan_columns(schema, [pa.field("user", wanted)])
    assert plan.added == (pa.field("user", pa.struct([("id", pa.int64()), ("name", pa.string())])),)
    many = pa.struct([(f"user{number}", pa.int64()) for number in range(COLUMNS_MAX)])
    full = plan_columns(schema, [pa.field("user", many), pa.field("users", many), pa.field("other", pa.int64())])
    assert set(full.refused) == {"user", "users"}
    assert [field.name for field in full.added] == ["other"]


def test_rows_older_than_a_column_are_null_in_it(tmp_path: Path) -> None:
    committer = opened(tmp_path, DECODED)
    committer.commit([landed(tmp_path, Span(0, 0, 2), schema=committer.snapshot().schema)])
    evolved = committer.add_columns([pa.field("price", pa.float64()), pa.field("_offset", pa.string())])
    assert list(evolved.refused) == ["_offset"]
    assert evolved.schema.field("price").type == pa.float64()
    assert committer.next_offsets() == {0: 2}
    committer.commit([landed(tmp_path, Span(0, 2, 4), schema=evolved.schema)])
    table = rows(committer.snapshot())
    assert table.schema.field("price").type == pa.float64()
    assert offsets(committer.snapshot()) == every(Span(0, 0, 4))


def test_nested_columns_can_be_added_and_written(tmp_path: Path) -> None:
    committer = opened(tmp_path, DECODED)
    kind = pa.struct([("street", pa.string()), ("numbers", pa.list_(pa.field("element", pa.int64())))])
    evolved = committer.add_columns([pa.field("address", kind)])
    assert evolved.schema.field("address").type == kind
    committer.commit([landed(tmp_path, Span(0, 0, 2), schema=evolved.schema)])
    assert rows(committer.snapshot())["address"].to_pylist() == [None, None]


def test_adding_existing_columns_creates_no_version(tmp_path: Path) -> None:
    committer = opened(tmp_path, DECODED)
    committer.add_columns([pa.field("id", pa.int64())])
    before = committer.snapshot().version
    assert committer.add_columns([pa.field("id", pa.string())]).schema.field("id").type == pa.int64()
    assert committer.snapshot().version == before


def test_concurrent_drivers_add_all_their_columns(tmp_path: Path) -> None:
    opened(tmp_path, DECODED)
    kinds = [pa.int64(), pa.string(), pa.float64()]

    def add(number: int) -> pa.Schema:
        fields = [pa.field("common", kinds[number]), pa.field(f"own{number}", pa.int64())]
        return opened(tmp_path, DECODED).add_columns(fields).schema

    with ThreadPoolExecutor(3) as drivers:
        seen = list(drivers.map(add, range(3)))
    schema = opened(tmp_path, DECODED).snapshot().schema
    assert {"common", "own0", "own1", "own2"} <= set(schema.names)
    assert {each.field("common").type for each in seen} == {schema.field("common").type}


def test_commit_succeeds_after_concurrent_column_addition(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    committer, other = opened(tmp_path, DECODED), opened(tmp_path, DECODED)
    unit = landed(tmp_path, Span(0, 0, 3), schema=committer.snapshot().schema)
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

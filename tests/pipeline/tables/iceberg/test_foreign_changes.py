"""Columns that PyIceberg changes between rounds: landing continues by field id, or stops and says what to do."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.types import DecimalType, DoubleType, LongType, StringType, TimeType

from chronik.pipeline.maintenance.rebuild import rebuild_table
from chronik.pipeline.tables.iceberg.table import IcebergTopicTable
from chronik.pipeline.tables.topic_table import TableMismatchError
from chronik.pipeline.tables.values.table_schema import parse_schema_text
from tests.pipeline.tables.iceberg.iceberg_tables import load_iceberg
from tests.pipeline.tables.iceberg.test_iceberg_columns import land, open_decoded_table, read_column


@pytest.fixture
def table(tmp_path: Path) -> IcebergTopicTable:
    """A table with two columns, one of them nested."""
    table = open_decoded_table(tmp_path)
    land(table, [{"id": 1, "customer": {"name": "Ada", "age": 36}}])
    return table


def update_schema(table: IcebergTopicTable) -> Any:
    return load_iceberg(table).update_schema()


def test_columns_that_another_tool_adds_are_landed(table: IcebergTopicTable) -> None:
    with update_schema(table) as update:
        update.add_column("note", StringType(), doc="by hand")
        update.add_column(("customer", "city"), StringType())
    customer = {"name": "Bob", "age": 7, "city": "Oslo"}
    land(table, [{"id": 2, "note": "new", "customer": customer, "later": True}], 1)
    assert read_column(table, "note") == [None, "new"]
    assert read_column(table, "customer") == [{"name": "Ada", "age": 36, "city": None}, customer]
    assert read_column(table, "later") == [None, True]


def test_columns_that_another_tool_moves_are_landed(table: IcebergTopicTable) -> None:
    with update_schema(table) as update:
        update.move_first("customer")
        update.move_before("id", "_offset")
        update.move_first(("customer", "age"))
    land(table, [{"id": 2, "customer": {"name": "Bob", "age": 7}, "later": True}], 1)
    assert load_iceberg(table).schema().fields[0].name == "customer"
    assert read_column(table, "id") == [1, 2]
    assert read_column(table, "customer") == [{"age": 36, "name": "Ada"}, {"age": 7, "name": "Bob"}]


@pytest.mark.parametrize("declares", [True, False])
def test_columns_that_another_tool_promotes_are_landed(tmp_path: Path, declares: bool) -> None:
    schema = parse_schema_text("small int, ratio float, price decimal(4,2)")
    table = open_decoded_table(tmp_path, schema=schema)
    land(table, [{"small": 1, "ratio": 0.5, "price": 1.25}])
    with update_schema(table) as update:
        update.update_column("small", LongType())
        update.update_column("ratio", DoubleType())
        update.update_column("price", DecimalType(12, 2))
    if declares:
        table.set_schema(parse_schema_text("small bigint, ratio double, price decimal(12,2)"))
    land(table, [{"small": 2**40, "ratio": 0.1, "price": 123456.75}], 1)
    assert read_column(table, "small") == [1, 2**40]
    assert read_column(table, "ratio") == [0.5, 0.1]
    assert read_column(table, "price") == [Decimal("1.25"), Decimal("123456.75")]


@pytest.mark.parametrize(
    ("path", "name", "now"),
    [("id", "number", "number"), ("customer", "buyer", "buyer"), ("customer.name", "label", "customer.label")],
)
def test_renamed_column_stops_landing_until_it_is_renamed_back(
    table: IcebergTopicTable, path: str, name: str, now: str
) -> None:
    with update_schema(table) as update:
        update.rename_column(path, name)
    message = f"another tool has renamed column '{path}' to '{now}': rename it back with that tool"
    with pytest.raises(TableMismatchError, match=message):
        land(table, [{"id": 2}], 1)
    with pytest.raises(TableMismatchError, match=message):
        table.snapshot()
    with update_schema(table) as update:
        update.rename_column(now, path.rpartition(".")[2])
    land(table, [{"id": 2, "customer": {"name": "Bob", "age": 7}}], 1)
    assert read_column(table, "id") == [1, 2]
    assert read_column(table, "customer") == [{"name": "Ada", "age": 36}, {"name": "Bob", "age": 7}]


@pytest.mark.parametrize("path", ["id", "customer", "customer.age"])
def test_dropped_column_stops_landing_until_a_rebuild(table: IcebergTopicTable, tmp_path: Path, path: str) -> None:
    with update_schema(table) as update:
        update.delete_column(path)
    command = f"chronik pipeline rebuild orders --table-root {tmp_path}"
    with pytest.raises(TableMismatchError, match=f"has dropped column '{path}': rewrite the rows with '{command}'"):
        land(table, [{"id": 2}], 1)
    assert rebuild_table(str(tmp_path), "orders").rows == 1
    land(table, [{"id": 2, "customer": {"name": "Bob", "age": 7}}], 1)
    assert read_column(table, "id") == [None if path == "id" else 1, 2]
    kept = {"customer": None, "customer.age": {"name": "Ada", "age": None}}.get(path, {"name": "Ada", "age": 36})
    assert read_column(table, "customer") == [kept, {"name": "Bob", "age": 7}]


def test_column_that_only_another_tool_uses_may_be_dropped_again(table: IcebergTopicTable) -> None:
    with update_schema(table) as update:
        update.add_column("note", StringType())
    with update_schema(table) as update:
        update.delete_column("note")
    land(table, [{"id": 2}], 1)
    assert read_column(table, "id") == [1, 2]


def test_added_column_of_unsupported_type_stops_landing(table: IcebergTopicTable) -> None:
    with update_schema(table) as update:
        update.add_column("at", TimeType())
    with pytest.raises(TableMismatchError, match=r"column 'at' of another tool has type time, .*: drop or change it"):
        land(table, [{"id": 2}], 1)
    with update_schema(table) as update:
        update.delete_column("at")
    land(table, [{"id": 2}], 1)
    assert read_column(table, "id") == [1, 2]

"""Landed tables in Spark's catalog, without Delta Lake: registered tables and views of `chronik_table`."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from chronik.pipeline.query.spark_catalog import TableNameConflictError, register_tables
from chronik.pipeline.tables.catalog import open_or_create_table
from chronik.pipeline.tables.layout import TableKind
from chronik.pipeline.tables.topic_table import TableSpec, TopicTable
from chronik.pipeline.tables.values.table_schema import TableSchema, parse_schema_document
from tests.pipeline.table_fixtures import build_record_columns, commit_rows, compact_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS: dict[str, Any] = {"n": {"type": "bigint", "comment": "the number"}, "tags": "array<string>"}
SCHEMA = parse_schema_document({"columns": COLUMNS, "comment": "Orders of the shop's site", "unknown_fields": "column"})


def create_table(root: Path, topic: str = "orders", schema: TableSchema | None = SCHEMA) -> TopicTable:
    spec = TableSpec(topic, "AAAAAAAAAAAAAAAAAAAAAQ", TableKind.DECODED)
    return open_or_create_table(str(root / topic), spec, schema=schema)


def land(table: TopicTable, *numbers: int) -> None:
    values = [b'{"n": %d, "tags": ["a", "b"]}' % number for number in numbers]
    commit_rows(table, 0, build_record_columns(numbers, values))


def read_numbers(spark: SparkSession, name: str, where: str = "true") -> list[int]:
    return sorted(row["n"] for row in spark.sql(f"SELECT n FROM {name} WHERE {where}").collect())


def read_both_sides(spark: SparkSession, name: str) -> list[tuple[str, int]]:
    """Read a table in one statement with several conditions, from each of which Spark could skip other files."""
    parts = (("a", "_offset >= 2"), ("b", "_offset < 2"), ("c", "true"))
    statement = " UNION ALL ".join(f"SELECT '{part}' AS part, n FROM {name} WHERE {where}" for part, where in parts)
    return sorted((row["part"], row["n"]) for row in spark.sql(statement).collect())


def read_comments(spark: SparkSession, name: str) -> dict[str, str]:
    rows = spark.sql(f"DESCRIBE {name}").collect()
    return {row["col_name"]: row["comment"] for row in rows if row["comment"] and row["col_name"] != "# col_name"}


def describe_table(spark: SparkSession, name: str) -> str:
    database, table = name.split(".")
    return str(spark.sql(f"SHOW TABLE EXTENDED IN {database} LIKE '{table}'").collect()[0]["information"])


@pytest.fixture
def database(spark: SparkSession, tmp_path: Path) -> Iterator[str]:
    name = f"lake_{uuid.uuid4().hex}"
    spark.sql(f"CREATE DATABASE {name} LOCATION '{tmp_path}/warehouse'")
    yield name
    spark.sql(f"DROP DATABASE IF EXISTS {name} CASCADE")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "it's [1] {lake}"


# Registered tables


def test_registered_table_returns_the_rows_that_have_landed(spark: SparkSession, database: str, root: Path) -> None:
    table = create_table(root, "eu.orders")
    found = register_tables(spark, str(root), database)
    assert found == {"eu.orders": f"{database}.eu_orders"}
    name = found["eu.orders"]
    assert read_numbers(spark, name) == []
    land(table, 0, 1)
    assert read_numbers(spark, name) == [0, 1]
    land(table, 2)
    compact_table(table.uri)  # the replaced files are still in the directory
    assert read_numbers(spark, name) == [0, 1, 2]
    assert read_numbers(spark, name, "_offset >= 2") == [2]
    assert read_both_sides(spark, name) == [("a", 2), ("b", 0), ("b", 1), ("c", 0), ("c", 1), ("c", 2)]
    assert spark.table(name).where("n = 1").collect()[0]["tags"] == ["a", "b"]
    tables = [row["tableName"] for row in spark.sql(f"SHOW TABLES IN {database}").collect() if not row["isTemporary"]]
    assert tables == ["eu_orders"]


def test_registered_table_has_the_comments_of_its_schema(spark: SparkSession, database: str, root: Path) -> None:
    table = create_table(root)
    name = register_tables(spark, str(root), database)["orders"]
    assert read_comments(spark, name) == {"n": "the number"}
    assert "\nComment: Orders of the shop's site\n" in describe_table(spark, name)
    changed = {"n": {"type": "bigint", "comment": "its number"}, "new": "string"}
    table.set_schema(parse_schema_document({"columns": changed, "comment": "All orders"}))
    assert register_tables(spark, str(root), database) == {"orders": name}
    assert read_comments(spark, name) == {"n": "its number"}
    assert "new" in spark.table(name).columns
    assert "\nComment: All orders\n" in describe_table(spark, name)


def test_other_table_of_the_same_name_is_kept(spark: SparkSession, database: str, root: Path) -> None:
    land(create_table(root), 0)
    spark.sql(f"CREATE TABLE {database}.orders (n BIGINT) USING parquet")
    with pytest.raises(TableNameConflictError, match="provider parquet"):
        register_tables(spark, str(root), database)
    assert spark.table(f"{database}.orders").columns == ["n"]
    assert register_tables(spark, str(root), database, names={"orders": "landed"}) == {"orders": f"{database}.landed"}
    assert read_numbers(spark, f"{database}.landed") == [0]


# Views of the data source


def test_temporary_view_of_a_table_needs_only_sql(spark: SparkSession, root: Path) -> None:
    table = create_table(root)
    land(table, 0)
    path = table.uri.replace("'", "\\'")
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW landed USING chronik_table OPTIONS (path '{path}')")
    assert read_numbers(spark, "landed") == [0]
    land(table, 1)
    assert read_numbers(spark, "landed") == [0], "Spark plans the partitions of a view once"
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW landed USING chronik_table OPTIONS (path '{path}')")
    assert read_numbers(spark, "landed") == [0, 1]
    assert read_comments(spark, "landed") == {"n": "the number"}
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW landed (n BIGINT) USING chronik_table OPTIONS (path '{path}')")
    assert spark.table("landed").columns == ["n"]
    assert read_numbers(spark, "landed") == [0, 1]


def test_dataframe_of_a_table_is_read_by_path(spark: SparkSession, root: Path) -> None:
    table = create_table(root)
    land(table, 0, 1)
    rows = spark.read.format("chronik_table").load(table.uri)
    assert rows.schema["n"].metadata == {"comment": "the number"}
    assert sorted(row["_offset"] for row in rows.collect()) == [0, 1]

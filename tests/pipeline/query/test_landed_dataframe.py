"""Tests of landed rows that Python tasks read, as DataFrames in Spark: rows of several references, and comments."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from chronik.pipeline.query import landed_dataframe
from chronik.pipeline.query.landed_dataframe import build_landed_dataframe
from chronik.pipeline.query.landed_rows import LandedScan
from chronik.pipeline.query.name_resolution import TopicViewScope
from chronik.pipeline.query.topic_snapshots import TopicSnapshot
from chronik.pipeline.query.views import build_dataframe
from chronik.pipeline.source.options import IsolationLevel, ReadSettings
from chronik.pipeline.tables.catalog import open_or_create_table
from chronik.pipeline.tables.layout import TableKind
from chronik.pipeline.tables.topic_table import TableSpec, TopicTable
from chronik.pipeline.tables.values.table_schema import parse_schema_document
from tests.pipeline.table_fixtures import build_record_columns, commit_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = parse_schema_document({"columns": {"n": {"type": "bigint", "comment": "the number"}}})


@pytest.fixture
def table(tmp_path: Path) -> TopicTable:
    """A table with three files, each with one row."""
    spec = TableSpec("orders", "AAAAAAAAAAAAAAAAAAAAAQ", TableKind.DECODED)
    table = open_or_create_table(str(tmp_path / "orders"), spec, schema=SCHEMA)
    for number in range(3):
        commit_rows(table, 0, build_record_columns([number], [b'{"n": %d}' % number]))
    return table


def read_comments(spark: SparkSession, rows: DataFrame) -> dict[str, str]:
    """Return the comments of columns that DESCRIBE shows for a view."""
    rows.createOrReplaceTempView("described")
    found = {row["col_name"]: row["comment"] for row in spark.sql("DESCRIBE described").collect() if row["comment"]}
    spark.catalog.dropTempView("described")
    return found


def test_large_table_returns_the_rows_of_all_references_of_a_statement(
    spark: SparkSession, table: TopicTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark applies the filters that it pushes down to one reference of a data source to all of them."""
    monkeypatch.setattr(landed_dataframe, "SMALL_TABLE_BYTES_MAX", -1)
    rows = build_landed_dataframe(spark, LandedScan(table.files(), ("n", "_offset")))
    rows.createOrReplaceTempView("landed")
    parts = (("a", "_offset >= 2"), ("b", "_offset < 2"), ("c", "true"))
    statement = " UNION ALL ".join(f"SELECT '{part}', n FROM landed WHERE {where}" for part, where in parts)
    found = sorted(tuple(row) for row in spark.sql(statement).collect())
    spark.catalog.dropTempView("landed")
    assert found == [("a", 2), ("b", 0), ("b", 1), ("c", 0), ("c", 1), ("c", 2)]


def test_all_ways_to_read_a_topic_show_comments(spark: SparkSession, table: TopicTable) -> None:
    snapshot = TopicSnapshot("orders", table.snapshot(), ())
    settings = ReadSettings("127.0.0.1:1", IsolationLevel.READ_COMMITTED)
    for half in TopicViewScope:
        assert read_comments(spark, build_dataframe(spark, snapshot, half, settings)) == {"n": "the number"}
    landed = build_landed_dataframe(spark, LandedScan(table.files(), ("n",)))
    assert sorted(row["n"] for row in landed.collect()) == [0, 1, 2]
    cold = build_dataframe(spark, snapshot, TopicViewScope.COLD, settings, ["n"])
    assert read_comments(spark, cold.union(landed)) == read_comments(spark, landed) == {"n": "the number"}

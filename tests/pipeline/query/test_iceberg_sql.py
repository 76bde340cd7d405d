"""SQL over a topic that lands in an Iceberg table, in a real Spark session."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from chronik.pipeline.landing.runner import run
from chronik.pipeline.maintenance.compaction import compact_tables
from chronik.pipeline.tables.catalog import open_table
from chronik.pipeline.tables.storage import table_uri
from chronik.pipeline.tables.topic_table import TableFormat
from tests.pipeline.query.topic_sql import Sql, as_dicts, documents

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.chronik_topic(partitions=2)


@pytest.fixture
def sql(spark: SparkSession, sql: Sql) -> Sql:
    return sql


def land(sql: Sql, partition_by: str) -> None:
    run(
        sql.broker.bootstrap,
        sql.root,
        [sql.topic],
        once=True,
        format="json",
        partition_by=partition_by,
        schema="n bigint, country string, user struct<id: bigint, name: string>",
        table_format="iceberg",
        spark=sql.spark,
    )


@pytest.mark.parametrize("partition_by", ["date", "hour", "country, bucket(4, n)"])
def test_row_is_the_same_before_and_after_landing_and_compaction(sql: Sql, partition_by: str) -> None:
    sql.send(*documents(0, 1, country="DE", user={"id": 1, "name": "Ada"}))
    land(sql, partition_by)
    sql.send(*documents(2, country="FR"), None, b'{"n": 2.5, "other": 1}')
    statement = "SELECT * FROM T ORDER BY _partition, _offset"
    before = as_dicts(sql.rows(statement))
    assert [row["n"] for row in before] == [0, 1, 2, None, None]
    assert before[0]["user"] == {"id": 1, "name": "Ada"}
    land(sql, partition_by)
    assert open_table(table_uri(sql.root, sql.topic)).spec.table_format is TableFormat.ICEBERG
    assert sql.offsets("T_hot") == []
    assert as_dicts(sql.rows(statement)) == before
    compact_tables(sql.root)
    assert as_dicts(sql.rows(statement)) == before
    assert [row["n"] for row in sql.rows("SELECT n FROM T_cold WHERE country = 'FR'", prune=True)] == [2]

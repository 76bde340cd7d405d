"""SQL over topics in a real Spark session: landed rows and the live tail of a real broker as one view."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from chronik.client.admin import delete_topics
from chronik.client.producer import Producer
from chronik.client.records import OutgoingRecord
from chronik.pipeline.landing.runner import run
from chronik.pipeline.query.error_summary import summarize_error
from chronik.pipeline.query.sql import query
from chronik.pipeline.query.topic_snapshots import UnreadableTopicError
from chronik.pipeline.query.views import UnknownTopicError, views
from chronik.pipeline.tables.storage import table_uri
from tests.pipeline.query.topic_sql import NOON_MS, Sql, as_dicts, documents
from tests.pipeline.table_fixtures import compact_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.chronik_topic(partitions=2)

DAY_MS = 86_400_000
SYSTEM_COLUMNS = ["_partition", "_offset", "_timestamp", "_timestamp_ms", "_key", "_headers", "_value_crc32c", "_date"]


@pytest.fixture
def sql(spark: SparkSession, sql: Sql) -> Sql:
    return sql


def test_raw_row_is_the_same_before_and_after_landing(sql: Sql) -> None:
    sql.send(b"a", None, b"\xff")
    sql.send(b"b", partition=1, timestamp=-1)
    statement = "SELECT * FROM T ORDER BY _partition, _offset"
    hot = sql.rows(statement)
    assert hot[0].__fields__ == [*SYSTEM_COLUMNS, "_value"]
    assert [row["_value"] and bytes(row["_value"]) for row in hot] == [b"a", None, b"\xff", b"b"]
    assert [row["_timestamp_ms"] for row in hot] == [None, None, None, -1]
    assert sql.offsets("T_cold") == []
    sql.land()
    assert sql.offsets("T_cold") == sql.offsets("T") == [(0, 0), (0, 1), (0, 2), (1, 0)]
    assert sql.offsets("T_hot") == []
    assert as_dicts(sql.rows(statement)) == as_dicts(hot)
    sql.send(b"c")
    assert sql.offsets("T_hot") == [(0, 3)]
    assert sql.offsets("T") == [(0, 0), (0, 1), (0, 2), (0, 3), (1, 0)]


def test_decoded_row_is_the_same_before_and_after_landing(sql: Sql) -> None:
    sql.send(*documents(0, 1, text="x", user={"id": 1}))
    sql.land("json")
    sql.send(*documents(2, user={"id": "two"}), b"no JSON", None, b'{"n": 2.5, "text": "y"}')
    statement = "SELECT * FROM T ORDER BY _partition, _offset"
    before = sql.rows(statement)
    assert [row["n"] for row in before] == [0, 1, 2, None, None]
    assert [row["_offset"] for row in before] == [0, 1, 2, 4, 5], "an undecodable record is not a row"
    assert [row["_rescued"] for row in before] == [None, None, '{"user":{"id":"two"}}', None, '{"n":2.5}']
    assert sql.offsets("T_hot") == [(0, 2), (0, 4), (0, 5)]
    sql.land("json")
    assert sql.offsets("T_hot") == []
    assert as_dicts(sql.rows(statement)) == as_dicts(before)


def test_new_field_is_rescued_until_it_lands(sql: Sql) -> None:
    sql.send(*documents(0))
    sql.land("json")
    sql.send(*documents(1, color="red"))
    hot = [tuple(row) for row in sql.rows("SELECT n, _rescued FROM T ORDER BY n")]
    assert hot == [(0, None), (1, '{"color":"red"}')]
    sql.land("json")
    cold = [tuple(row) for row in sql.rows("SELECT n, color, _rescued FROM T ORDER BY n")]
    assert cold == [(0, None, None), (1, "red", None)]


def test_pruned_query_returns_same_rows(sql: Sql) -> None:
    sql.send(*documents(0, 1, text="x"))
    sql.land("json")
    sql.send(*documents(2, 3, text="y", more=1), b"no JSON")
    for statement in (
        "SELECT count(*) FROM T",
        "SELECT sum(n), max(text) FROM T",
        "SELECT n, _rescued FROM T ORDER BY n",
        "SELECT _value_crc32c, _key, _headers, _date FROM T ORDER BY _offset",
        "SELECT count(*) FROM (SELECT DISTINCT * FROM T)",
    ):
        rows = sql.rows(statement, prune=True)
        assert rows
        assert as_dicts(rows) == as_dicts(sql.rows(statement)), statement


def test_filters_and_columns_are_pushed_down(sql: Sql) -> None:
    sql.send(*documents(0, 1, text="x"))
    sql.land("json")
    sql.send(*documents(2, text="y"))
    statement = "SELECT sum(n) FROM T WHERE n > 0 AND _date = DATE '2024-05-01'"
    (row,) = sql.rows(f"EXPLAIN {statement}", prune=True)
    plan = row[0]
    assert "ReadSchema: struct<n:bigint>" in plan
    assert "GreaterThan(n,0)" in plan[plan.index("PushedFilters") :]
    assert "_date" in plan[plan.index("PartitionFilters") : plan.index("PushedFilters")]
    (tail,) = [line for line in plan.splitlines() if "MapInArrow" in line]
    assert "n#" in tail
    assert "text#" not in tail
    assert sql.rows(statement)[0][0] == 3


def test_table_root_url_is_decoded_once(sql: Sql, tmp_path: Path) -> None:
    sql.root = (tmp_path / "100% [mine]").as_uri()
    sql.send(b"a", b"b")
    sql.land()
    sql.send(b"c")
    rows = sql.rows("SELECT _date, _value FROM T ORDER BY _offset")
    assert [bytes(row["_value"]) for row in rows] == [b"a", b"b", b"c"]
    assert {row["_date"].day for row in rows} == {1}
    assert [each.name for each in tmp_path.iterdir()] == ["100% [mine]"]


@pytest.mark.parametrize("partitioning", ["hour", "none"])
def test_tables_of_any_partitioning_are_read_correctly(sql: Sql, partitioning: str) -> None:
    sql.send(b"a", timestamp=NOON_MS)
    sql.send(b"b", timestamp=NOON_MS + DAY_MS)
    sql.send(b"c", timestamp=-1)
    run(sql.broker.bootstrap, sql.root, [sql.topic], once=True, partition_by=partitioning, spark=sql.spark)
    sql.send(b"d", timestamp=NOON_MS)
    rows = sql.rows("SELECT * FROM T ORDER BY _offset")
    assert [bytes(row["_value"]) for row in rows] == [b"a", b"b", b"c", b"d"]
    assert [row["_date"] and row["_date"].day for row in rows] == [1, 2, None, 1]
    if partitioning == "hour":
        assert [row["_hour"] for row in rows] == [12, 12, None, 12]


def test_views_keep_their_snapshot_when_more_records_land(sql: Sql) -> None:
    sql.send(b"a", b"b")
    sql.land()
    sql.send(b"c")
    created = views(sql.spark, sql.broker.bootstrap, sql.root, [sql.topic])
    assert created.rejected == {}
    unquoted = sql.topic.replace("-", "_")
    assert set(created.names) == {name + half for name in (sql.topic, unquoted) for half in ("", "_cold", "_hot")}
    sql.send(b"d")
    sql.land()
    compact_table(str(sql.table_directory()))
    expected = {unquoted: [b"a", b"b", b"c"], f"{unquoted}_cold": [b"a", b"b"], f"`{sql.topic}_hot`": [b"c"]}
    for name, values in expected.items():
        rows = sql.spark.sql(f"SELECT _value FROM {name} ORDER BY _offset").collect()
        assert [bytes(row[0]) for row in rows] == values
    with pytest.raises(UnknownTopicError, match="no topic or table is named nobody"):
        views(sql.spark, sql.broker.bootstrap, sql.root, ["nobody"])


def test_records_deleted_before_landing_fail_all_but_cold_view(sql: Sql) -> None:
    sql.send(b"a", b"b")
    sql.land()
    sql.send(b"c", b"d", b"e")
    sql.delete_before(4)
    for name in ("T", "T_hot"):
        with pytest.raises(UnreadableTopicError, match="-0: offsets 2 to 3 are missing"):
            sql.offsets(name)
    assert sql.offsets("T_cold") == [(0, 0), (0, 1)]
    created = views(sql.spark, sql.broker.bootstrap, sql.root)
    assert f"{sql.topic}_cold" in created.names
    assert sql.topic not in created.names
    assert "offsets 2 to 3 are missing" in created.rejected[sql.topic]


def test_records_deleted_after_planning_fail_the_query(sql: Sql) -> None:
    from pyspark.errors import PySparkException

    sql.send(b"a", b"b", b"c")
    planned = query(sql.spark, f"SELECT * FROM `{sql.topic}`", sql.broker.bootstrap, sql.root)
    sql.delete_before(2)
    with pytest.raises(PySparkException) as raised:
        planned.collect()
    assert summarize_error(str(raised.value)).startswith(f"{sql.topic}-0: offsets 0 to 1 ")


def test_column_named_like_unreadable_topic_is_not_an_error(sql: Sql, tmp_path: Path) -> None:
    broken = sql.topic.replace("-", "_")
    sql.broker.create_topic(broken)
    write_deltalake(str(tmp_path / "of another"), pa.table({"a": [1]}))
    Path(sql.root).mkdir()
    (tmp_path / "of another").rename(table_uri(sql.root, broken))
    sql.send(b"a")
    assert sql.rows(f"SELECT _offset AS {broken} FROM T")[0][broken] == 0
    for half in ("", "_cold", "_hot"):
        with pytest.raises(UnreadableTopicError, match="is a table, but not of a topic"):
            sql.rows(f"SELECT count(*) FROM {broken}{half}")


def test_records_deleted_after_landing_leave_no_gap(sql: Sql) -> None:
    sql.send(b"a", b"b")
    sql.land()
    sql.send(b"c")
    sql.delete_before(2)
    assert sql.offsets("T") == [(0, 0), (0, 1), (0, 2)]


def test_recreated_topic_is_not_combined_with_old_table(sql: Sql) -> None:
    sql.send(b"a", b"b")
    sql.land()
    delete_topics(sql.cluster, [sql.topic])
    assert sql.offsets("T") == sql.offsets("T_cold") == [(0, 0), (0, 1)], "without a topic, the view has landed rows"
    assert sql.offsets("T_hot") == []
    sql.broker.create_topic(sql.topic)
    sql.send(b"new")
    with pytest.raises(UnreadableTopicError, match="deleted and created again"):
        sql.offsets("T")
    assert sql.offsets("T_cold") == [(0, 0), (0, 1)]


def test_topic_named_indirectly_uses_current_snapshot(sql: Sql) -> None:
    """In a string or in a view of the session: the snapshot of an earlier statement must not be used."""
    sql.send(b"a", b"b")
    assert sql.rows("SELECT count(*) FROM T")[0][0] == 2
    sql.spark.sql(f"CREATE TEMP VIEW mine AS SELECT _offset FROM `{sql.topic}`")
    try:
        for number, statement in enumerate(
            [
                f"SELECT count(*) FROM IDENTIFIER('`{sql.topic}`')",
                f"EXECUTE IMMEDIATE 'SELECT count(*) FROM `{sql.topic}`'",
                "SELECT count(*) FROM mine",
                "SELECT (SELECT count(*) FROM mine) + 0 * (SELECT count(*) FROM T)",
            ],
            start=3,
        ):
            sql.send(b"more")
            assert sql.rows(statement)[0][0] == number, statement
    finally:
        sql.spark.catalog.dropTempView("mine")


def test_table_of_deleted_topic_logs_warning(sql: Sql, caplog: pytest.LogCaptureFixture) -> None:
    sql.send(b"a")
    sql.land()
    delete_topics(sql.cluster, [sql.topic])
    caplog.clear()
    assert sql.offsets("T_cold") == [(0, 0)]
    assert caplog.messages == []
    assert sql.offsets("T") == [(0, 0)]
    assert caplog.messages == [f"topic {sql.topic} does not exist on the cluster; querying landed rows only"]


def test_topics_are_joined_and_listed(sql: Sql) -> None:
    other = f"{sql.topic}.other"
    sql.broker.create_topic(other)
    sql.send(b"a", b"b")
    Producer(sql.cluster).send(other, [OutgoingRecord(b"x"), OutgoingRecord(b"y"), OutgoingRecord(b"z")])
    unquoted = other.replace("-", "_").replace(".", "_")
    (row,) = sql.rows(f"SELECT count(*) FROM T JOIN {unquoted} USING (_offset)")
    assert row[0] == 2
    assert sql.rows("SELECT 'orders', 1 + 1")[0][1] == 2
    listed = {row["tableName"] for row in sql.rows("SHOW TABLES")}
    assert {sql.topic, f"{sql.topic}_hot", other, unquoted} <= listed

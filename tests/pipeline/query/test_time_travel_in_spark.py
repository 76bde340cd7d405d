"""`AS OF` clauses in a real Spark session: versions, times and offsets of a topic of a real broker."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from chronik.pipeline.query.sql import query
from chronik.pipeline.query.time_travel import AsOfClauseError
from chronik.pipeline.query.topic_snapshots import UnreadableTopicError
from chronik.pipeline.tables.as_of import AsOfVersion
from chronik.pipeline.tables.catalog import open_table
from tests.pipeline.query.topic_sql import Sql, documents
from tests.pipeline.table_fixtures import compact_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.chronik_topic(partitions=2)


@pytest.fixture
def landed(spark: SparkSession, sql: Sql) -> Sql:
    """A topic that has landed twice: partition 0 up to offset 2 and 4, partition 1 up to 0 and 1; and a live tail."""
    sql.send(*documents(0, 1))
    sql.land("json")
    sql.send(*documents(2, 3))
    sql.send(*documents(10), partition=1)
    sql.land("json")
    sql.send(*documents(4))
    sql.send(*documents(11), partition=1)
    return sql


def numbers(landed: Sql, relation: str) -> list[int]:
    return sorted(row[0] for row in landed.rows(f"SELECT n FROM {relation}", prune=True))


def version_of(landed: Sql, rows: int) -> int:
    """Return the version of the table that has so many rows."""
    table = open_table(str(landed.table_directory()))
    for version in range(table.snapshot().version + 1):
        if sum(table.snapshot(AsOfVersion(version)).next_offsets.values()) == rows:
            return version
    raise AssertionError(f"no version has {rows} rows")


def test_version_has_its_rows_and_no_live_tail(landed: Sql) -> None:
    first, second = version_of(landed, 2), version_of(landed, 5)
    assert numbers(landed, f"T VERSION AS OF {first}") == [0, 1]
    assert numbers(landed, f"T_cold FOR VERSION AS OF '{second}'") == [0, 1, 2, 3, 10]
    assert numbers(landed, "T") == [0, 1, 2, 3, 4, 10, 11]
    added = f"(SELECT n FROM T EXCEPT SELECT n FROM T VERSION AS OF {first})"
    assert numbers(landed, added) == [2, 3, 4, 10, 11]
    joined = f"T VERSION AS OF {first} JOIN T VERSION AS OF {second} later USING (n)"
    assert numbers(landed, joined) == [0, 1]
    qualified = landed.rows(f"SELECT T.n FROM T VERSION AS OF {first} WHERE T.n > 0")
    assert [row[0] for row in qualified] == [1]


def test_time_selects_the_version_that_was_current(landed: Sql) -> None:
    now = datetime.now(UTC).isoformat(sep=" ")
    assert numbers(landed, f"T TIMESTAMP AS OF '{now}'") == [0, 1, 2, 3, 10]
    assert numbers(landed, "T TIMESTAMP AS OF current_timestamp() - INTERVAL 0 SECONDS o") == [0, 1, 2, 3, 10]
    with pytest.raises(UnreadableTopicError, match="no version as of 2020-01-01 00:00:00 UTC: the oldest is version 0"):
        numbers(landed, "T TIMESTAMP AS OF date '2020-01-01'")
    with pytest.raises(UnreadableTopicError, match="is in the future"):
        numbers(landed, "T TIMESTAMP AS OF now() + INTERVAL 1 DAY")
    with pytest.raises(AsOfClauseError, match="not a time"):
        numbers(landed, "T TIMESTAMP AS OF 'last week'")


def test_offsets_may_be_landed_or_in_the_live_tail(landed: Sql) -> None:
    for zero, one, expected in (
        (0, 0, []),
        (3, 0, [0, 1, 2]),
        (4, 1, [0, 1, 2, 3, 10]),
        (5, 1, [0, 1, 2, 3, 4, 10]),
        (1, 2, [0, 10, 11]),
        (-1, -1, [0, 1, 2, 3, 4, 10, 11]),
    ):
        clause = f"""OFFSETS AS OF '{{"0": {zero}, "1": {one}}}'"""
        assert numbers(landed, f"T {clause}") == expected
        halves = numbers(landed, f"T_cold {clause}"), numbers(landed, f"T_hot {clause}")
        assert sorted(halves[0] + halves[1]) == expected
        assert set(halves[1]) <= {4, 11}
    assert landed.rows("""SELECT count(*) FROM T OFFSETS AS OF '{"0": 3, "1": 2}'""", prune=True)[0][0] == 5


def test_offsets_return_the_same_rows_after_landing_and_compaction(landed: Sql) -> None:
    statement = """SELECT * FROM T OFFSETS AS OF '{"0": 5, "1": 1}' ORDER BY _partition, _offset"""
    before = landed.rows(statement)
    landed.land("json")
    compact_table(str(landed.table_directory()))
    assert landed.rows(statement) == before
    assert len(before) == 6


def test_versions_that_do_not_exist_are_rejected_in_one_line(landed: Sql) -> None:
    current = open_table(str(landed.table_directory())).snapshot().version
    landed.broker.create_topic(f"{landed.topic}-new")
    for relation, message in (
        (f"T VERSION AS OF {current + 1}", f"no version {current + 1}: the current version is {current}"),
        (f"`{landed.topic}-new` VERSION AS OF 0", "-new has not landed, so that it has no versions"),
        ("""T OFFSETS AS OF '{"0": 1}'""", "OFFSETS AS OF: no offset of partition 1; name every partition"),
        ("""T OFFSETS AS OF '{"0": 1, "1": 3}'""", "-1: offset 3 does not exist yet: the partition ends at 2"),
    ):
        with pytest.raises(UnreadableTopicError) as raised:
            numbers(landed, relation)
        assert message in str(raised.value)
        assert len(str(raised.value).splitlines()) == 1
    with pytest.raises(AsOfClauseError, match=r"a version of a table has no live tail; query .* or .*_cold, or use"):
        numbers(landed, "T_hot VERSION AS OF 0")


def test_vacuumed_version_is_rejected(landed: Sql) -> None:
    first = version_of(landed, 2)
    compact_table(str(landed.table_directory()))
    open_table(str(landed.table_directory())).vacuum_files(0, orphans=False)
    with pytest.raises(
        UnreadableTopicError, match=f"has deleted files of version {first}: the oldest version that can"
    ):
        numbers(landed, f"T VERSION AS OF {first}")


def test_deleted_records_do_not_matter_to_offsets_that_have_landed(landed: Sql) -> None:
    landed.send(*documents(5))
    landed.delete_before(6)
    with pytest.raises(UnreadableTopicError, match="offsets 4 to 5 are missing"):
        numbers(landed, "T")
    assert numbers(landed, """T OFFSETS AS OF '{"0": 4, "1": 2}'""") == [0, 1, 2, 3, 10, 11]
    with pytest.raises(UnreadableTopicError, match="offsets 4 to 5 are missing"):
        numbers(landed, """T OFFSETS AS OF '{"0": 5, "1": 2}'""")


def test_clause_on_other_relations_is_left_to_spark(landed: Sql) -> None:
    from pyspark.errors import AnalysisException

    with pytest.raises(AnalysisException, match=r"(?i)time.travel"):
        query(
            landed.spark,
            "WITH c AS (SELECT 1) SELECT * FROM c VERSION AS OF 1",
            landed.broker.bootstrap,
            landed.root,
        )

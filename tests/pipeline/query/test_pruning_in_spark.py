"""Statements with and without pruning in a real Spark session: rows are the same; files and offsets are skipped.

The tables are in both formats. Their files have statistics of Chronik and of other writers: with bounds of strings that
are truncated, bounds of floats that ignore NaN, or none.
"""

from __future__ import annotations

import json
import random
import re
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from chronik.client.producer import Producer
from chronik.client.records import OutgoingRecord
from chronik.ids import format_id
from chronik.pipeline.query import pruning
from chronik.pipeline.query.explanation import explain_query
from chronik.pipeline.query.file_pruning import SkipReason
from chronik.pipeline.query.sql import query
from chronik.pipeline.query.views import PreparedViews, prepare_views
from chronik.pipeline.tables.catalog import open_or_create_table
from chronik.pipeline.tables.commit_plan import PartitionRange, TaskOutput, WrittenFile
from chronik.pipeline.tables.layout import TableKind, build_table_batch, system_columns
from chronik.pipeline.tables.parquet import PartitionedParquetWriter
from chronik.pipeline.tables.partitioning import parse_partitioning
from chronik.pipeline.tables.storage import table_uri
from chronik.pipeline.tables.table_files import UNKNOWN_BOUNDS
from chronik.pipeline.tables.topic_table import TableFormat, TableSpec, TopicTable
from chronik.pipeline.tables.values.table_schema import parse_schema_document
from tests.pipeline.query.topic_sql import NOON_MS, Sql, as_dicts
from tests.pipeline.table_fixtures import build_record_columns
from tests.run_size import SEED, sized

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.chronik_topic(partitions=3)

HOUR_MS = 3_600_000
FILES, ROWS_PER_FILE, TAIL_ROWS = 6, 3, 4
COLUMNS = "n bigint, x double, s string, d decimal(10,2), place string, user struct<id: bigint>"
PLACES = ("DE", "FR", "a b/c", None)


@dataclass
class PrunedTopic:
    """A topic, most of whose records have landed in small files."""

    sql: Sql
    table: TopicTable

    def rows(self, statement: str, *, prune: bool) -> list[str]:
        frame = query(
            self.sql.spark,
            self.name_views(statement),
            self.sql.broker.bootstrap,
            self.sql.root,
            prune=prune,
            executes_once=prune,
        )
        return sorted(map(repr, as_dicts(frame.collect())))

    def prepare(self, statement: str) -> PreparedViews:
        return prepare_views(
            self.sql.spark,
            self.name_views(statement),
            self.sql.broker.bootstrap,
            self.sql.root,
            prune=True,
            executes_once=True,
        )

    def name_views(self, statement: str) -> str:
        return re.sub(r"\bT(|_cold|_hot)\b", rf"`{self.sql.topic}\1`", statement)


@pytest.fixture
def sql(spark: SparkSession, sql: Sql) -> Sql:
    return sql


@pytest.fixture(scope="module")
def generator() -> random.Random:
    return random.Random(SEED)


@pytest.fixture(params=["delta", "iceberg"])
def topic(
    request: pytest.FixtureRequest, sql: Sql, generator: random.Random, monkeypatch: pytest.MonkeyPatch
) -> PrunedTopic:
    monkeypatch.setattr(pruning, "FILES_MIN", 0)
    metadata = sql.cluster.metadata([sql.topic]).topics[0]
    partitioning = parse_partitioning(generator.choice(["date", "hour", "place", "date, bucket(4, n)"]))
    spec = TableSpec(
        sql.topic,
        format_id(metadata.topic_id),
        TableKind.DECODED,
        partitioning,
        table_format=TableFormat(request.param),
    )
    schema = parse_schema_document({"columns": dict(each.split(" ", 1) for each in re.split(r", (?=\w+ )", COLUMNS))})
    table = open_or_create_table(table_uri(sql.root, sql.topic), spec, schema=schema)
    for partition in range(3):
        for number in range(FILES):
            land_file(table, generator, partition, number * ROWS_PER_FILE)
        produce_tail(sql, generator, partition)
    return PrunedTopic(sql, table)


def build_value(generator: random.Random, offset: int) -> dict[str, Any]:
    value = {
        "n": offset // 2,
        "x": generator.choice([1.5, -2.5, 100.0]),
        "s": generator.choice(["a", "ab", "abcdef", "ß"]) + str(offset % 3),
        "d": generator.choice([1.25, -3.5, 7]),
        "user": {"id": offset},
    }
    return {name: each for name, each in value.items() if generator.random() < 0.8}


def build_time_ms(offset: int) -> int:
    """Return a timestamp; a few are out of order."""
    return -1 if offset % 11 == 10 else NOON_MS + (offset - 5 * (offset % 7 == 6)) * HOUR_MS


def land_file(table: TopicTable, generator: random.Random, partition: int, start: int) -> None:
    """Land records in a file, some with NaN, with statistics as any of several writers stores them."""
    offsets = range(start, start + ROWS_PER_FILE)
    place = generator.choice(PLACES)
    values = [build_value(generator, offset) | {"place": place} for offset in offsets]
    records = build_record_columns(
        offsets, [json.dumps(each).encode() for each in values], timestamps_ms=[build_time_ms(each) for each in offsets]
    )
    own = table.descriptor().row_decoder().decode_rows(system_columns(partition, records)).rows
    if generator.random() < 0.3:
        own["x"] = pa.array([float("nan"), *own["x"].to_pylist()[1:]], pa.float64())
    schema, columns = table.snapshot().schema, table.spec.partitioning.columns
    with PartitionedParquetWriter(table.storage, schema, columns) as writer:
        writer.write(build_table_batch(own, schema))
    change = generator.choice([keep_statistics, remove_statistics, add_statistics])
    files = tuple(change(each, own) for each in writer.files)
    table.commit([TaskOutput((PartitionRange(partition, start, start + ROWS_PER_FILE),), files)])


def keep_statistics(file: WrittenFile, own: dict[str, pa.Array]) -> WrittenFile:
    return file


def remove_statistics(file: WrittenFile, own: dict[str, pa.Array]) -> WrittenFile:
    return replace(file, stats=json.dumps({"numRecords": file.rows}))


def add_statistics(file: WrittenFile, own: dict[str, pa.Array]) -> WrittenFile:
    """Add bounds over all rows, which are valid for a file with some of them."""
    stats = json.loads(file.stats)
    for name in ("x", "s"):
        known = [each for each in own[name].to_pylist() if each is not None and each == each]
        if known:
            low, high = (
                choose(known, key=lambda each: each if name == "x" else each.encode()) for choose in (min, max)
            )
            stats["minValues"][name] = low if name == "x" else low[:2]
            stats["maxValues"][name] = high if name == "x" else high[:2] + "\U0010ffff"
    return replace(file, stats=json.dumps(stats))


def produce_tail(sql: Sql, generator: random.Random, partition: int) -> None:
    """Produce all records of a partition. Those below the table's next offset have landed with other values."""
    records = [
        OutgoingRecord(
            json.dumps(build_value(generator, offset) | {"place": generator.choice(PLACES)}).encode(),
            timestamp=build_time_ms(offset),
            partition=partition,
        )
        for offset in range(FILES * ROWS_PER_FILE + TAIL_ROWS)
    ]
    Producer(sql.cluster).send(sql.topic, records)


# Random statements


def format_time(offset: int) -> str:
    return f"TIMESTAMP '{datetime.fromtimestamp(NOON_MS / 1000, UTC) + timedelta(hours=offset):%Y-%m-%d %H:%M:%S} UTC'"


def build_predicate(generator: random.Random) -> str:
    offset = generator.randint(-2, FILES * ROWS_PER_FILE + TAIL_ROWS + 2)
    constants = {
        "_partition": str(generator.randint(0, 3)),
        "_offset": str(offset),
        "_timestamp": format_time(offset),
        "_date": f"DATE '2024-05-0{generator.randint(1, 3)}'",
        "n": generator.choice([str(offset // 2), "3.5"]),
        "x": generator.choice(["1.5", "-2.5", "double('NaN')", "double('-Infinity')", "99"]),
        "s": generator.choice(["'a'", "'ab1'", "'abcdef'", "'b'", "'ß'"]),
        "d": generator.choice(["1.25", "-3.5", "7"]),
        "place": generator.choice(["'DE'", "'a b/c'", "'XX'"]),
        "user.id": str(offset),
    }
    column = generator.choice(list(constants))
    constant = constants[column]
    operator = generator.choice(
        ["=", "<>", "<", "<=", ">", ">=", "<=>", "IN", "NOT IN", "IS NULL", "IS NOT NULL", "LIKE"]
    )
    if operator == "LIKE":
        return "s LIKE 'ab%'"
    if operator.startswith("IS"):
        return f"{column} {operator}"
    return f"{column} {operator} ({constant})" if operator.endswith("IN") else f"{column} {operator} {constant}"


def build_condition(generator: random.Random) -> str:
    parts = [build_predicate(generator) for _ in range(generator.randint(1, 3))]
    joined = generator.choice([" AND ", " AND ", " OR "]).join(parts)
    return f"NOT ({joined})" if generator.random() < 0.15 else joined


def build_statement(generator: random.Random) -> str:
    first, second = build_condition(generator), build_condition(generator)
    return generator.choice(
        [
            f"SELECT * FROM T WHERE {first}",
            f"SELECT _partition, count(*), sum(n) FROM T WHERE {first} GROUP BY _partition",
            f"SELECT 'a', _offset FROM T WHERE {first} UNION ALL SELECT 'b', _offset FROM T WHERE {second}",
            f"WITH c AS (SELECT * FROM T) SELECT n, (SELECT count(*) FROM c WHERE {second}) FROM c WHERE {first}",
            f"SELECT x._offset, y.s FROM (SELECT * FROM T WHERE {first}) x LEFT JOIN T y USING (_partition, _offset)",
            f"SELECT _offset FROM T_cold WHERE {first} AND _offset NOT IN (SELECT _offset FROM T_hot WHERE {second})",
        ]
    )


def test_pruning_skips_files_and_offsets_without_needed_rows(topic: PrunedTopic, generator: random.Random) -> None:
    is_delta = topic.table.spec.table_format is TableFormat.DELTA
    for statement in [build_statement(generator) for _ in range(sized(int(is_delta), 100))]:
        assert topic.rows(statement, prune=True) == topic.rows(statement, prune=False), (SEED, statement)
    check_skipped_rows(topic)
    check_partition_values(topic)
    if is_delta:
        check_references_and_times(topic)
        check_statements_without_pruning(topic)


def check_skipped_rows(topic: PrunedTopic) -> None:
    (found,) = topic.prepare("SELECT * FROM T WHERE _partition = 1 AND _offset >= 19").pruned.values()
    assert [(each.partition, each.start, each.end) for each in found.snapshot.tail] == [(1, 19, 22)]
    for file, reason in zip(topic.table.snapshot().live_files, found.skipped, strict=True):
        has_statistics = file.partitions != UNKNOWN_BOUNDS
        assert (reason is SkipReason.STATISTICS) == has_statistics, "all rows have landed below offset 18"


def check_references_and_times(topic: PrunedTopic) -> None:
    tail = explain_query(
        topic.sql.spark,
        topic.name_views("SELECT * FROM T_hot WHERE _partition = 1 AND _offset >= 19"),
        topic.sql.broker.bootstrap,
        topic.sql.root,
    ).to_json()["views"][0]["tail"]
    assert tail.pop("bytes") > 3
    assert tail == {"offsets": 3, "skipped_offsets": 9, "ranges": [{"partition": 1, "start": 19, "end": 22}]}
    # Each reference needs other rows, so that both parts are read.
    (found,) = topic.prepare(
        "SELECT * FROM T x JOIN T y USING (n) WHERE x._partition = 0 AND y._partition = 2"
    ).pruned.values()
    assert [each.partition for each in found.snapshot.tail] == [0, 2]
    recent = f"SELECT _offset FROM T WHERE _timestamp >= {format_time(19)} AND _timestamp < current_timestamp()"
    prepared = topic.prepare(recent)
    (found,) = prepared.pruned.values()
    assert [each.start for each in found.snapshot.tail] == [19, 19, 19]
    assert "timestamp_micros" in prepared.statement
    assert topic.rows(recent, prune=True) == [repr({"_offset": 19})] * 3


def check_partition_values(topic: PrunedTopic) -> None:
    condition = "_date = DATE '1999-01-01'" if "_date" in topic.table.spec.partitioning.columns else "place = 'XX'"
    (found,) = topic.prepare(f"SELECT * FROM T_cold WHERE {condition}").pruned.values()
    assert set(found.skipped) == {SkipReason.PARTITION}
    assert topic.rows(f"SELECT * FROM T_cold WHERE {condition}", prune=True) == []


UNPRUNED_STATEMENTS = (
    "SELECT * FROM T WHERE unix_timestamp() > n",
    "SELECT * FROM T WHERE no_such_column = 1",
    "SELECT * FROM T",
    "SELECT current_timestamp(), n FROM T WHERE n > 1",
    "SELECT * FROM T WHERE _timestamp < 'now'",
)


def check_statements_without_pruning(topic: PrunedTopic) -> None:
    for statement in UNPRUNED_STATEMENTS[: sized(2, len(UNPRUNED_STATEMENTS))]:
        prepared = topic.prepare(statement)
        (found,) = prepared.pruned.values()
        assert (found.references, found.skipped) == (None, ()), statement
        assert found.snapshot is found.whole
        assert "timestamp_micros" not in prepared.statement

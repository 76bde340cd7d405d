"""Tests that Spark reads the files of a snapshot: partition columns, added columns, and compacted files."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

from chronik.pipeline.tables.commit_plan import PartitionRange, TaskOutput
from chronik.pipeline.tables.layout import TableKind, build_table_batch
from chronik.pipeline.tables.parquet import PartitionedParquetWriter
from chronik.pipeline.tables.storage import TableStorage
from chronik.pipeline.tables.topic_table import TableSpec
from chronik.pipeline.tables.values.json_decoder import JsonDecoder
from chronik.pipeline.tables.values.row_decoder import infer_statistics
from chronik.pipeline.tables.values.table_schema import INFERRED
from tests.pipeline.table_fixtures import NOON_2024_05_01_MS, SPEC, build_batch, compact_table, open_test_table

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

FIRST = [b'{"user": {"id": 1}}', b'{"user": {"id": 2}}']
THEN = [b'{"user": {"id": 3, "name": "x"}, "list": [1, null]}', b'{"user": {"id": "four"}, "new": true}']


def test_spark_reads_landed_rows_before_and_after_compaction(spark: SparkSession, tmp_path: Path) -> None:
    from pyspark.sql.pandas.types import from_arrow_schema

    committer = open_test_table(tmp_path, TableSpec(SPEC.topic, SPEC.topic_id, TableKind.DECODED))
    for number, values in enumerate((FIRST, THEN)):
        span = PartitionRange(0, 2 * number, 2 * number + 2)
        schema = committer.add_columns(infer_statistics(values)).schema
        base = build_batch(span, schema, timestamps_ms=[-1, NOON_2024_05_01_MS])
        own = {name: base.column(name) for name in base.schema.names}
        with PartitionedParquetWriter(TableStorage(str(tmp_path)), schema, ("_date",)) as writer:
            writer.write(build_table_batch(own | JsonDecoder(INFERRED, schema).decode(values).columns, schema))
        committer.commit([TaskOutput((span,), writer.files)])

    def read() -> list[Row]:
        snapshot = committer.snapshot()
        reader = spark.read.schema(from_arrow_schema(snapshot.schema)).option("basePath", str(tmp_path))
        found: list[Row] = reader.parquet(*snapshot.file_uris).orderBy("_offset").collect()
        return found

    before = read()
    assert [row["_offset"] for row in before] == [0, 1, 2, 3]
    assert [row["_date"] for row in before] == [None, date(2024, 5, 1)] * 2
    assert [row["_timestamp_ms"] for row in before] == [-1, None] * 2
    users = [None if row["user"] is None else (row["user"]["id"], row["user"]["name"]) for row in before]
    assert users == [(1, None), (2, None), (3, "x"), (None, None)]
    assert [row["list"] for row in before] == [None, None, [1, None], None]
    assert [row["new"] for row in before] == [None, None, None, True]
    assert [row["_rescued"] for row in before] == [None, None, None, '{"user":{"id":"four"}}']
    assert compact_table(str(tmp_path)).files_removed == 4
    assert read() == before

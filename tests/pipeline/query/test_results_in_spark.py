"""Results of queries as Arrow record batches, in a real Spark session."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from chronik.cli.pipeline.result_files import ResultFormat, write_result
from chronik.pipeline.query.results import read_record_batches

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STATEMENT = """
SELECT id AS n, concat('name ', id) AS name, timestamp_millis(id) AS at, CAST(id AS DECIMAL(10, 2)) AS price,
       map('id', id) AS tags, named_struct('x', array(id)) AS nested, date '2026-11-19' AS day,
       CAST(NULL AS BINARY) AS key, timestamp_ntz '2026-11-19 12:00:00' AS local
FROM range(0, 5000, 1, 4)
"""


def test_record_batches_have_all_rows_in_order(spark: SparkSession) -> None:
    frame = spark.sql(f"{STATEMENT} ORDER BY n DESC")
    batches = list(read_record_batches(frame))
    assert [n for batch in batches for n in batch["n"].to_pylist()] == list(range(4999, -1, -1))
    assert pa.Table.from_batches(batches).to_pylist() == frame.toArrow().to_pylist()


def test_result_without_rows_has_its_columns_and_types(spark: SparkSession) -> None:
    frame = spark.sql(f"{STATEMENT} WHERE id < 0")
    reader = read_record_batches(frame)
    assert reader.schema.names == frame.columns
    assert reader.read_all().num_rows == 0


def test_failed_query_leaves_no_file(spark: SparkSession, tmp_path: Path) -> None:
    from pyspark.errors import PySparkException

    failing = spark.sql("SELECT 1 / (id - 4000) AS n FROM range(0, 5000, 1, 4)")
    with pytest.raises(PySparkException, match="DIVIDE_BY_ZERO"):
        write_result(tmp_path / "rows.csv", ResultFormat.CSV, read_record_batches(failing))
    assert list(tmp_path.iterdir()) == []
    write_result(tmp_path / "rows.parquet", ResultFormat.PARQUET, read_record_batches(spark.range(10)))
    assert pq.read_table(tmp_path / "rows.parquet")["id"].to_pylist() == list(range(10))

"""Tests of the data source `chronik_table` without Spark: its options and columns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import IntegerType, LongType, StructField, StructType

from chronik.errors import ConfigError
from chronik.pipeline.query.table_source import TableOptions, TableReader, parse_table_options
from chronik.pipeline.source.error_reports import DataSourceError
from chronik.pipeline.tables.commit_plan import PartitionRange
from pyspark_chronik_table import DefaultSource
from tests.pipeline.table_fixtures import open_test_table, write_task_output

OFFSETS = StructType([StructField("_offset", LongType())])


def create_table(directory: Path) -> str:
    """Create a table with two files, of partitions 0 and 1."""
    table = open_test_table(directory)
    for partition in (0, 1):
        table.commit([write_task_output(directory, PartitionRange(partition, 0, 3))])
    return str(directory)


def read_offsets(options: dict[str, str], schema: StructType = OFFSETS) -> list[int]:
    reader: Any = TableReader(parse_table_options(options), schema)
    batches = [batch for part in reader.partitions() for batch in reader.read(part)]
    return sorted(offset for batch in batches for offset in batch.column("_offset").to_pylist())


def test_options_are_parsed_without_case(tmp_path: Path) -> None:
    assert parse_table_options({"PATH": f"{tmp_path}/"}) == TableOptions(str(tmp_path), {})
    assert parse_table_options({"path": "file:/a b"}).uri == "file:///a b"
    options = parse_table_options({"path": "s3://lake/orders", "aws_region": "eu-1"})
    assert options == TableOptions("s3://lake/orders", {"aws_region": "eu-1"})
    assert "eu-1" not in repr(options)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({}, "option path is missing"),
        ({"path": "tables", "subscribe": "orders"}, "unknown option subscribe: a local table has only the option path"),
    ],
)
def test_invalid_options_are_rejected(options: dict[str, str], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        parse_table_options(options)


def test_reader_returns_the_columns_of_its_schema(tmp_path: Path) -> None:
    uri = create_table(tmp_path)
    assert read_offsets({"path": uri}) == [0, 0, 1, 1, 2, 2]
    assert "_value" in DefaultSource({"path": uri}).schema().fieldNames()


def test_table_without_rows_has_one_empty_partition(tmp_path: Path) -> None:
    open_test_table(tmp_path)
    assert read_offsets({"path": str(tmp_path)}) == []


@pytest.mark.parametrize(
    ("field", "reason"),
    [
        (StructField("_offset", IntegerType()), "column _offset is bigint and not int: the table was changed"),
        (StructField("gone", LongType()), "column gone is missing and not bigint"),
    ],
)
def test_column_that_the_table_does_not_have_any_more_is_reported(
    tmp_path: Path, field: StructField, reason: str
) -> None:
    with pytest.raises(DataSourceError, match=reason):
        read_offsets({"path": create_table(tmp_path)}, StructType([field]))


def test_missing_table_is_reported_first(tmp_path: Path) -> None:
    with pytest.raises(DataSourceError, match="no table at"):
        DefaultSource({"path": str(tmp_path / "missing")}).schema()

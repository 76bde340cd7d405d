"""The landed rows of a table in an object store as a DataFrame, read by Python tasks.

Spark reads S3 only with the S3A jars, which PySpark does not contain. Without them, tasks read the Parquet files with
pyarrow through the table's own storage.

Spark pushes the filters of a statement down to a Python data source, but not to `mapInArrow`. Planning a data source
starts further Python processes, so small tables, of which there is little to skip, are read with `mapInArrow`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Final
from weakref import WeakSet

import pyarrow as pa

from chronik.limits import MIB
from chronik.pipeline.query.landed_rows import (
    FileIndices,
    LandedScan,
    encode_scan,
    plan_landed_tasks,
    read_landed_rows,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SMALL_TABLE_BYTES_MAX: Final = 64 * MIB
"""Total size in bytes of the files up to which a table is read without filter pushdown."""

PUSHDOWN_SETTING: Final = "spark.sql.python.filterPushdown.enabled"

_sessions_with_source: Final[WeakSet[SparkSession]] = WeakSet()


def build_landed_dataframe(spark: SparkSession, scan: LandedScan) -> DataFrame:
    """Build a DataFrame of a table's rows, which Python tasks read from its object store.

    For large tables, it enables filter pushdown to Python data sources in the session.
    """
    from pyspark.sql.pandas.types import from_arrow_schema

    schema, files = from_arrow_schema(scan.schema), scan.table.files
    if sum(file.size_bytes for file in files) <= SMALL_TABLE_BYTES_MAX:
        tasks = plan_landed_tasks(files, range(len(files)))
        numbers = spark.range(0, len(tasks), 1, len(tasks))  # one partition per task
        return numbers.mapInArrow(partial(_read_numbered_tasks, scan, tasks), schema)
    from chronik.pipeline.query.landed_rows_source import SCAN_OPTION, LandedRowsSource

    if spark not in _sessions_with_source:  # Spark warns about each repetition
        spark.dataSource.register(LandedRowsSource)
        _sessions_with_source.add(spark)
    spark.conf.set(PUSHDOWN_SETTING, "true")
    reader = spark.read.format(LandedRowsSource.name()).schema(schema)
    return reader.option(SCAN_OPTION, encode_scan(scan)).load()


def _read_numbered_tasks(
    scan: LandedScan, tasks: tuple[FileIndices, ...], numbers: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for batch in numbers:
        for number in batch.column(0).to_pylist():
            yield from read_landed_rows(scan, tasks[number])

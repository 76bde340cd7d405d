"""The landed rows of a table in an object store as a DataFrame, read by Python tasks.

Spark reads S3 only with the S3A jars, which PySpark does not contain. Without them, tasks read the Parquet files with
pyarrow through the table's own storage.

Spark pushes the filters of a statement down to a Python data source, but not to `mapInArrow`. It plans the partitions
of a data source once for all references to a DataFrame, with the filters of only one of them, so that rows of the
others would be missing. Therefore a data source is used only for a statement with a single reference that is executed
once. Planning a data source starts further Python processes, so small tables, of which there is little to skip, are
read with `mapInArrow` in any case.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

import pyarrow as pa

from chronik.limits import MIB
from chronik.pipeline.query.landed_rows import (
    FileIndices,
    LandedScan,
    encode_scan,
    plan_landed_tasks,
    read_landed_rows,
)
from chronik.pipeline.query.spark_schema import to_spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SMALL_TABLE_BYTES_MAX: Final = 64 * MIB
"""Total size in bytes of the files up to which a table is read without filter pushdown."""

PUSHDOWN_SETTING: Final = "spark.sql.python.filterPushdown.enabled"

SOURCE_PREFIX: Final = "chronik_landed_rows"

_source_names: Final[WeakKeyDictionary[SparkSession, dict[frozenset[tuple[str, str]], str]]] = WeakKeyDictionary()
"""Names of the registered data sources by session and storage options, because Spark warns about each repetition."""


def build_landed_dataframe(spark: SparkSession, scan: LandedScan, *, is_single_scan: bool = False) -> DataFrame:
    """Build a DataFrame of a table's rows, which Python tasks read from its object store.

    With `is_single_scan`, the DataFrame must occur once in one statement that is executed once. Tasks then skip files
    and row groups of large tables, and filter pushdown to Python data sources is enabled in the session.
    """
    schema, files = to_spark_schema(scan.schema), scan.table.files
    if not is_single_scan or sum(file.size_bytes for file in files) <= SMALL_TABLE_BYTES_MAX:
        tasks = plan_landed_tasks(files, range(len(files)))
        numbers = spark.range(0, len(tasks), 1, len(tasks))  # one partition per task
        return numbers.mapInArrow(partial(_read_numbered_tasks, scan, tasks), schema)
    from chronik.pipeline.query.landed_rows_source import SCAN_OPTION

    spark.conf.set(PUSHDOWN_SETTING, "true")
    reader = spark.read.format(_register_source(spark, scan.table.storage_options)).schema(schema)
    return reader.option(SCAN_OPTION, encode_scan(scan)).load()


def _register_source(spark: SparkSession, storage_options: Mapping[str, str] | None) -> str:
    """Register a data source for tables with these storage options, and return its name."""
    from chronik.pipeline.query.landed_rows_source import build_landed_rows_source

    names = _source_names.setdefault(spark, {})
    key = frozenset((storage_options or {}).items())
    if key not in names:
        name = f"{SOURCE_PREFIX}_{len(names)}" if names else SOURCE_PREFIX
        spark.dataSource.register(build_landed_rows_source(name, storage_options))
        names[key] = name
    return names[key]


def _read_numbered_tasks(
    scan: LandedScan, tasks: tuple[FileIndices, ...], numbers: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for batch in numbers:
        for number in batch.column(0).to_pylist():
            yield from read_landed_rows(scan, tasks[number])

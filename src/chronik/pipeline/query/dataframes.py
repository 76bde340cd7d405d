"""The landed rows and the live tail of a topic as DataFrames, both of a fixed snapshot."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from chronik.pipeline.query.live_tail import TailScan, build_tail_dataframe, plan_tail_tasks
from chronik.pipeline.query.name_resolution import TopicHalf
from chronik.pipeline.query.topic_snapshots import TopicSnapshot, UnreadableTopicError
from chronik.pipeline.source.options import ReadSettings
from chronik.pipeline.tables.layout import PARTITION
from chronik.pipeline.tables.storage import local_directory
from chronik.pipeline.tables.topic_table import TableSnapshot

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NO_GLOBBING: Final = {"__globPaths__": "false"}
"""Option of Spark's file reader that disables globbing, since directory names may contain `[` or `{`."""

LISTING_THRESHOLD: Final = "spark.sql.sources.parallelPartitionDiscovery.threshold"
LISTING_THRESHOLD_DEFAULT: Final = 32
"""Spark's default threshold."""


def build_dataframe(
    spark: SparkSession,
    snapshot: TopicSnapshot,
    half: TopicHalf,
    settings: ReadSettings,
    columns: Sequence[str] | None = None,
) -> DataFrame:
    """Build a DataFrame of one or both halves of a topic, with these columns or all of the table.

    Raises:
        UnreadableTopicError: The half cannot be determined.
    """
    unreadable = snapshot.table_error if half is TopicHalf.COLD else snapshot.tail_error
    if unreadable is not None:
        raise UnreadableTopicError(unreadable)
    # Without any column, Spark could not count the rows.
    names = tuple(snapshot.schema.names) if columns is None else tuple(columns) or (PARTITION,)
    if half is TopicHalf.COLD:
        return _build_cold_half(spark, snapshot, names)
    tail = TailScan(settings, snapshot.kind, snapshot.schema, names, plan_tail_tasks(snapshot.tail))
    hot = build_tail_dataframe(spark, tail)
    if half is TopicHalf.HOT or not _has_files(snapshot):
        return hot
    cold = _build_cold_half(spark, snapshot, names)
    return cold.union(hot) if tail.tasks else cold


def _build_cold_half(spark: SparkSession, snapshot: TopicSnapshot, names: Sequence[str]) -> DataFrame:
    """Read the snapshot's files with Spark's Parquet reader, which skips columns, partitions and row groups."""
    from pyspark.sql.pandas.types import from_arrow_schema

    landed = snapshot.table_snapshot
    if landed is None or not _has_files(snapshot):
        return spark.createDataFrame([], from_arrow_schema(_select_fields(snapshot.schema, names)))
    # Partition columns are restored from the directory names below this path.
    reader = spark.read.options(basePath=str(local_directory(landed.uri) or landed.uri), **NO_GLOBBING)
    rows = reader.schema(from_arrow_schema(snapshot.schema)).parquet(*_file_paths(landed))
    return rows.select([f"`{name}`" for name in names])


def _file_paths(landed: TableSnapshot) -> list[str]:
    """Return file paths without URL encoding, which Spark does not decode; delta-rs encodes some characters."""
    directory = local_directory(landed.uri)
    if directory is None:
        return list(landed.file_uris)
    depth = len(landed.partition_by) + 1
    return [str(directory.joinpath(*uri.split("/")[-depth:])) for uri in landed.file_uris]


@contextlib.contextmanager
def list_files_on_driver(spark: SparkSession, snapshot: TopicSnapshot) -> Iterator[None]:
    """Let the driver list the files of local tables while a view is created.

    From 33 files on, Spark lists each file in its own task, which is much slower on a local disk (59 files: 0.9 s
    instead of 0.1 s). Object stores are faster with parallel listing.
    """
    landed = snapshot.table_snapshot
    if landed is None or len(landed.file_uris) <= LISTING_THRESHOLD_DEFAULT or local_directory(landed.uri) is None:
        yield
        return
    previous = spark.conf.get(LISTING_THRESHOLD)
    spark.conf.set(LISTING_THRESHOLD, str(len(landed.file_uris)))
    try:
        yield
    finally:
        spark.conf.set(LISTING_THRESHOLD, previous)


def _has_files(snapshot: TopicSnapshot) -> bool:
    return snapshot.table_snapshot is not None and bool(snapshot.table_snapshot.file_uris)


def _select_fields(schema: pa.Schema, names: Sequence[str]) -> pa.Schema:
    return pa.schema([schema.field(name) for name in names])

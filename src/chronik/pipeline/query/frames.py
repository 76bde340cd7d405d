"""The landed rows and the live tail of a topic as DataFrames, both of a fixed snapshot."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from chronik.pipeline.query.names import Half
from chronik.pipeline.query.snapshots import TopicSnapshot, Unreadable
from chronik.pipeline.query.tail import Tail, tail_frame, tasks_of
from chronik.pipeline.reading.options import ReadSettings
from chronik.pipeline.tables.layout import PARTITION
from chronik.pipeline.tables.storage import local_folder
from chronik.pipeline.tables.topic_table import Snapshot

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NO_GLOBBING: Final = {"__globPaths__": "false"}
"""Option of Spark's file reader that disables globbing, since directory names may contain `[` or `{`."""

LISTING_THRESHOLD: Final = "spark.sql.sources.parallelPartitionDiscovery.threshold"
LISTING_THRESHOLD_DEFAULT: Final = 32
"""Spark's default threshold."""


def frame(
    spark: SparkSession,
    snapshot: TopicSnapshot,
    half: Half,
    settings: ReadSettings,
    columns: Sequence[str] | None = None,
) -> DataFrame:
    """Build a DataFrame of one or both halves of a topic, with these columns or all of the table.

    Raises:
        UnreadableTopicError: The half cannot be determined.
    """
    unreadable = snapshot.table_unreadable if half is Half.COLD else snapshot.tail_unreadable
    if unreadable is not None:
        raise Unreadable(unreadable)
    # Without any column, Spark could not count the rows.
    names = tuple(snapshot.schema.names) if columns is None else tuple(columns) or (PARTITION,)
    if half is Half.COLD:
        return _build_cold_half(spark, snapshot, names)
    tail = Tail(settings, snapshot.kind, snapshot.schema, names, tasks_of(snapshot.tail))
    hot = tail_frame(spark, tail)
    if half is Half.HOT or not _has_files(snapshot):
        return hot
    cold = _build_cold_half(spark, snapshot, names)
    return cold.union(hot) if tail.tasks else cold


def _build_cold_half(spark: SparkSession, snapshot: TopicSnapshot, names: Sequence[str]) -> DataFrame:
    """Read the snapshot's files with Spark's Parquet reader, which skips columns, partitions and row groups."""
    from pyspark.sql.pandas.types import from_arrow_schema

    landed = snapshot.landed
    if landed is None or not _has_files(snapshot):
        return spark.createDataFrame([], from_arrow_schema(_select_fields(snapshot.schema, names)))
    # Partition columns are restored from the directory names below this path.
    reader = spark.read.options(basePath=str(local_folder(landed.uri) or landed.uri), **NO_GLOBBING)
    rows = reader.schema(from_arrow_schema(snapshot.schema)).parquet(*_file_paths(landed))
    return rows.select([f"`{name}`" for name in names])


def _file_paths(landed: Snapshot) -> list[str]:
    """Return file paths without URL encoding, which Spark does not decode; delta-rs encodes some characters."""
    directory = local_folder(landed.uri)
    if directory is None:
        return list(landed.file_uris)
    depth = len(landed.partition_by) + 1
    return [str(directory.joinpath(*uri.split("/")[-depth:])) for uri in landed.file_uris]


@contextlib.contextmanager
def files_listed_by_the_driver(spark: SparkSession, snapshot: TopicSnapshot) -> Iterator[None]:
    """Let the driver list the files of local tables while a view is created.

    From 33 files on, Spark lists each file in its own task, which is much slower on a local disk (59 files: 0.9 s
    instead of 0.1 s). Object stores are faster with parallel listing.
    """
    landed = snapshot.landed
    if landed is None or len(landed.file_uris) <= LISTING_THRESHOLD_DEFAULT or local_folder(landed.uri) is None:
        yield
        return
    previous = spark.conf.get(LISTING_THRESHOLD)
    spark.conf.set(LISTING_THRESHOLD, str(len(landed.file_uris)))
    try:
        yield
    finally:
        spark.conf.set(LISTING_THRESHOLD, previous)


def _has_files(snapshot: TopicSnapshot) -> bool:
    return snapshot.landed is not None and bool(snapshot.landed.file_uris)


def _select_fields(schema: pa.Schema, names: Sequence[str]) -> pa.Schema:
    return pa.schema([schema.field(name) for name in names])

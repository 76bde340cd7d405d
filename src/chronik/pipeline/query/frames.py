"""The two halves of a topic as DataFrames, both with explicit ends."""

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

PATHS_AS_THEY_ARE: Final = {"__globPaths__": "false"}
"""Spark's own option for its file reader. Otherwise a `[` or a `{` in the name of a folder is a pattern."""

LISTING_THRESHOLD: Final = "spark.sql.sources.parallelPartitionDiscovery.threshold"
FILES_LISTED_BY_DRIVER: Final = 32
"""Spark's own default."""


def frame(
    spark: SparkSession,
    snapshot: TopicSnapshot,
    half: Half,
    settings: ReadSettings,
    columns: Sequence[str] | None = None,
) -> DataFrame:
    """Makes rows of a half, or of both: all columns of the table, or these. Raises Unreadable."""
    unreadable = snapshot.table_unreadable if half is Half.COLD else snapshot.tail_unreadable
    if unreadable is not None:
        raise Unreadable(unreadable)
    # Rows without any column are still counted.
    names = tuple(snapshot.schema.names) if columns is None else tuple(columns) or (PARTITION,)
    if half is Half.COLD:
        return _cold(spark, snapshot, names)
    tail = Tail(settings, snapshot.kind, snapshot.schema, names, tasks_of(snapshot.tail))
    hot = tail_frame(spark, tail)
    if half is Half.HOT or not _has_files(snapshot):
        return hot
    cold = _cold(spark, snapshot, names)
    return cold.union(hot) if tail.tasks else cold


def _cold(spark: SparkSession, snapshot: TopicSnapshot, names: Sequence[str]) -> DataFrame:
    """Reads the files of the snapshot by name, by Spark's own Parquet reader, which skips columns, days and row groups
    that a query does not need."""
    from pyspark.sql.pandas.types import from_arrow_schema

    landed = snapshot.landed
    if landed is None or not _has_files(snapshot):
        return spark.createDataFrame([], from_arrow_schema(_selected(snapshot.schema, names)))
    # The columns that are folders are restored from below this path.
    reader = spark.read.options(basePath=str(local_folder(landed.uri) or landed.uri), **PATHS_AS_THEY_ARE)
    rows = reader.schema(from_arrow_schema(snapshot.schema)).parquet(*_paths(landed))
    return rows.select([f"`{name}`" for name in names])


def _paths(landed: Snapshot) -> list[str]:
    """Returns them as Spark takes them, which decodes nothing; delta-rs writes some characters of names as in a URL."""
    folder = local_folder(landed.uri)
    if folder is None:
        return list(landed.file_uris)
    depth = len(landed.partition_by) + 1
    return [str(folder.joinpath(*uri.split("/")[-depth:])) for uri in landed.file_uris]


@contextlib.contextmanager
def files_listed_by_the_driver(spark: SparkSession, snapshot: TopicSnapshot) -> Iterator[None]:
    """Lasts while a view is made. From 33 files on Spark looks at each in a task of its own, which takes far longer
    than a local disk (59 files: 0.9 s instead of 0.1 s). An object store is better asked by many at once."""
    landed = snapshot.landed
    if landed is None or len(landed.file_uris) <= FILES_LISTED_BY_DRIVER or local_folder(landed.uri) is None:
        yield
        return
    before = spark.conf.get(LISTING_THRESHOLD)
    spark.conf.set(LISTING_THRESHOLD, str(len(landed.file_uris)))
    try:
        yield
    finally:
        spark.conf.set(LISTING_THRESHOLD, before)


def _has_files(snapshot: TopicSnapshot) -> bool:
    return snapshot.landed is not None and bool(snapshot.landed.file_uris)


def _selected(schema: pa.Schema, names: Sequence[str]) -> pa.Schema:
    return pa.schema([schema.field(name) for name in names])

"""Pruning of landed files and of live tails by the conditions of a statement.

Before the views of a statement are created, Spark plans the statement with views of the same names and columns that
have no rows: a Python data source receives the filters that Spark pushes down to each reference to a view. A row that
meets the filters of no reference cannot change the result, so files and offsets without other rows are skipped.

The views then read the remaining files as usual, on local disks with Spark's Parquet reader, and Spark evaluates all
conditions of the statement. If the statement cannot be planned in this way, nothing is skipped.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

import pyarrow as pa

from chronik.limits import MIB
from chronik.pipeline.query.conditions import Conjunction
from chronik.pipeline.query.current_time import depends_on_time, replace_current_time
from chronik.pipeline.query.file_pruning import SkipReason, find_skipped_files
from chronik.pipeline.query.lexer import tokenize_sql
from chronik.pipeline.query.name_resolution import TopicView
from chronik.pipeline.query.spark_schema import to_spark_schema
from chronik.pipeline.query.tail_pruning import FindOffsets, restrict_tail
from chronik.pipeline.query.topic_snapshots import TopicSnapshot, select_files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILES_MIN: Final = 16
"""Number of landed files from which a statement is planned for pruning, which takes about as long as to open them."""

BYTES_MIN: Final = 64 * MIB
"""Total size of the landed files from which a statement is planned for pruning."""

TAIL_RECORDS_MIN: Final = 100_000
"""Number of offsets in the live tail from which a statement is planned for pruning."""

PUSHDOWN_SETTING: Final = "spark.sql.python.filterPushdown.enabled"

REFERENCE_COLUMN: Final = "__chronik_reference"
"""A column of the planned views with a filter of its own, so that Spark pushes filters down to every reference."""

_CONDITIONAL_WORDS: Final = ("WHERE", "HAVING", "JOIN")
_QUERY_WORDS: Final = ("SELECT", "WITH", "FROM")
_COMMAND_WORDS: Final = ("INSERT", "INTO", "MERGE", "UPDATE", "DELETE", "EXECUTE")

_probed_sessions: Final[WeakKeyDictionary[SparkSession, bool]] = WeakKeyDictionary()
"""Sessions with the data source, and whether their drivers write to the directories of this machine."""


@dataclass(frozen=True, slots=True)
class ViewColumns:
    """A view with which a statement is planned."""

    name: str
    schema: pa.Schema


@dataclass(frozen=True, slots=True)
class PlannedStatement:
    """A statement and the rows that it needs."""

    statement: str
    """The statement with constants instead of the current time, so that it needs no other rows."""
    references: Mapping[str, tuple[Conjunction, ...]]
    """The conditions of each reference, by the name of the view."""


@dataclass(frozen=True, slots=True)
class PrunedSnapshot:
    """The part of a snapshot that a statement reads."""

    view: TopicView
    whole: TopicSnapshot
    snapshot: TopicSnapshot
    """The part that the statement reads."""
    references: tuple[Conjunction, ...] | None = None
    """The conditions of each reference to the view; None if they are unknown, so that the whole snapshot is read."""
    skipped: tuple[SkipReason | None, ...] = ()
    """Why the statement does not need a landed file, for each file of the whole snapshot; None for files it reads.
    Empty if nothing is skipped."""


def is_query(statement: str) -> bool:
    """Return whether a statement only returns rows. Names that are words of commands are taken for commands."""
    tokens = [each for each in tokenize_sql(statement) if not each.is_symbol("(")]
    is_command = any(each.is_word(*_COMMAND_WORDS) for each in tokens)
    return bool(tokens) and tokens[0].is_word(*_QUERY_WORDS) and not is_command


def is_prunable(statement: str) -> bool:
    """Return whether a statement is a query with conditions."""
    return is_query(statement) and any(each.is_word(*_CONDITIONAL_WORDS) for each in tokenize_sql(statement))


def is_worthwhile(snapshot: TopicSnapshot) -> bool:
    """Return whether skipping rows of a topic may save more time than planning the statement takes."""
    files = () if snapshot.table_snapshot is None else snapshot.table_snapshot.live_files
    return (
        len(files) >= FILES_MIN
        or sum(file.size_bytes for file in files) >= BYTES_MIN
        or sum(each.size for each in snapshot.tail) >= TAIL_RECORDS_MIN
    )


def plan_statement(spark: SparkSession, statement: str, views: Sequence[ViewColumns]) -> PlannedStatement | None:
    """Plan a statement, and return the conditions of its references to views; None if they cannot be determined.

    The session's views of these names are replaced.
    """
    from pyspark.errors import PySparkException

    from chronik.pipeline.query.filter_probe_source import read_recorded_filters

    if not _register_source(spark):
        return None
    with tempfile.TemporaryDirectory(prefix="chronik-filters-") as directory:
        try:
            _replace_views(spark, views, directory)
            planned = _fix_time(spark, statement)
            if planned is None:
                return None
            plan = spark.sql(f"EXPLAIN {planned}").collect()
        except PySparkException:
            return None  # the error is reported when the statement runs
        if not str(plan[0][0]).startswith("== Physical Plan =="):
            return None  # EXPLAIN returns errors as rows
        found = {view.name: tuple(read_recorded_filters(Path(directory), number)) for number, view in enumerate(views)}
    return PlannedStatement(planned, {name: tuple(map(_drop_own, each)) for name, each in found.items()})


def _register_source(spark: SparkSession) -> bool:
    """Register the data source, unless an earlier attempt failed, and return whether it can be used."""
    if spark not in _probed_sessions:
        try:
            from pyspark.errors import PySparkException

            from chronik.pipeline.query.filter_probe_source import FilterProbeSource

            spark.dataSource.register(FilterProbeSource)
            spark.conf.set(PUSHDOWN_SETTING, "true")
            _probed_sessions[spark] = True
        except (ImportError, AttributeError, PySparkException):
            _probed_sessions[spark] = False  # this version of Spark has no filter pushdown to Python
    return _probed_sessions[spark]


def _replace_views(spark: SparkSession, views: Sequence[ViewColumns], directory: str) -> None:
    from pyspark.sql.types import IntegerType, StructField, StructType

    from chronik.pipeline.query.filter_probe_source import DIRECTORY_OPTION, SOURCE_NAME, VIEW_OPTION

    for number, view in enumerate(views):
        columns = to_spark_schema(view.schema)
        schema = StructType([*columns.fields, StructField(REFERENCE_COLUMN, IntegerType())])
        reader = spark.read.format(SOURCE_NAME).schema(schema)
        rows = reader.option(DIRECTORY_OPTION, directory).option(VIEW_OPTION, str(number)).load()
        rows = rows.where(f"{REFERENCE_COLUMN} > 0").select([f"`{name}`" for name in view.schema.names])
        rows.createOrReplaceTempView(f"`{view.name}`")


def _fix_time(spark: SparkSession, statement: str) -> str | None:
    """Return a statement with the same result that does not depend on the current time, or None if there is none."""
    if spark.sql("SHOW USER FUNCTIONS").collect():
        return None  # a function may return the current time
    if not depends_on_time(statement):
        return statement
    found = replace_current_time(spark, statement)
    if found is None or spark.sql(found).columns != spark.sql(statement).columns:
        return None
    return found


def _drop_own(conditions: Conjunction) -> Conjunction:
    return tuple(each for each in conditions if each.column != REFERENCE_COLUMN)


def prune_snapshot(
    view: TopicView, snapshot: TopicSnapshot, references: tuple[Conjunction, ...], find_offsets: FindOffsets | None
) -> PrunedSnapshot:
    """Return the part of a snapshot that the references to a view need. Without references, it is the whole snapshot.

    Without `find_offsets`, all offsets of the live tail are read.

    Raises:
        ClientError, KafkaError: The brokers cannot find the offsets of timestamps.
    """
    if not references:
        return PrunedSnapshot(view, snapshot, snapshot, references)
    landed = snapshot.table_snapshot
    skipped: list[SkipReason | None] = []
    if landed is not None and landed.statistics is not None:
        skipped = find_skipped_files(landed.statistics, references, landed.partition_by)
        landed = select_files(landed, [index for index, reason in enumerate(skipped) if reason is None])
    tail = snapshot.tail if find_offsets is None else restrict_tail(snapshot.tail, references, find_offsets)
    needed = replace(snapshot, table_snapshot=landed, tail=tail)
    return PrunedSnapshot(view, snapshot, needed, references, tuple(skipped))

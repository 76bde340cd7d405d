"""Topics as temporary views of a Spark session: `orders`, `orders_cold` (landed rows) and `orders_hot` (live tail).

    from chronik.pipeline.spark import runtime
    from chronik.pipeline.query.views import views

    spark = runtime.session()
    views(spark, "127.0.0.1:9092", "tables", ["orders"])
    spark.sql("SELECT count(*) FROM orders").show()

All views are of one snapshot: they return the same rows until retention or vacuum deletes them. Create them again to
see newer records; `chronik.pipeline.query.sql.query` does so for each statement, and drops views of earlier statements,
but not those created here.

A view is the union of the landed rows and the live tail. A statement that uses a JSON field of a raw topic fails with a
message that explains that the topic's values are bytes.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NamedTuple
from weakref import WeakKeyDictionary

import pyarrow as pa

from chronik.client.access.settings import Bootstrap
from chronik.client.cluster import ClusterClient
from chronik.errors import ChronikError
from chronik.formats.registry_client import RegistrySettings
from chronik.pipeline import CLIENT_ID
from chronik.pipeline.query.landed_dataframe import build_landed_dataframe
from chronik.pipeline.query.landed_rows import LandedScan
from chronik.pipeline.query.live_tail import TailScan, build_tail_dataframe, plan_tail_tasks
from chronik.pipeline.query.name_resolution import (
    AmbiguousNameError,
    TopicNames,
    TopicView,
    TopicViewScope,
    find_referenced_columns,
    has_single_scan,
    to_unquoted_name,
)
from chronik.pipeline.query.pruning import (
    PrunedSnapshot,
    ViewColumns,
    is_prunable,
    is_worthwhile,
    plan_statement,
    prune_snapshot,
)
from chronik.pipeline.query.s3a import build_s3a_options, has_s3a, to_s3a_uri
from chronik.pipeline.query.spark_schema import to_spark_schema
from chronik.pipeline.query.time_travel import (
    AsOfClause,
    AsOfClauseError,
    AsOfOffsets,
    PointInTime,
    evaluate_clause,
    evaluate_time_in_spark,
    parse_as_of_clauses,
)
from chronik.pipeline.query.topic_snapshots import SnapshotReader, TopicSnapshot, UnreadableTopicError
from chronik.pipeline.source.options import IsolationLevel, ReadSettings
from chronik.pipeline.tables.layout import OFFSET, PARTITION, RESERVED_NAMES, VALUE, TableKind
from chronik.pipeline.tables.parquet import directories_contain_values
from chronik.pipeline.tables.storage import local_directory, to_absolute_root
from chronik.pipeline.tables.storage_options import is_s3
from chronik.pipeline.tables.topic_table import TableSnapshot
from chronik.protocol.errors import KafkaError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


NO_GLOBBING: Final = {"__globPaths__": "false"}
"""Option of Spark's file reader that disables globbing, since directory names may contain `[` or `{`."""

LISTING_THRESHOLD: Final = "spark.sql.sources.parallelPartitionDiscovery.threshold"
LISTING_THRESHOLD_DEFAULT: Final = 32
"""Spark's default for LISTING_THRESHOLD, the number of files above which Spark lists them in tasks."""

NO_SUCH_COLUMN = "UNRESOLVED_COLUMN"
NOT_A_STRUCT = "INVALID_EXTRACT_BASE_FIELD_TYPE"
"""Spark's error condition for a field access on a column without fields; NO_SUCH_COLUMN is for an unknown column."""

logger = logging.getLogger("chronik.pipeline")

_SESSION_VIEWS: Final[WeakKeyDictionary[SparkSession, dict[str, bool]]] = WeakKeyDictionary()
"""Lower-case view names by session, and whether each view exists only for the current statement."""


def build_dataframe(
    spark: SparkSession,
    snapshot: TopicSnapshot,
    half: TopicViewScope,
    settings: ReadSettings,
    columns: Sequence[str] | None = None,
    *,
    is_single_scan: bool = False,
) -> DataFrame:
    """Build a DataFrame of the landed rows, the live tail, or both, with the given columns or all columns.

    With `is_single_scan`, it must occur once in one statement that is executed once: see `build_landed_dataframe`.

    Raises:
        UnreadableTopicError: The half cannot be determined.
    """
    unreadable = snapshot.table_error if half is TopicViewScope.COLD else snapshot.tail_error
    if unreadable is not None:
        raise UnreadableTopicError(unreadable)
    # Without any column, Spark could not count the rows.
    names = tuple(snapshot.schema.names) if columns is None else tuple(columns) or (PARTITION,)
    if half is TopicViewScope.COLD:
        return _build_cold_dataframe(spark, snapshot, names, is_single_scan)
    tasks = plan_tail_tasks(snapshot.tail)
    tail = TailScan(
        settings,
        snapshot.kind,
        snapshot.schema,
        names,
        tasks,
        snapshot.value_schema,
        snapshot.partition_by,
        snapshot.format,
        snapshot.registry,
    )
    hot = build_tail_dataframe(spark, tail)
    if half is TopicViewScope.HOT or not _has_files(snapshot):
        return hot
    cold = _build_cold_dataframe(spark, snapshot, names, is_single_scan)
    return cold.union(hot) if tail.tasks else cold


def _build_cold_dataframe(
    spark: SparkSession, snapshot: TopicSnapshot, names: Sequence[str], is_single_scan: bool
) -> DataFrame:
    """Read the landed rows with Spark's Parquet reader, which prunes columns, partitions and row groups.

    Python tasks read tables on S3 without S3A, tables whose directory names do not contain all partition values, and
    tables with files of other tools, which may have other names of columns.
    """
    landed = snapshot.table_snapshot
    if landed is None or not _has_files(snapshot):
        return spark.createDataFrame([], to_spark_schema(_select_fields(snapshot.schema, names)))
    if snapshot.end_offsets:
        positions = [name for name in (PARTITION, OFFSET) if name not in names]
        rows = _build_cold_dataframe(spark, replace(snapshot, end_offsets=()), [*names, *positions], False)
        return rows.where(_build_offset_condition(snapshot.end_offsets)).select([f"`{name}`" for name in names])
    has_values = directories_contain_values(landed.file_uris, len(landed.partition_by))
    is_readable = local_directory(landed.uri) is not None or (is_s3(landed.uri) and has_s3a(spark))
    has_iceberg_names = any(file.may_have_iceberg_names for file in landed.live_files)
    if not has_values or not is_readable or has_iceberg_names:
        scan = LandedScan(landed.files, tuple(names))
        return build_landed_dataframe(spark, scan, is_single_scan=is_single_scan)
    options = build_s3a_options(landed.descriptor.storage_options or {}) if is_s3(landed.uri) else {}
    # Partition columns are restored from the directory names below this path.
    base_path = str(local_directory(landed.uri) or to_s3a_uri(landed.uri))
    reader = spark.read.options(basePath=base_path, **NO_GLOBBING, **options)
    rows = reader.schema(to_spark_schema(snapshot.schema)).parquet(*_decode_file_paths(landed))
    return rows.select([f"`{name}`" for name in names])


def _build_offset_condition(end_offsets: Iterable[tuple[int, int]]) -> str:
    excluded = " OR ".join(f"({PARTITION} = {partition} AND {OFFSET} >= {end})" for partition, end in end_offsets)
    return f"NOT ({excluded})"


def _decode_file_paths(landed: TableSnapshot) -> list[str]:
    """Return file paths without URL encoding, which Spark does not decode; delta-rs encodes some characters."""
    directory = local_directory(landed.uri)
    if directory is None:
        return [to_s3a_uri(uri) for uri in landed.file_uris]
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


class RawFieldError(ChronikError):
    """A statement uses a JSON field of a topic with undecoded values. The message explains how to extract it."""


class RawTopic(NamedTuple):
    """A topic whose values are queried as bytes, because they are not decoded into columns."""

    topic: str
    has_landed: bool


def explain_raw_field(condition: str, name: Sequence[str], raw: Mapping[str, RawTopic]) -> RawFieldError | None:
    """Explain a Spark error caused by a JSON field of a topic with undecoded values; return None for other errors.

    Args:
        condition: Spark's error condition.
        name: The parts of the name that Spark could not resolve, perhaps with a qualifier.
        raw: The raw topics in the statement, by the names of their views.
    """
    if not name or not raw:
        return None
    if condition == NOT_A_STRUCT and name[-1] == VALUE:
        return _build_raw_field_error("…", _find_raw_topic(name[:-1], raw))
    if condition.startswith(NO_SUCH_COLUMN) and name[-1] not in RESERVED_NAMES:
        return _build_raw_field_error(name[-1], _find_raw_topic(name[:-1], raw))
    return None


def _find_raw_topic(before: Sequence[str], raw: Mapping[str, RawTopic]) -> RawTopic:
    """Return the raw topic that a qualifier refers to. For an alias, return the statement's first raw topic."""
    by_name = {view.casefold(): each for view, each in raw.items()}
    return next((by_name[part.casefold()] for part in before if part.casefold() in by_name), next(iter(raw.values())))


def _build_raw_field_error(field: str, raw: RawTopic) -> RawFieldError:
    topic = raw.topic
    state = f"{topic} has landed in raw format" if raw.has_landed else f"{topic} has not landed"
    commands = (
        f"chronik topics alter {topic} -c columnar.format=json, and chronik pipeline run into another --table-root (a "
        "table keeps its format)"
        if raw.has_landed
        else f"chronik topics alter {topic} -c columnar.enabled=true -c columnar.format=json, and chronik pipeline run"
    )
    return RawFieldError(
        f"there is no column {field}: {state}, so its values are bytes in column {VALUE}. To read the field now, use "
        f"get_json_object(CAST({VALUE} AS STRING), '$.{field}'); to get columns, land the topic as JSON: {commands}"
    )


class UnknownTopicError(ChronikError):
    """No topic and no table has this name."""


@dataclass(frozen=True, slots=True)
class CreatedViews:
    """The views of topics that were created, and those that could not be created."""

    names: tuple[str, ...]
    """Names of the created views."""
    rejected: dict[str, str]
    """Views that could not be created, with the reasons."""


@dataclass(frozen=True, slots=True)
class PreparedViews:
    """The views that were created for a statement."""

    statement: str
    """The statement with the names of the created views instead of `AS OF` clauses."""
    names: TopicNames
    rejected: dict[str, ChronikError]
    """Views that could not be created, with the reasons. Using such a name as a view is an error."""
    table_only_topics: tuple[str, ...]
    """Topics in the statement that do not exist on the cluster, so that only landed rows are available."""
    raw_topics: dict[str, RawTopic]
    """Topics with undecoded values, by the names of their views."""
    pruned: dict[str, PrunedSnapshot]
    """The parts of snapshots that the statement reads, by the names of the views."""


def views(
    spark: SparkSession,
    bootstrap: Bootstrap,
    table_root: str,
    topics: Iterable[str] | None = None,
    *,
    storage_options: Mapping[str, str] | None = None,
    registry: RegistrySettings | None = None,
) -> CreatedViews:
    """Create Spark views of these topics, or of all topics and tables, from one snapshot.

        spark = session()
        views(spark, "127.0.0.1:9092", "tables", ["orders"])
        spark.sql("SELECT count(*) FROM orders").show()

    A topic has three views: `orders`, `orders_cold` (landed rows) and `orders_hot` (live tail). They return the same
    rows until retention or vacuum deletes them; create them again to see newer records. Without `topics`, the
    result lists the views that could not be created. `storage_options` are those of an S3 root. Schemas of typed
    records come from `registry`, or else from that of the brokers.

    Raises:
        UnknownTopicError: A topic in `topics` does not exist.
        UnreadableTopicError: The landed rows or the live tail of a topic in `topics` cannot be read.
        ClientError: No broker responds.
        KafkaError: A broker rejects a request.
        TableStorageError: The object store of the tables cannot be listed.
    """
    return _create_views(spark, bootstrap, table_root, topics, storage_options, registry, is_temporary=False)


def create_all_views(
    spark: SparkSession,
    bootstrap: Bootstrap,
    table_root: str,
    storage_options: Mapping[str, str] | None = None,
    registry: RegistrySettings | None = None,
) -> None:
    """Create all possible views, for a statement that lists views.

    Raises:
        ClientError: No broker responds.
        KafkaError: A broker rejects a request.
        TableStorageError: The object store of the tables cannot be listed.
    """
    _create_views(spark, bootstrap, table_root, None, storage_options, registry, is_temporary=True)


def _create_views(
    spark: SparkSession,
    bootstrap: Bootstrap,
    table_root: str,
    topics: Iterable[str] | None,
    storage_options: Mapping[str, str] | None,
    registry: RegistrySettings | None,
    *,
    is_temporary: bool,
) -> CreatedViews:
    settings = build_read_settings(bootstrap)
    with ClusterClient(bootstrap, client_id=CLIENT_ID) as cluster:
        snapshots = SnapshotReader(cluster, to_absolute_root(table_root), storage_options, registry)
        known = snapshots.list_topics()
        requested = list(dict.fromkeys(topics)) if topics is not None else [each for each in known if each[:2] != "__"]
        if missing := sorted(set(requested) - set(known)):
            raise UnknownTopicError(f"no topic or table is named {', '.join(missing)}")
        topic_snapshots = snapshots.take_snapshots(requested)
    created, refused = [], {}
    for view in _list_all_views(requested, TopicNames(known)):
        try:
            _create_view(spark, view, topic_snapshots[view.topic], settings, is_temporary=is_temporary)
            created.append(view.name)
        except UnreadableTopicError as error:
            if topics is not None:
                raise
            refused[view.name] = str(error)
            _drop_view(spark, view.name)
    if not is_temporary:
        warn_about_missing_topics(each.topic for each in topic_snapshots.values() if each.is_table_only)
    return CreatedViews(tuple(created), refused)


def prepare_views(
    spark: SparkSession,
    statement: str,
    bootstrap: Bootstrap,
    table_root: str,
    *,
    also: Iterable[str] = (),
    prune: bool = False,
    executes_once: bool = False,
    storage_options: Mapping[str, str] | None = None,
    registry: RegistrySettings | None = None,
) -> PreparedViews:
    """Create the views that a statement names, and the additional ones in `also`, from one snapshot.

    With `prune`, the views have only the columns that the statement names. With `executes_once`, they may omit rows
    that the statement does not need, if it is worthwhile. Views of earlier statements are dropped, since a name that
    Spark resolves indirectly would otherwise read their old snapshot.

    Raises:
        AmbiguousNameError: Two names differ only in case, but refer to different topics.
        AsOfClauseError: An `AS OF` clause is invalid.
        UnreadableTopicError: A topic cannot be read as of a point in time.
        ClientError: No broker responds.
        KafkaError: A broker rejects a request.
        TableStorageError: The object store of the tables cannot be listed.
    """
    others = tuple(also)
    with ClusterClient(bootstrap, client_id=CLIENT_ID) as cluster:
        snapshots = SnapshotReader(cluster, to_absolute_root(table_root), storage_options, registry)
        names = TopicNames(snapshots.list_topics())
        parsed = parse_as_of_clauses(statement, lambda name: names.resolve(name) is not None)
        named = names.resolve_statement(parsed.text_without_clauses, others)
        past_views = {each.view: _resolve_clause(spark, names, each) for each in parsed.clauses}
        all_views = [*named.views, *past_views.values()]
        _drop_earlier_views(spark, {view.name.casefold() for view in all_views})
        topic_snapshots: dict[tuple[str, PointInTime | None], TopicSnapshot] = {
            (topic, None): snapshot
            for topic, snapshot in snapshots.take_snapshots(dict.fromkeys(view.topic for view in named.views)).items()
        }
        for view in past_views.values():
            if view.as_of is not None and (view.topic, view.as_of) not in topic_snapshots:
                past = snapshots.take_snapshot_as_of(view.topic, view.as_of)
                topic_snapshots[view.topic, view.as_of] = past
        statement = parsed.text
        wanted = {view: topic_snapshots[view.topic, view.as_of] for view in all_views}
        pruned = {view.name: PrunedSnapshot(view, snapshot, snapshot) for view, snapshot in wanted.items()}
        may_omit_rows = prune and executes_once and not others and is_prunable(statement)
        if may_omit_rows and any(map(is_worthwhile, wanted.values())):
            statement, needed = _prune_views(spark, statement, wanted, snapshots)
            pruned |= needed
    refused: dict[str, ChronikError] = dict(named.ambiguous)
    only_landed: dict[str, None] = {}
    raw: dict[str, RawTopic] = {}
    is_single_scan = executes_once and not others and has_single_scan(statement)
    for view in all_views:
        snapshot = topic_snapshots[view.topic, view.as_of]
        columns = find_referenced_columns(statement, snapshot.schema.names) if prune else None
        try:
            _create_view(
                spark,
                view,
                pruned[view.name].snapshot,
                build_read_settings(bootstrap),
                columns,
                is_temporary=True,
                is_single_scan=is_single_scan,
            )
        except UnreadableTopicError as error:
            if view.as_of is not None:
                raise
            refused[view.name] = error
        if snapshot.is_table_only and view.half is not TopicViewScope.COLD:
            only_landed[view.topic] = None
        if snapshot.kind is TableKind.RAW:
            raw[view.name] = RawTopic(view.topic, snapshot.table_snapshot is not None)
    for name in refused:
        _drop_view(spark, name)
    return PreparedViews(statement, names, refused, tuple(only_landed), raw, pruned)


def _prune_views(
    spark: SparkSession, statement: str, views: Mapping[TopicView, TopicSnapshot], reader: SnapshotReader
) -> tuple[str, dict[str, PrunedSnapshot]]:
    """Return the statement to run, and by the names of views the parts of their snapshots that it needs."""
    columns = [
        ViewColumns(view.name, _select_fields(snapshot.schema, _find_columns(statement, snapshot)))
        for view, snapshot in views.items()
    ]
    planned = plan_statement(spark, statement, columns)
    if planned is None:
        return statement, {}
    found = {}
    for view, snapshot in views.items():
        references = planned.references[view.name]
        find_offsets = None if view.half is TopicViewScope.COLD else reader.find_offsets
        try:
            found[view.name] = prune_snapshot(view, snapshot, references, find_offsets)
        except KafkaError:  # a partition without leader, which the tasks of the query may wait for
            found[view.name] = prune_snapshot(view, snapshot, references, None)
    return planned.statement, found


def _find_columns(statement: str, snapshot: TopicSnapshot) -> list[str]:
    # Without any column, Spark could not count the rows.
    return find_referenced_columns(statement, snapshot.schema.names) or [PARTITION]


def _resolve_clause(spark: SparkSession, names: TopicNames, clause: AsOfClause) -> TopicView:
    found = names.resolve(clause.name)
    assert found is not None, "the clause was found by its topic"
    as_of = evaluate_clause(clause, lambda expression: evaluate_time_in_spark(spark, expression))
    if found.half is TopicViewScope.HOT and not isinstance(as_of, AsOfOffsets):
        raise AsOfClauseError(
            f"{clause}: a version of a table has no live tail; query {found.topic} or {found.topic}_cold, or use"
            " OFFSETS AS OF"
        )
    return TopicView(clause.view, found.topic, found.half, as_of)


def warn_about_missing_topics(topics: Iterable[str]) -> None:
    """Log a warning for topics that do not exist on the cluster."""
    for topic in topics:
        logger.warning("topic %s does not exist on the cluster; querying landed rows only", topic)


def _drop_earlier_views(spark: SparkSession, named: set[str]) -> None:
    created = _SESSION_VIEWS.get(spark, {})
    for name in [name for name, is_temporary in created.items() if is_temporary and name not in named]:
        _drop_view(spark, name)
        del created[name]


def _drop_view(spark: SparkSession, name: str) -> None:
    """Drop a view, so that no statement reads its old snapshot."""
    spark.catalog.dropTempView(name)


def _list_all_views(topics: Iterable[str], names: TopicNames) -> list[TopicView]:
    """Return the views of topics under all unambiguous names."""
    found: dict[str, TopicView] = {}
    for topic in topics:
        for half in TopicViewScope:
            for name in dict.fromkeys((topic + half, to_unquoted_name(topic) + half)):
                with contextlib.suppress(AmbiguousNameError):
                    view = names.resolve(name)
                    if view is not None and (view.topic, view.half) == (topic, half):
                        found.setdefault(name.casefold(), view)
    return list(found.values())


def _create_view(
    spark: SparkSession,
    view: TopicView,
    snapshot: TopicSnapshot,
    settings: ReadSettings,
    columns: list[str] | None = None,
    *,
    is_temporary: bool,
    is_single_scan: bool = False,
) -> None:
    with list_files_on_driver(spark, snapshot):
        rows = build_dataframe(spark, snapshot, view.half, settings, columns, is_single_scan=is_single_scan)
        rows.createOrReplaceTempView(f"`{view.name}`")
    created = _SESSION_VIEWS.setdefault(spark, {})
    # Views created by `views` are kept, even if later statements name them.
    created[view.name.casefold()] = is_temporary and created.get(view.name.casefold(), True)


def build_read_settings(bootstrap: Bootstrap) -> ReadSettings:
    """Return the settings with which queries read live tails."""
    return ReadSettings(bootstrap, IsolationLevel.READ_COMMITTED)

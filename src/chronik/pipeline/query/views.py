"""Topics as temporary views of a Spark session: `orders`, `orders_cold` (landed rows) and `orders_hot` (live tail).

    from chronik.pipeline.spark import runtime
    from chronik.pipeline.query.views import views

    spark = runtime.session()
    views(spark, "127.0.0.1:9092", "tables", ["orders"])
    spark.sql("SELECT count(*) FROM orders").show()

All views are of one snapshot: they return the same rows until retention or vacuum deletes them. Create them again to
see newer records; `chronik.pipeline.query.sql.query` does so for each statement, and drops views of earlier statements,
but not those created here.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

from chronik.client.access.settings import Bootstrap
from chronik.client.cluster import ClusterClient
from chronik.errors import ChronikError
from chronik.pipeline import CLIENT_ID
from chronik.pipeline.query.dataframes import build_dataframe, list_files_on_driver
from chronik.pipeline.query.name_resolution import (
    AmbiguousNameError,
    TopicHalf,
    TopicNames,
    TopicView,
    referenced_columns,
    unquoted_name,
)
from chronik.pipeline.query.raw_field_errors import RawTopic
from chronik.pipeline.query.topic_snapshots import SnapshotReader, TopicSnapshot, UnreadableTopicError
from chronik.pipeline.source.options import IsolationLevel, ReadSettings
from chronik.pipeline.tables.layout import TableKind
from chronik.pipeline.tables.storage import absolute_root

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


logger = logging.getLogger("chronik.pipeline")

_SESSION_VIEWS: Final[WeakKeyDictionary[SparkSession, dict[str, bool]]] = WeakKeyDictionary()
"""By session, the lower-case names of its views and whether each is only for the current statement."""


class UnknownTopicError(ChronikError):
    """No topic and no table has this name."""


@dataclass(frozen=True, slots=True)
class CreatedViews:
    """The result of creating views."""

    names: tuple[str, ...]
    """Names of the created views."""
    rejected: dict[str, str]
    """Views that could not be created, and why."""


@dataclass(frozen=True, slots=True)
class PreparedViews:
    """The views that were created for a statement."""

    names: TopicNames
    rejected: dict[str, ChronikError]
    """Views that could not be created, and why. It is an error only if the statement uses the name as a view."""
    table_only_topics: tuple[str, ...]
    """Topics in the statement that are unknown to the brokers, so that the live tail is missing."""
    raw_topics: dict[str, RawTopic]
    """Topics with undecoded values, by the names of their views."""


def views(
    spark: SparkSession, bootstrap: Bootstrap, table_root: str, topics: Iterable[str] | None = None
) -> CreatedViews:
    """Create views of these topics, or of all topics and tables, from one snapshot.

        spark = session()
        views(spark, "127.0.0.1:9092", "tables", ["orders"])
        spark.sql("SELECT count(*) FROM orders").show()

    A topic has three views: `orders`, `orders_cold` (landed rows) and `orders_hot` (live tail). They return the same
    rows until retention or vacuum deletes them; create them again to see newer records. Without `topics`, the
    result lists the views that could not be created.

    Raises:
        UnknownTopicError: A topic in `topics` does not exist.
        UnreadableTopicError: The landed rows or the live tail of a topic in `topics` cannot be read.
        ClientError: No broker responds.
        KafkaError: A broker rejects a request.
    """
    return _create_views(spark, bootstrap, table_root, topics, is_temporary=False)


def create_all_views(spark: SparkSession, bootstrap: Bootstrap, table_root: str) -> None:
    """Create all possible views, for a statement that lists them.

    Raises:
        ClientError: No broker responds.
        KafkaError: A broker rejects a request.
    """
    _create_views(spark, bootstrap, table_root, None, is_temporary=True)


def _create_views(
    spark: SparkSession, bootstrap: Bootstrap, table_root: str, topics: Iterable[str] | None, *, is_temporary: bool
) -> CreatedViews:
    settings = _settings(bootstrap)
    with ClusterClient(bootstrap, client_id=CLIENT_ID) as cluster:
        snapshots = SnapshotReader(cluster, absolute_root(table_root))
        known = snapshots.list_topics()
        requested = list(dict.fromkeys(topics)) if topics is not None else [each for each in known if each[:2] != "__"]
        if missing := sorted(set(requested) - set(known)):
            raise UnknownTopicError(f"no topic or table is named {', '.join(missing)}")
        topic_snapshots = snapshots.take_snapshots(requested)
    created, refused = [], {}
    for view in _all_views(requested, TopicNames(known)):
        try:
            _create_view(spark, view, topic_snapshots[view.topic], settings, is_temporary=is_temporary)
            created.append(view.name)
        except UnreadableTopicError as error:
            if topics is not None:
                raise
            refused[view.name] = str(error)
            _drop_view(spark, view.name)
    if not is_temporary:
        warn_table_only(each.topic for each in topic_snapshots.values() if each.is_table_only)
    return CreatedViews(tuple(created), refused)


def prepare_views(
    spark: SparkSession,
    statement: str,
    bootstrap: Bootstrap,
    table_root: str,
    *,
    also: Iterable[str] = (),
    prune: bool = False,
) -> PreparedViews:
    """Create the views that a statement names, and those in `also`, from one snapshot.

    With `prune`, the views have only the columns that the statement names. Views of earlier statements are dropped,
    since a name that Spark resolves indirectly would otherwise read their old snapshot.

    Raises:
        AmbiguousNameError: Two names differ only in case, but refer to different topics.
        ClientError: No broker responds.
        KafkaError: A broker rejects a request.
    """
    with ClusterClient(bootstrap, client_id=CLIENT_ID) as cluster:
        snapshots = SnapshotReader(cluster, absolute_root(table_root))
        names = TopicNames(snapshots.list_topics())
        named = names.resolve_statement(statement, also)
        _drop_earlier_views(spark, {view.name.casefold() for view in named.views})
        topic_snapshots = snapshots.take_snapshots(dict.fromkeys(view.topic for view in named.views))
    refused: dict[str, ChronikError] = dict(named.ambiguous)
    only_landed: dict[str, None] = {}
    raw: dict[str, RawTopic] = {}
    for view in named.views:
        snapshot = topic_snapshots[view.topic]
        columns = referenced_columns(statement, snapshot.schema.names) if prune else None
        try:
            _create_view(spark, view, snapshot, _settings(bootstrap), columns, is_temporary=True)
        except UnreadableTopicError as error:
            refused[view.name] = error
        if snapshot.is_table_only and view.half is not TopicHalf.COLD:
            only_landed[view.topic] = None
        if snapshot.kind is TableKind.RAW:
            raw[view.name] = RawTopic(view.topic, snapshot.table_snapshot is not None)
    for name in refused:
        _drop_view(spark, name)
    return PreparedViews(names, refused, tuple(only_landed), raw)


def warn_table_only(topics: Iterable[str]) -> None:
    """Log a warning for topics that are unknown to the brokers."""
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


def _all_views(topics: Iterable[str], names: TopicNames) -> list[TopicView]:
    """Return the views of topics under all names that refer to exactly that topic and half."""
    found: dict[str, TopicView] = {}
    for topic in topics:
        for half in TopicHalf:
            for name in dict.fromkeys((topic + half, unquoted_name(topic) + half)):
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
) -> None:
    with list_files_on_driver(spark, snapshot):
        rows = build_dataframe(spark, snapshot, view.half, settings, columns)
        rows.createOrReplaceTempView(f"`{view.name}`")
    created = _SESSION_VIEWS.setdefault(spark, {})
    # Views created by `views` are kept, even if later statements name them.
    created[view.name.casefold()] = is_temporary and created.get(view.name.casefold(), True)


def _settings(bootstrap: Bootstrap) -> ReadSettings:
    return ReadSettings(bootstrap, IsolationLevel.READ_COMMITTED)

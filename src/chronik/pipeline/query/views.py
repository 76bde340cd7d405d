"""Topics as views of a Spark session: `orders` (all of it), `orders_cold` (what has landed), `orders_hot` (the rest).

    from chronik.pipeline.spark import runtime
    from chronik.pipeline.query.views import views

    spark = runtime.session()
    views(spark, "127.0.0.1:9092", "tables", ["orders"])
    spark.sql("SELECT count(*) FROM orders").show()

The views are one snapshot: whatever lands or arrives afterwards, they give the same rows, as long as retention and
vacuum leave them. Take them again to see more; `chronik.pipeline.query.sql.query` does so for each statement, and
leaves no views behind for the next but those that were taken here.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

from chronik.client.access.settings import Bootstrap
from chronik.client.cluster import Cluster
from chronik.errors import ChronikError
from chronik.pipeline import CLIENT_ID
from chronik.pipeline.query.frames import files_listed_by_the_driver, frame
from chronik.pipeline.query.names import AmbiguousName, Half, Names, View, columns_named, plain
from chronik.pipeline.query.raw_fields import RawTopic
from chronik.pipeline.query.snapshots import Snapshots, TopicSnapshot, Unreadable
from chronik.pipeline.reading.options import IsolationLevel, ReadSettings
from chronik.pipeline.tables.layout import Kind
from chronik.pipeline.tables.storage import absolute_root

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


logger = logging.getLogger("chronik.pipeline")

_MADE: Final[WeakKeyDictionary[SparkSession, dict[str, bool]]] = WeakKeyDictionary()
"""The views of each session, in lower case, and whether they are for one statement only."""


class NoSuchTopic(ChronikError):
    """Neither a topic nor a table has this name."""


@dataclass(frozen=True, slots=True)
class Views:
    names: tuple[str, ...]
    """Names of the views that were made."""
    refused: dict[str, str]
    """Views that could not be made, and why."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A session that is prepared for a statement."""

    names: Names
    refused: dict[str, ChronikError]
    """Views that could not be made, and why: there is no harm in that if the name is a column's."""
    only_landed: tuple[str, ...]
    """Topics of views that should have a tail, and that no broker knows."""
    raw: dict[str, RawTopic]
    """Topics whose values are bytes, by the names of their views."""


def views(spark: SparkSession, bootstrap: Bootstrap, table_root: str, topics: Iterable[str] | None = None) -> Views:
    """Makes views of these topics, or of all there are, from one snapshot. What cannot be made is told in the answer if
    all were asked for, and raised (Unreadable) if it was named. Raises NoSuchTopic, ClientError, KafkaError."""
    return _views(spark, bootstrap, table_root, topics, passing=False)


def views_to_list(spark: SparkSession, bootstrap: Bootstrap, table_root: str) -> None:
    """Makes all views that there can be, for a statement that lists them. Raises ClientError, KafkaError."""
    _views(spark, bootstrap, table_root, None, passing=True)


def _views(
    spark: SparkSession, bootstrap: Bootstrap, table_root: str, topics: Iterable[str] | None, *, passing: bool
) -> Views:
    settings = _settings(bootstrap)
    with Cluster(bootstrap, client_id=CLIENT_ID) as cluster:
        snapshots = Snapshots(cluster, absolute_root(table_root))
        known = snapshots.topics()
        wanted = list(dict.fromkeys(topics)) if topics is not None else [each for each in known if each[:2] != "__"]
        if missing := sorted(set(wanted) - set(known)):
            raise NoSuchTopic(f"there is neither a topic nor a table {', '.join(missing)}")
        taken = snapshots.take(wanted)
    made, refused = [], {}
    for view in _all_views(wanted, Names(known)):
        try:
            _make(spark, view, taken[view.topic], settings, passing=passing)
            made.append(view.name)
        except Unreadable as error:
            if topics is not None:
                raise
            refused[view.name] = str(error)
            _forget(spark, view.name)
    if not passing:
        tell_only_landed(each.topic for each in taken.values() if each.is_only_a_table)
    return Views(tuple(made), refused)


def views_for(
    spark: SparkSession,
    statement: str,
    bootstrap: Bootstrap,
    table_root: str,
    *,
    also: Iterable[str] = (),
    prune: bool = False,
) -> Prepared:
    """Makes the views that a statement names, and `also` these, from one snapshot; with `prune` only with the columns
    that it names. Views that were made for an earlier statement are gone: a name that this one hides (in a string, in a
    view of its own) would be answered from then. Raises AmbiguousName, ClientError, KafkaError."""
    with Cluster(bootstrap, client_id=CLIENT_ID) as cluster:
        snapshots = Snapshots(cluster, absolute_root(table_root))
        names = Names(snapshots.topics())
        named = names.named_in(statement, also)
        _forget_earlier(spark, {view.name.casefold() for view in named.views})
        taken = snapshots.take(dict.fromkeys(view.topic for view in named.views))
    refused: dict[str, ChronikError] = dict(named.ambiguous)
    only_landed: dict[str, None] = {}
    raw: dict[str, RawTopic] = {}
    for view in named.views:
        snapshot = taken[view.topic]
        columns = columns_named(statement, snapshot.schema.names) if prune else None
        try:
            _make(spark, view, snapshot, _settings(bootstrap), columns, passing=True)
        except Unreadable as error:
            refused[view.name] = error
        if snapshot.is_only_a_table and view.half is not Half.COLD:
            only_landed[view.topic] = None
        if snapshot.kind is Kind.RAW:
            raw[view.name] = RawTopic(view.topic, snapshot.landed is not None)
    for name in refused:
        _forget(spark, name)
    return Prepared(names, refused, tuple(only_landed), raw)


def tell_only_landed(topics: Iterable[str]) -> None:
    for topic in topics:
        logger.warning("no broker knows %s: only what has landed", topic)


def _forget_earlier(spark: SparkSession, named: set[str]) -> None:
    made = _MADE.get(spark, {})
    for name in [name for name, passing in made.items() if passing and name not in named]:
        _forget(spark, name)
        del made[name]


def _forget(spark: SparkSession, name: str) -> None:
    """Drops an older snapshot, which would be taken for the new one."""
    spark.catalog.dropTempView(name)


def _all_views(topics: Iterable[str], names: Names) -> list[View]:
    """Returns views under every name that means just that topic."""
    found: dict[str, View] = {}
    for topic in topics:
        for half in Half:
            for name in dict.fromkeys((topic + half, plain(topic) + half)):
                with contextlib.suppress(AmbiguousName):
                    view = names.find(name)
                    if view is not None and (view.topic, view.half) == (topic, half):
                        found.setdefault(name.casefold(), view)
    return list(found.values())


def _make(
    spark: SparkSession,
    view: View,
    snapshot: TopicSnapshot,
    settings: ReadSettings,
    columns: list[str] | None = None,
    *,
    passing: bool,
) -> None:
    with files_listed_by_the_driver(spark, snapshot):
        rows = frame(spark, snapshot, view.half, settings, columns)
        rows.createOrReplaceTempView(f"`{view.name}`")
    made = _MADE.setdefault(spark, {})
    # What somebody took by `views` stays, whatever statements name it later.
    made[view.name.casefold()] = passing and made.get(view.name.casefold(), True)


def _settings(bootstrap: Bootstrap) -> ReadSettings:
    return ReadSettings(bootstrap, IsolationLevel.READ_COMMITTED)

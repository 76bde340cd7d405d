"""Views of a long-lived Spark session: those of earlier statements are dropped, those created explicitly are kept."""

from __future__ import annotations

import logging
from contextlib import nullcontext
from typing import Any

import pytest

from chronik.pipeline.query import views as module
from chronik.pipeline.query.name_resolution import TopicViewScope
from chronik.pipeline.query.topic_snapshots import TopicSnapshot
from chronik.pipeline.query.views import create_all_views, prepare_views, views

TOPICS = ["orders", "customers"]


class FakeSession:
    """A minimal Spark session that only has views."""

    def __init__(self) -> None:
        self.catalog = self
        self.present: set[str] = set()

    def dropTempView(self, name: str) -> None:
        self.present.discard(name.casefold())


class FakeDataFrame:
    """A minimal DataFrame that can become a view."""

    def __init__(self, session: FakeSession) -> None:
        self._spark = session

    def createOrReplaceTempView(self, name: str) -> None:
        self._spark.present.add(name.strip("`").casefold())


class FakeSnapshotReader:
    """A snapshot reader of topics that all exist, except `customers`, of which only a table exists."""

    def __init__(self, *_: Any) -> None:
        pass

    def list_topics(self) -> list[str]:
        return TOPICS

    def take_snapshots(self, topics: list[str]) -> dict[str, TopicSnapshot]:
        return {topic: TopicSnapshot(topic, None, (), is_table_only=topic == "customers") for topic in topics}


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Any:
    def frame(session: FakeSession, snapshot: TopicSnapshot, half: TopicViewScope, *_: Any, **__: Any) -> FakeDataFrame:
        return FakeDataFrame(session)

    monkeypatch.setattr(module, "ClusterClient", lambda *_, **__: nullcontext())
    monkeypatch.setattr(module, "SnapshotReader", FakeSnapshotReader)
    monkeypatch.setattr(module, "build_dataframe", frame)
    return FakeSession()


def views_after(session: Any, statement: str, *also: str) -> set[str]:
    """Prepare views for a statement and return the existing ones."""
    prepare_views(session, statement, "unused:1", "tables", also=also)
    found: set[str] = session.present
    return set(found)


def test_views_of_earlier_statement_are_dropped(session: Any) -> None:
    assert views_after(session, "SELECT * FROM Orders, orders_hot") == {"orders", "orders_hot"}
    assert views_after(session, "SELECT * FROM ORDERS") == {"orders"}
    assert views_after(session, "SELECT * FROM IDENTIFIER('orders')") == set()
    assert views_after(session, "SELECT * FROM IDENTIFIER('orders')", "orders") == {"orders"}


def test_views_created_for_listing_are_dropped(session: Any) -> None:
    create_all_views(session, "unused:1", "tables")
    assert {"orders", "customers_cold"} <= session.present
    assert views_after(session, "SELECT 1") == set()


def test_explicitly_created_views_are_kept(session: Any) -> None:
    views(session, "unused:1", "tables", ["orders"])
    created = {"orders", "orders_cold", "orders_hot"}
    assert views_after(session, "SELECT * FROM orders, customers") == {*created, "customers"}
    assert views_after(session, "SELECT 1") == created


def test_view_without_live_tail_logs_warning(session: Any, caplog: pytest.LogCaptureFixture) -> None:
    table_only = prepare_views(
        session, "SELECT * FROM orders, customers, customers_hot", "unused:1", "tables"
    ).table_only_topics
    assert table_only == ("customers",)
    assert prepare_views(session, "SELECT * FROM customers_cold", "unused:1", "tables").table_only_topics == ()
    with caplog.at_level(logging.WARNING):
        views(session, "unused:1", "tables", ["customers"])
    assert caplog.messages == ["topic customers does not exist on the cluster; querying landed rows only"]

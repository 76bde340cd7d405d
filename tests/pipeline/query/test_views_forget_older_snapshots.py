"""A session that stays has views of this statement, and those that somebody took: none of an earlier statement."""

from __future__ import annotations

import logging
from contextlib import nullcontext
from typing import Any

import pytest

from chronik.pipeline.query import views as module
from chronik.pipeline.query.names import Half
from chronik.pipeline.query.snapshots import TopicSnapshot
from chronik.pipeline.query.views import views, views_for, views_to_list

TOPICS = ["orders", "customers"]


class Session:
    """As much of Spark as it takes to have views."""

    def __init__(self) -> None:
        self.catalog = self
        self.present: set[str] = set()

    def dropTempView(self, name: str) -> None:
        self.present.discard(name.casefold())


class Rows:
    def __init__(self, session: Session) -> None:
        self._spark = session

    def createOrReplaceTempView(self, name: str) -> None:
        self._spark.present.add(name.strip("`").casefold())


class Known:
    """Snapshots of topics that are all there, but for `customers`, which only a table has."""

    def __init__(self, *_: Any) -> None:
        pass

    def topics(self) -> list[str]:
        return TOPICS

    def take(self, topics: list[str]) -> dict[str, TopicSnapshot]:
        return {topic: TopicSnapshot(topic, None, (), is_only_a_table=topic == "customers") for topic in topics}


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Any:
    def frame(session: Session, snapshot: TopicSnapshot, half: Half, *_: Any) -> Rows:
        return Rows(session)

    monkeypatch.setattr(module, "Cluster", lambda *_, **__: nullcontext())
    monkeypatch.setattr(module, "Snapshots", Known)
    monkeypatch.setattr(module, "frame", frame)
    return Session()


def named(session: Any, statement: str, *also: str) -> set[str]:
    """The views that there are when a statement is to run."""
    views_for(session, statement, "unused:1", "tables", also=also)
    found: set[str] = session.present
    return set(found)


def test_a_statement_finds_no_view_that_only_an_earlier_one_named(session: Any) -> None:
    assert named(session, "SELECT * FROM Orders, orders_hot") == {"orders", "orders_hot"}
    assert named(session, "SELECT * FROM ORDERS") == {"orders"}
    assert named(session, "SELECT * FROM IDENTIFIER('orders')") == set()
    assert named(session, "SELECT * FROM IDENTIFIER('orders')", "orders") == {"orders"}


def test_views_that_were_listed_are_not_there_for_the_next_statement(session: Any) -> None:
    views_to_list(session, "unused:1", "tables")
    assert {"orders", "customers_cold"} <= session.present
    assert named(session, "SELECT 1") == set()


def test_views_that_somebody_took_stay_also_after_a_statement_named_them(session: Any) -> None:
    views(session, "unused:1", "tables", ["orders"])
    taken = {"orders", "orders_cold", "orders_hot"}
    assert named(session, "SELECT * FROM orders, customers") == {*taken, "customers"}
    assert named(session, "SELECT 1") == taken


def test_a_view_that_lacks_whatever_the_topic_has_is_told_of(session: Any, caplog: pytest.LogCaptureFixture) -> None:
    told = views_for(session, "SELECT * FROM orders, customers, customers_hot", "unused:1", "tables").only_landed
    assert told == ("customers",)
    assert views_for(session, "SELECT * FROM customers_cold", "unused:1", "tables").only_landed == ()
    with caplog.at_level(logging.WARNING):
        views(session, "unused:1", "tables", ["customers"])
    assert caplog.messages == ["no broker knows customers: only what has landed"]

"""Tests of the names of tables in Spark's catalog, and of the statements for Delta Lake's catalog, without Spark."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from chronik.errors import ConfigError
from chronik.pipeline.query.spark_catalog import TableNameConflictError, choose_table_names, register_tables
from chronik.pipeline.query.views import UnknownTopicError
from chronik.pipeline.tables.catalog import open_or_create_table
from chronik.pipeline.tables.layout import TableKind
from chronik.pipeline.tables.storage import DEAD_LETTERS_SUFFIX
from chronik.pipeline.tables.table_files import TableDescriptor
from chronik.pipeline.tables.topic_table import TableSpec
from chronik.pipeline.tables.values.table_schema import TableSchema, parse_schema_document

TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAQ"


def create_tables(root: Path, *topics: str, schema: TableSchema | None = None) -> dict[str, TableDescriptor]:
    """Create empty tables and return their descriptors."""
    return {
        topic: open_or_create_table(
            str(root / topic), TableSpec(topic, TOPIC_ID, TableKind.DECODED), schema=schema
        ).descriptor()
        for topic in topics
    }


class FakeDeltaSession:
    """A minimal Spark session with Delta Lake's catalog, which records statements."""

    def __init__(self, **existing: tuple[str, str]) -> None:
        self.conf = {"spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog"}
        self.catalog = self
        self.statements: list[str] = []
        self._existing = existing

    def currentDatabase(self) -> str:  # noqa: N802
        return "default"

    def tableExists(self, name: str) -> bool:  # noqa: N802
        return name.split(".")[1].strip("`") in self._existing

    def sql(self, statement: str) -> Any:
        if not statement.startswith("SHOW TABLE EXTENDED"):
            self.statements.append(statement)
            return None
        provider, location = self._existing[statement.split("'")[1]]
        text = f"Provider: {provider}\nComment: a\nLocation: b\nLocation: {location}\nSchema: root\n |-- Location: long"
        return SimpleNamespace(collect=lambda: [{"isTemporary": False, "information": text}])


# Names


def test_table_is_named_after_its_topic_schema_or_argument(tmp_path: Path) -> None:
    tables = create_tables(tmp_path, "orders", "eu.orders-v2", "eu.orders-v2" + DEAD_LETTERS_SUFFIX)
    tables |= create_tables(tmp_path, "clicks.v1", schema=parse_schema_document({"name": "clicks"}))
    assert choose_table_names(tables, {}) == {
        "orders": "orders",
        "eu.orders-v2": "eu_orders_v2",
        "eu.orders-v2~dead_letters": "eu_orders_v2_dead_letters",
        "clicks.v1": "clicks",
    }
    chosen = choose_table_names(tables, {"eu.orders-v2": "european", "clicks.v1": "c"})
    assert list(chosen.values()) == ["orders", "european", "european_dead_letters", "c"]


@pytest.mark.parametrize("other", ["eu_orders", "eu-orders", "EU.orders"])
def test_tables_with_the_same_name_are_rejected(tmp_path: Path, other: str) -> None:
    tables = create_tables(tmp_path, "eu.orders", other)
    with pytest.raises(TableNameConflictError, match=rf"tables eu\.orders and {other} would both be .* names="):
        choose_table_names(tables, {})
    assert choose_table_names(tables, {other: "second"}) == {"eu.orders": "eu_orders", other: "second"}


def test_invalid_or_unused_name_is_rejected(tmp_path: Path) -> None:
    tables = create_tables(tmp_path, "orders")
    with pytest.raises(ConfigError, match=r"name 'a.b': expected at most 128 letters"):
        choose_table_names(tables, {"orders": "a.b"})
    with pytest.raises(UnknownTopicError, match="no table of order"):
        choose_table_names(tables, {"order": "a"})


# Delta Lake


def test_delta_tables_are_created_at_their_locations(tmp_path: Path) -> None:
    root = tmp_path / "it's [1] {lake}"
    create_tables(root, "orders", "eu.clicks")
    spark: Any = FakeDeltaSession()
    assert register_tables(spark, str(root), "lake") == {"eu.clicks": "lake.eu_clicks", "orders": "lake.orders"}
    location = str(root).replace("'", "\\'")
    assert spark.statements == [
        "CREATE DATABASE IF NOT EXISTS `lake`",
        f"CREATE TABLE IF NOT EXISTS `lake`.`eu_clicks` USING delta LOCATION 'file:{location}/eu.clicks'",
        f"CREATE TABLE IF NOT EXISTS `lake`.`orders` USING delta LOCATION 'file:{location}/orders'",
    ]


def test_only_the_given_topics_are_registered(tmp_path: Path) -> None:
    create_tables(tmp_path, "orders", "clicks")
    spark: Any = FakeDeltaSession()
    assert register_tables(spark, str(tmp_path), topics=["clicks"]) == {"clicks": "default.clicks"}
    with pytest.raises(UnknownTopicError, match="no table of missing"):
        register_tables(spark, str(tmp_path), topics=["missing", "clicks"])
    with pytest.raises(ConfigError, match="name 'a`b'"):
        register_tables(spark, str(tmp_path), "a`b")


def test_table_that_is_registered_already_is_accepted(tmp_path: Path) -> None:
    create_tables(tmp_path, "orders")
    spark: Any = FakeDeltaSession(orders=("delta", f"file://{tmp_path}/orders/"))
    assert register_tables(spark, str(tmp_path)) == {"orders": "default.orders"}


@pytest.mark.parametrize(("provider", "location"), [("parquet", "file:{}/orders"), ("delta", "file:/elsewhere")])
def test_another_table_of_the_name_is_not_touched(tmp_path: Path, provider: str, location: str) -> None:
    create_tables(tmp_path, "clicks", "orders")
    spark: Any = FakeDeltaSession(orders=(provider, location.format(tmp_path)))
    with pytest.raises(TableNameConflictError, match=r"default\.orders exists in Spark's catalog, and is not"):
        register_tables(spark, str(tmp_path))
    assert spark.statements == []

"""Registration of landed tables in Spark's catalog, so that statements can refer to `lake.orders`.

    from chronik.pipeline.query.spark_catalog import register_tables

    register_tables(spark, "tables", "lake")
    spark.sql("SELECT count(*) FROM lake.orders").show()

If the session has Delta Lake's catalog, the tables become Delta tables at their location. Otherwise, each table gets a
Python data source of its own, because Spark passes the options of a table to Python data sources only at the time of
its creation. In both cases, each query reads the rows that have landed when it starts.

A table is never registered as Parquet files, since its directory also contains files that it has replaced.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from chronik.errors import ChronikError, ConfigError
from chronik.pipeline.query.name_resolution import to_unquoted_name
from chronik.pipeline.query.s3a import to_s3a_uri
from chronik.pipeline.query.spark_schema import to_spark_schema
from chronik.pipeline.query.views import UnknownTopicError
from chronik.pipeline.tables.catalog import list_table_names, open_table
from chronik.pipeline.tables.storage import DEAD_LETTERS_SUFFIX, local_directory, table_uri, to_absolute_root
from chronik.pipeline.tables.table_files import TableDescriptor
from chronik.pipeline.tables.values.table_schema import TABLE_NAME

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSource

SESSION_CATALOG_SETTING: Final = "spark.sql.catalog.spark_catalog"
DELTA_CATALOG_CLASS: Final = "DeltaCatalog"
"""Class name of Delta Lake's catalog, in the packages of Delta Lake and of Databricks."""

DELTA_PROVIDER: Final = "delta"
SOURCE_PREFIX: Final = "chronik_table_"
"""Prefix of the names of data sources that are registered for one table."""

DEAD_LETTERS_NAME_SUFFIX: Final = "_dead_letters"

COLUMNS_HEADING: Final = "\nSchema:"
"""Start of the columns in the description of a table by SHOW TABLE EXTENDED."""


class TableNameConflictError(ChronikError):
    """A name in Spark's catalog that several tables would have, or that another table has."""


def register_tables(
    spark: SparkSession,
    table_root: str,
    database: str | None = None,
    *,
    topics: Iterable[str] | None = None,
    names: Mapping[str, str] | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Register landed tables in Spark's catalog, and return their names, such as `lake.orders`, by directory.

        register_tables(spark, "tables", "lake", names={"eu.orders-v2": "orders"})
        spark.sql("SELECT count(*) FROM lake.orders").show()

    A table has the name in `names`, or else that of its declared schema, or else that of its topic, with `_` for dots
    and dashes. The suffix of dead-letter tables is `_dead_letters`. Queries return all rows that have landed when they
    start. Without Delta Lake's catalog, call it again in each session, and to see new columns.

    Args:
        spark: The session.
        table_root: The directory or the URI of the tables.
        database: The database, which is created if it does not exist; by default, the current one.
        topics: The topics whose tables to register; by default, all.
        names: The names of tables by topic.
        storage_options: The options of an S3 root. With Delta Lake's catalog, Spark's own settings apply to queries.

    Raises:
        TableNameConflictError: Two tables would have the same name, or the catalog has another table of this name.
            Nothing is registered.
        UnknownTopicError: A topic in `topics` or `names` has no table.
        ConfigError: A name is invalid.
        TableError: A table cannot be read.
        TableStorageError: The object store of the tables cannot be listed.
    """
    root = to_absolute_root(table_root)
    selected = _select_tables(list_table_names(root, storage_options), topics)
    tables = {each: open_table(table_uri(root, each), storage_options).descriptor() for each in selected}
    table_names = choose_table_names(tables, names or {})
    if database is not None:
        _check_name(database)
        spark.sql(f"CREATE DATABASE IF NOT EXISTS `{database}`")
    else:
        database = spark.catalog.currentDatabase()
    uses_delta = has_delta_catalog(spark)
    registrations = [
        _Registration(
            f"{database}.{table_names[directory]}", table, DELTA_PROVIDER if uses_delta else _name_source(table)
        )
        for directory, table in tables.items()
    ]
    existing = {each.name: _read_entry(spark, each) for each in registrations}
    for each in registrations:
        _check_entry(each, existing[each.name])
    for each in registrations:
        if uses_delta:
            _create_delta_table(spark, each)
        else:
            _create_source_table(spark, each, existing[each.name], storage_options)
    return {directory: each.name for directory, each in zip(tables, registrations, strict=True)}


def has_delta_catalog(spark: SparkSession) -> bool:
    """Return whether the session can create Delta tables: Delta Lake requires its own session catalog."""
    return str(spark.conf.get(SESSION_CATALOG_SETTING, "")).rpartition(".")[2] == DELTA_CATALOG_CLASS


# Names


def _select_tables(directories: Iterable[str], topics: Iterable[str] | None) -> list[str]:
    if topics is None:
        return list(directories)
    wanted = dict.fromkeys(topics)
    selected = [each for each in directories if _topic_of(each) in wanted]
    _check_topics(wanted, selected)
    return selected


def choose_table_names(tables: Mapping[str, TableDescriptor], given: Mapping[str, str]) -> dict[str, str]:
    """Return the names of tables in Spark's catalog, by directory.

    Raises:
        TableNameConflictError: Two tables would have the same name.
        UnknownTopicError: A topic in `given` has no table.
        ConfigError: A name is invalid.
    """
    _check_topics(given, tables)
    found: dict[str, str] = {}
    by_name: dict[str, str] = {}
    for directory in tables:
        topic = _topic_of(directory)
        declared = tables[topic].value_schema.name if topic in tables else None
        name = given.get(topic) or declared or to_unquoted_name(topic)
        if directory != topic:
            name += DEAD_LETTERS_NAME_SUFFIX
        if topic in given:
            _check_name(name)
        other = by_name.setdefault(name.lower(), directory)
        if other != directory:
            raise TableNameConflictError(
                f"tables {other} and {directory} would both be {name} in Spark's catalog: choose another name with"
                f" names={{{topic!r}: …}}"
            )
        found[directory] = name
    return found


def _topic_of(directory: str) -> str:
    return directory.removesuffix(DEAD_LETTERS_SUFFIX)


def _check_topics(topics: Iterable[str], directories: Iterable[str]) -> None:
    if missing := sorted(set(topics) - {_topic_of(each) for each in directories}):
        raise UnknownTopicError(f"no table of {', '.join(missing)}")


def _check_name(name: str) -> None:
    if not TABLE_NAME.fullmatch(name):
        raise ConfigError(f"name {name!r}: expected at most 128 letters, digits and underscores")


# Catalog entries


class _Registration(NamedTuple):
    """A table to register."""

    name: str
    """The name with that of the database."""
    table: TableDescriptor
    provider: str

    @property
    def quoted_name(self) -> str:
        return ".".join(f"`{part}`" for part in self.name.split("."))

    @property
    def location(self) -> str:
        """The location as Hadoop writes it: not URL-encoded."""
        directory = local_directory(self.table.uri)
        return to_s3a_uri(self.table.uri) if directory is None else f"file:{directory}"


class _Entry(NamedTuple):
    """A table that exists in Spark's catalog."""

    provider: str
    location: str
    comment: str


def _read_entry(spark: SparkSession, registration: _Registration) -> _Entry | None:
    if not spark.catalog.tableExists(registration.quoted_name):
        return None
    # Of a Python data source, DESCRIBE EXTENDED shows neither provider nor comment.
    database, name = registration.quoted_name.split(".")
    rows = spark.sql(f"SHOW TABLE EXTENDED IN {database} LIKE '{name.strip('`')}'").collect()
    text = next((row["information"] for row in rows if not row["isTemporary"]), "").partition(COLUMNS_HEADING)[0]
    found: dict[str, str] = {}
    for line in text.splitlines():
        key, _, value = line.partition(": ")
        if key not in found or key == "Location":  # which is after the comment, which may have several lines
            found[key] = value
    return _Entry(found.get("Provider", ""), found.get("Location", ""), found.get("Comment", ""))


def _check_entry(registration: _Registration, entry: _Entry | None) -> None:
    """Check that an existing table is the same one.

    Raises:
        TableNameConflictError: It is another table.
    """
    if entry is None:
        return
    is_same = entry.provider.lower() == registration.provider and (
        registration.provider != DELTA_PROVIDER or _normalize(entry.location) == _normalize(registration.location)
    )
    if not is_same:
        raise TableNameConflictError(
            f"{registration.name} exists in Spark's catalog, and is not the table {registration.table.uri}"
            f" (provider {entry.provider or 'unknown'}): drop it, or choose another name or database"
        )


def _normalize(location: str) -> str:
    """Return a location without the differences between the ways to write it."""
    text = to_s3a_uri(location).rstrip("/")
    return "file:/" + text.removeprefix("file:").lstrip("/") if text.startswith("file:") else text


def _create_delta_table(spark: SparkSession, registration: _Registration) -> None:
    spark.sql(
        f"CREATE TABLE IF NOT EXISTS {registration.quoted_name} USING {DELTA_PROVIDER}"
        f" LOCATION {_quote(registration.location)}"
    )


def _create_source_table(
    spark: SparkSession,
    registration: _Registration,
    existing: _Entry | None,
    storage_options: Mapping[str, str] | None,
) -> None:
    options = {**(storage_options or {}), "path": registration.table.uri}
    spark.dataSource.register(_build_source(registration.provider, options))
    comment = registration.table.value_schema.comment or ""
    if existing is not None:
        wanted = to_spark_schema(registration.table.schema)
        if spark.table(registration.quoted_name).schema == wanted and existing.comment == comment:
            return
        spark.sql(f"DROP TABLE {registration.quoted_name}")
    clause = f" COMMENT {_quote(comment)}" if comment else ""
    spark.sql(f"CREATE TABLE {registration.quoted_name} USING {registration.provider}{clause}")


def _name_source(table: TableDescriptor) -> str:
    return SOURCE_PREFIX + hashlib.sha256(table.uri.encode()).hexdigest()[:16]


def _build_source(source_name: str, options: Mapping[str, str]) -> type[DataSource]:
    """Return a data source for one table. It contains the options, so that no catalog stores credentials."""
    from pyspark_chronik_table import DefaultSource

    class RegisteredTableSource(DefaultSource):
        """The landed rows of a registered table."""

        @classmethod
        def name(cls) -> str:
            return source_name

        def table_options(self) -> Mapping[str, str]:
            return options

    return RegisteredTableSource


def _quote(text: str) -> str:
    """Return an SQL string literal."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"

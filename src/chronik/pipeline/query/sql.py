"""SQL queries over topics, with a new snapshot for each statement."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from itertools import islice
from typing import TYPE_CHECKING

from chronik.client.access.settings import Bootstrap
from chronik.errors import ChronikError
from chronik.formats.registry_client import RegistrySettings
from chronik.pipeline.query.lexer import TokenKind, tokenize_sql
from chronik.pipeline.query.pruning import is_query
from chronik.pipeline.query.views import (
    PreparedViews,
    RawFieldError,
    create_all_views,
    explain_raw_field,
    prepare_views,
    warn_about_missing_topics,
)

if TYPE_CHECKING:
    from pyspark.errors import AnalysisException
    from pyspark.sql import DataFrame, SparkSession


class InvalidQueryError(ChronikError):
    """A statement that is no query where only a query is possible."""


NO_SUCH_VIEW = "TABLE_OR_VIEW_NOT_FOUND"


def query(
    spark: SparkSession,
    statement: str,
    bootstrap: Bootstrap,
    table_root: str,
    *,
    prune: bool = False,
    executes_once: bool = False,
    storage_options: Mapping[str, str] | None = None,
    registry: RegistrySettings | None = None,
) -> DataFrame:
    """Run a statement on the current state of the topics that it references, directly or through views.

        query(session(), "SELECT region, count(*) FROM orders GROUP BY region", "127.0.0.1:9092", "tables").show()

    Only these topics are read. With `prune`, views have only the columns that the statement names, so use it only in a
    session that runs nothing else. With `executes_once` in addition, tasks skip files of tables on S3 by the conditions
    of the statement: execute the DataFrame once, and do not derive others from it, which could miss rows.
    `storage_options` are those of an S3 root. Schemas of typed records come from `registry`, or else from that of the
    brokers.

    Through Spark Connect, results are computed when they are fetched, from the views at that time: fetch them before
    the next query replaces the views.

    After the name of a topic or of one of its halves, a statement may have `VERSION AS OF 3`, `TIMESTAMP AS OF
    '2026-11-19 08:30:00'` or `OFFSETS AS OF '{"0": 100, "1": 57}'`.

    Raises:
        AmbiguousNameError: A name could refer to several topics.
        AsOfClauseError: An `AS OF` clause is invalid.
        UnreadableTopicError: The landed rows or the live tail of a topic cannot be read.
        RawFieldError: The statement uses a JSON field of a raw topic.
        ClientError: No broker responds.
        KafkaError: A broker rejects a request.
        TableStorageError: The object store of the tables cannot be listed.
        PySparkException: Spark rejects the statement.
    """
    from pyspark.errors import AnalysisException

    if _is_view_listing(statement):
        create_all_views(spark, bootstrap, table_root, storage_options, registry)
        return spark.sql(statement)
    if prune and not _is_script(statement):
        # Errors are reported with all columns in the views, so that Spark's message is right.
        with contextlib.suppress(AnalysisException):
            prepared = prepare_views(
                spark,
                statement,
                bootstrap,
                table_root,
                prune=True,
                executes_once=executes_once,
                storage_options=storage_options,
                registry=registry,
            )
            return _analyze_statement(spark, prepared)
    return _run_with_missing_views(spark, statement, bootstrap, table_root, storage_options, registry)


def analyze_query(
    spark: SparkSession,
    statement: str,
    bootstrap: Bootstrap,
    table_root: str,
    *,
    storage_options: Mapping[str, str] | None = None,
    registry: RegistrySettings | None = None,
) -> PreparedViews:
    """Analyze a single query without running it, and return the views that it would read if it were executed once.

    Raises:
        InvalidQueryError: The statement is no query.
        ChronikError, PySparkException: As for `query`.
    """
    from pyspark.errors import AnalysisException

    if not is_query(statement):
        raise InvalidQueryError("only a query can be explained: a statement that starts with SELECT, WITH or FROM")
    prepared = prepare_views(
        spark,
        statement,
        bootstrap,
        table_root,
        prune=True,
        executes_once=True,
        storage_options=storage_options,
        registry=registry,
    )
    try:
        _analyze_statement(spark, prepared)
    except AnalysisException as error:
        raise _explain_raw_field(error, prepared) or error from None
    return prepared


def _run_with_missing_views(
    spark: SparkSession,
    statement: str,
    bootstrap: Bootstrap,
    table_root: str,
    storage_options: Mapping[str, str] | None,
    registry: RegistrySettings | None,
) -> DataFrame:
    """Run a statement, adding views for names that Spark reports as missing.

    A statement may contain a topic's name in a string (`IDENTIFIER('orders')`) or in a view of the session.
    """
    from pyspark.errors import AnalysisException

    missing_names: list[str] = []
    while True:
        prepared = prepare_views(
            spark,
            statement,
            bootstrap,
            table_root,
            also=missing_names,
            storage_options=storage_options,
            registry=registry,
        )
        try:
            return _analyze_statement(spark, prepared)
        except AnalysisException as error:
            name = _extract_missing_view_name(error)
            # A script may already have had effects, so it is not repeated.
            if name is None or name in missing_names or _is_script(statement) or prepared.names.resolve(name) is None:
                raise _explain_raw_field(error, prepared) or error from None
            missing_names.append(name)


def _analyze_statement(spark: SparkSession, prepared: PreparedViews) -> DataFrame:
    from pyspark.errors import AnalysisException

    for name, error_of_view in prepared.rejected.items():
        if spark.catalog.tableExists(f"`{name}`"):
            raise error_of_view  # Spark would use a table of its own instead of the topic
    try:
        frame = spark.sql(prepared.statement)
        _ = frame.schema  # Spark Connect analyses the statement only when the schema is read
    except AnalysisException as error:
        missing = _extract_missing_view_name(error)
        for name, error_of_view in prepared.rejected.items():
            if missing is not None and name.casefold() == missing.casefold():
                raise error_of_view from None
        raise
    warn_about_missing_topics(prepared.table_only_topics)
    return frame


def _extract_missing_view_name(error: AnalysisException) -> str | None:
    """Return the name of the view that Spark reports as missing, or None for any other error."""
    if error.getCondition() != NO_SUCH_VIEW:
        return None
    parts = [each.text for each in tokenize_sql((error.getMessageParameters() or {}).get("relationName", ""))]
    return parts[0] if len(parts) == 1 else None


def _explain_raw_field(error: AnalysisException, prepared: PreparedViews) -> RawFieldError | None:
    parameters = error.getMessageParameters() or {}
    name = parameters.get("objectName") or parameters.get("base") or ""
    parts = [
        each.text.strip('"')
        for each in tokenize_sql(name)
        if each.kind in (TokenKind.WORD, TokenKind.QUOTED, TokenKind.STRING)
    ]
    return explain_raw_field(error.getCondition() or "", parts, prepared.raw_topics)


def _is_script(statement: str) -> bool:
    return any(first.is_word("BEGIN") for first in islice(tokenize_sql(statement), 1))


def _is_view_listing(statement: str) -> bool:
    words = [lexeme.text.upper() for lexeme in islice(tokenize_sql(statement), 2)]
    return words in (["SHOW", "TABLES"], ["SHOW", "VIEWS"])

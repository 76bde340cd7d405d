"""SQL over topics, planned anew for each statement:

from chronik.pipeline.spark import runtime
from chronik.pipeline.query.sql import query

spark = runtime.session()
query(spark, "SELECT region, count(*) FROM orders GROUP BY region", "127.0.0.1:9092", "tables").show()
"""

from __future__ import annotations

import contextlib
from itertools import islice
from typing import TYPE_CHECKING

from chronik.client.access.settings import Bootstrap
from chronik.pipeline.query.raw_fields import FieldOfRaw, field_of_raw
from chronik.pipeline.query.tokens import Token, lexemes
from chronik.pipeline.query.views import Prepared, tell_only_landed, views_for, views_to_list

if TYPE_CHECKING:
    from pyspark.errors import AnalysisException
    from pyspark.sql import DataFrame, SparkSession

NO_SUCH_VIEW = "TABLE_OR_VIEW_NOT_FOUND"


def query(
    spark: SparkSession, statement: str, bootstrap: Bootstrap, table_root: str, *, prune: bool = False
) -> DataFrame:
    """Returns what a statement gives, with every topic that it names as it is now, and those that views in it name.
    Only these are looked at. `prune` leaves out columns that the statement does not name: for a session that runs
    nothing else.

    Through Spark Connect the answer is computed when it is asked for, from the views as they are then: ask before the
    next query, which takes others. Raises AmbiguousName, Unreadable, FieldOfRaw, ClientError, KafkaError, and
    Spark's own PySparkException.
    """
    from pyspark.errors import AnalysisException

    if _lists_views(statement):
        views_to_list(spark, bootstrap, table_root)
        return spark.sql(statement)
    if prune and not _is_script(statement):
        # What is wrong with a statement is said with all columns in view.
        with contextlib.suppress(AnalysisException):
            prepared = views_for(spark, statement, bootstrap, table_root, prune=True)
            return _analysed(spark, statement, prepared)
    return _with_hidden_names(spark, statement, bootstrap, table_root)


def _with_hidden_names(spark: SparkSession, statement: str, bootstrap: Bootstrap, table_root: str) -> DataFrame:
    """A statement may hide the name of a topic in a string (`IDENTIFIER('orders')`), or in a view that somebody made:
    Spark finds it, and says that it is missing."""
    from pyspark.errors import AnalysisException

    hidden: list[str] = []
    while True:
        prepared = views_for(spark, statement, bootstrap, table_root, also=hidden)
        try:
            return _analysed(spark, statement, prepared)
        except AnalysisException as error:
            name = _missing(error)
            # A script may have done something before it got there.
            if name is None or name in hidden or _is_script(statement) or prepared.names.find(name) is None:
                raise _field_of_raw(error, prepared) or error from None
            hidden.append(name)


def _analysed(spark: SparkSession, statement: str, prepared: Prepared) -> DataFrame:
    from pyspark.errors import AnalysisException

    for name, why in prepared.refused.items():
        if spark.catalog.tableExists(f"`{name}`"):
            raise why  # a table of Spark's own would be taken for the topic
    try:
        frame = spark.sql(statement)
        _ = frame.schema  # through Spark Connect nothing is analysed before it is asked for
    except AnalysisException as error:
        missing = _missing(error)
        for name, why in prepared.refused.items():
            if missing is not None and name.casefold() == missing.casefold():
                raise why from None
        raise
    tell_only_landed(prepared.only_landed)
    return frame


def _missing(error: AnalysisException) -> str | None:
    """Returns the name of the view that does not exist."""
    if error.getCondition() != NO_SUCH_VIEW:
        return None
    parts = [each.text for each in lexemes((error.getMessageParameters() or {}).get("relationName", ""))]
    return parts[0] if len(parts) == 1 else None


def _field_of_raw(error: AnalysisException, prepared: Prepared) -> FieldOfRaw | None:
    parameters = error.getMessageParameters() or {}
    name = parameters.get("objectName") or parameters.get("base") or ""
    parts = [each.text.strip('"') for each in lexemes(name) if each.token in (Token.WORD, Token.QUOTED, Token.STRING)]
    return field_of_raw(error.getCondition() or "", parts, prepared.raw)


def _is_script(statement: str) -> bool:
    return any(first.is_word("BEGIN") for first in islice(lexemes(statement), 1))


def _lists_views(statement: str) -> bool:
    words = [lexeme.text.upper() for lexeme in islice(lexemes(statement), 2)]
    return words in (["SHOW", "TABLES"], ["SHOW", "VIEWS"])

"""SQL over topics, planned anew for each statement:

    from chronik.pipeline import runtime
    from chronik.pipeline.sql import query

    spark = runtime.session()
    query(spark, "SELECT region, count(*) FROM orders GROUP BY region", "127.0.0.1:9092", "tables").show()
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from chronik.pipeline.query.tokens import lexemes
from chronik.pipeline.views import views, views_for

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NO_SUCH_VIEW = "TABLE_OR_VIEW_NOT_FOUND"


def query(
    spark: SparkSession, statement: str, bootstrap: str, table_root: str, *, prune: bool = False
) -> DataFrame:
    """What a statement gives, every topic that it names as it is now. Only those are looked at; they stay in the
    session as views. `prune` leaves columns out of these that the statement does not name: for a session that runs
    nothing else.

    Through Spark Connect the answer is computed when it is asked for, from the views as they are then.
    Raises AmbiguousName, Unreadable, ClientError, KafkaError, and Spark's own PySparkException.
    """
    from pyspark.errors import AnalysisException

    if _lists_views(statement):
        views(spark, bootstrap, table_root)
        return spark.sql(statement)
    if prune:
        # A statement that is wrong is told so with all columns in view.
        with contextlib.suppress(AnalysisException):
            return _analysed(spark, statement, bootstrap, table_root, prune=True)
    return _analysed(spark, statement, bootstrap, table_root, prune=False)


def _analysed(spark: SparkSession, statement: str, bootstrap: str, table_root: str, *, prune: bool) -> DataFrame:
    from pyspark.errors import AnalysisException

    refused = views_for(spark, statement, bootstrap, table_root, prune=prune)
    for name, why in refused.items():
        if spark.catalog.tableExists(f"`{name}`"):
            raise why  # a table of Spark's own would be taken for the topic
    try:
        frame = spark.sql(statement)
        _ = frame.schema  # through Spark Connect nothing is analysed before it is asked for
    except AnalysisException as error:
        if refused and error.getCondition() == NO_SUCH_VIEW:
            raise next(iter(refused.values())) from None
        raise
    return frame


def _lists_views(statement: str) -> bool:
    words = [lexeme.text.upper() for lexeme, _ in zip(lexemes(statement), range(2), strict=False)]
    return words in (["SHOW", "TABLES"], ["SHOW", "VIEWS"])

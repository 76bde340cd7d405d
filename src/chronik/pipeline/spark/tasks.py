"""Runs functions over items in Spark's tasks: one task for each item, and small results back to the driver.

What tasks read and write never crosses the JVM. Works in local mode, on a cluster and through Spark Connect alike.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import pyarrow as pa

from chronik.errors import ChronikError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Item = TypeVar("Item")
Result = TypeVar("Result")

PARALLELISM_PROBE_ROWS = 10_000
"""More than any cluster has cores."""

OUTCOMES = pa.schema([pa.field("item", pa.int64()), pa.field("result", pa.binary()), pa.field("error", pa.string())])
SPARK_OUTCOMES = "item BIGINT, result BINARY, error STRING"

_EXCEPTION_LINE = re.compile(r"^(?:\w+\.)*\w*(?:Error|Exception)\b.*")


class TaskFailed(ChronikError):
    """A task did not succeed, on any of Spark's attempts; the message says why."""


class SparkGone(ChronikError):
    """The Spark that ran the jobs has ended, or is out of reach."""


class Tasks(Protocol):
    """Returns results in the order of the items. Functions and items must be picklable. Raises TaskFailed."""

    def __call__(self, function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]: ...


def in_this_process(function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """Runs them without Spark: for little work, and for tests."""
    return [function(item) for item in items]


def on_spark(spark: SparkSession) -> Tasks:
    def run(function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
        return _run(spark, function, items)

    return run


class SparkOnDemand:
    """Tasks on a session that is made when there is something to do, and ended at the end.

    with SparkOnDemand("spark://head:7077") as tasks:
        compact_tables("tables", tasks=tasks)
    """

    def __init__(self, master: str | None = None) -> None:
        self._master = master
        self._spark: SparkSession | None = None

    def __enter__(self) -> SparkOnDemand:
        return self

    def __exit__(self, *_: object) -> None:
        if self._spark is not None:
            self._spark.stop()
            self._spark = None

    def __call__(self, function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
        """Raises JavaMissing, PySparkMissing, TaskFailed."""
        if not items:
            return []
        if self._spark is None:
            from chronik.pipeline.spark.runtime import session

            self._spark = session(self._master)
        return _run(self._spark, function, items)


class SparkJobs:
    """Tasks on a session for a job that goes on: tells a task that fails from a Spark that is gone."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._parallelism: int | None = None

    def parallelism(self) -> int:
        """Returns how many tasks run at the same time. Raises SparkGone."""
        try:
            context = _context(self._spark)
            if context is not None:
                return max(1, int(context.defaultParallelism))  # grows as executors turn up
            if self._parallelism is None:
                self._parallelism = self._probed_parallelism()
            return self._parallelism
        except Exception as error:  # whatever Spark, Py4J and gRPC say when nobody answers
            raise SparkGone(f"Spark does not answer: {str(error).splitlines()[0]}") from error

    def _probed_parallelism(self) -> int:
        from pyspark.sql.functions import spark_partition_id

        parts = self._spark.range(PARALLELISM_PROBE_ROWS).select(spark_partition_id()).distinct()
        return max(1, int(parts.count()))

    def run(self, function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
        """Returns results in the order of the items. Raises TaskFailed when Spark gave up on one of them, SparkGone."""
        try:
            return _run(self._spark, function, items)
        except (TaskFailed, OSError) as error:
            self._parallelism = None
            self.parallelism()  # is anybody there?
            raise TaskFailed(str(error)) from error


def _context(spark: SparkSession) -> Any:
    """Returns None over Spark Connect, where there is no such thing."""
    from pyspark.errors import PySparkException

    try:
        return spark.sparkContext
    except PySparkException:
        return None


def _run(spark: SparkSession, function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    if not items:
        return []
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    given = [pickle.dumps(item) for item in items]

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield _outcome(function, number, given[number])

    # As many partitions as numbers: each has exactly one.
    frame = spark.range(0, len(items), 1, len(items)).mapInArrow(work, SPARK_OUTCOMES)
    try:
        rows = frame.collect()
    except (PySparkException, Py4JError) as error:
        raise TaskFailed(_reason(str(error))) from error
    failed = [row["error"] for row in rows if row["error"] is not None]
    if failed:
        raise TaskFailed(failed[0])
    results: dict[int, Any] = {row["item"]: pickle.loads(row["result"]) for row in rows}
    return [results[number] for number in range(len(items))]


def _outcome(function: Callable[[Any], Any], number: int, item: bytes) -> pa.RecordBatch:
    """An error of ours would come again at each of Spark's attempts; any other may pass, and is Spark's to retry."""
    result, error = None, None
    try:
        result = pickle.dumps(function(pickle.loads(item)))
    except ChronikError as failure:
        error = str(failure)
    return pa.RecordBatch.from_pydict({"item": [number], "result": [result], "error": [error]}, schema=OUTCOMES)


def _reason(text: str) -> str:
    """Returns what went wrong, without the traces of Python and the JVM around it."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    told = [line for line in lines if _EXCEPTION_LINE.match(line)]
    return (told or lines or ["a task failed"])[-1 if told else 0]

"""Execution of a function over items in Spark tasks: one task per item, with small results returned to the driver.

The data that tasks read and write does not pass through the JVM. Works in local mode, on a cluster and over Connect.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import pyarrow as pa

from chronik.errors import ChronikError
from chronik.pipeline.spark.jvm import SparkUnavailableError, get_spark_context, raise_if_jvm_ended, stop_session
from chronik.pipeline.spark.masters import RETRYING_LOCAL_MASTER, resolve_master

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Item = TypeVar("Item")
Result = TypeVar("Result")

PARALLELISM_PROBE_ROWS = 10_000
"""Number of rows in the job that measures the session's parallelism: more than any cluster has cores."""

OUTCOME_SCHEMA = pa.schema(
    [pa.field("item", pa.int64()), pa.field("result", pa.binary()), pa.field("error", pa.string())]
)
SPARK_OUTCOME_SCHEMA = "item BIGINT, result BINARY, error STRING"

_EXCEPTION_LINE = re.compile(r"^(?:\w+\.)*\w*(?:Error|Exception)\b.*")


class TaskFailedError(ChronikError):
    """A task that failed in all of Spark's attempts. The message gives the reason."""


class TaskRunner(Protocol):
    """A function that runs tasks and returns their results in the order of the items.

    Functions and items must be picklable. Raises TaskFailedError, or SparkUnavailableError if the JVM has ended.
    """

    def __call__(self, function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]: ...


def run_locally(function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """Run the tasks in this process without Spark, for small workloads and tests."""
    return [function(item) for item in items]


def spark_task_runner(spark: SparkSession) -> TaskRunner:
    """Return a task runner that uses the session."""

    def run(function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
        return _run(spark, function, items)

    return run


class LazySparkTaskRunner:
    """A task runner that starts a Spark session for its first task, and stops it on exit.

    In local mode, a task whose worker was killed runs again, up to four times as on a cluster.

    with LazySparkTaskRunner("spark://head:7077") as tasks:
        compact_tables("tables", tasks=tasks)
    """

    def __init__(self, master: str | None = None) -> None:
        self._master = master
        self._spark: SparkSession | None = None

    def __enter__(self) -> LazySparkTaskRunner:
        return self

    def __exit__(self, *_: object) -> None:
        if self._spark is not None:
            stop_session(self._spark)
            self._spark = None

    def __call__(self, function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
        """Run the tasks, and start a session if there is none.

        Raises:
            JavaNotFoundError, PySparkNotFoundError: Spark cannot be started.
            TaskFailedError: A task failed in all of Spark's attempts.
            SparkUnavailableError: Spark does not respond.
        """
        if not items:
            return []
        if self._spark is None:
            from chronik.pipeline.spark.runtime import session

            self._spark = session(resolve_master(self._master) or RETRYING_LOCAL_MASTER)
        return SparkTaskRunner(self._spark).run(function, items)


class SparkTaskRunner:
    """A task runner for long-running jobs, which distinguishes a failed task from an unavailable Spark."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._parallelism: int | None = None

    def parallelism(self) -> int:
        """Return the number of tasks that run concurrently.

        Raises:
            SparkUnavailableError: Spark does not respond.
        """
        try:
            with raise_if_jvm_ended(self._spark):
                return self._query_parallelism()
        except SparkUnavailableError:
            raise
        except Exception as error:  # Spark, Py4J and gRPC raise various errors when Spark does not respond
            raise SparkUnavailableError(f"Spark does not respond: {str(error).splitlines()[0]}") from error

    def _query_parallelism(self) -> int:
        context = get_spark_context(self._spark)
        if context is not None:
            return max(1, int(context.defaultParallelism))  # grows as executors register
        if self._parallelism is None:
            self._parallelism = self._probed_parallelism()
        return self._parallelism

    def _probed_parallelism(self) -> int:
        from pyspark.sql.functions import spark_partition_id

        parts = self._spark.range(PARALLELISM_PROBE_ROWS).select(spark_partition_id()).distinct()
        return max(1, int(parts.count()))

    def run(self, function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
        """Return the results of all tasks in the order of the items.

        Raises:
            TaskFailedError: A task failed in all of Spark's attempts.
            SparkUnavailableError: Spark does not respond.
        """
        try:
            return _run(self._spark, function, items)
        except (TaskFailedError, OSError) as error:
            self._parallelism = None
            self.parallelism()  # raises if Spark does not respond
            raise TaskFailedError(str(error)) from error


def _run(spark: SparkSession, function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    if not items:
        return []
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    pickled_items = [pickle.dumps(item) for item in items]

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for item_index in batch.column(0).to_pylist():
                yield _run_item(function, item_index, pickled_items[item_index])

    try:
        with raise_if_jvm_ended(spark):
            # With as many partitions as items, each partition has exactly one item.
            rows = spark.range(0, len(items), 1, len(items)).mapInArrow(work, SPARK_OUTCOME_SCHEMA).collect()
    except (PySparkException, Py4JError) as error:
        raise TaskFailedError(_extract_exception_line(str(error))) from error
    failed = [row["error"] for row in rows if row["error"] is not None]
    if failed:
        raise TaskFailedError(failed[0])
    results: dict[int, Any] = {row["item"]: pickle.loads(row["result"]) for row in rows}
    return [results[item_index] for item_index in range(len(items))]


def _run_item(function: Callable[[Any], Any], item_index: int, item: bytes) -> pa.RecordBatch:
    """Run the function on one item and return its result, or its ChronikError, which a retry would not fix."""
    result, error = None, None
    try:
        result = pickle.dumps(function(pickle.loads(item)))
    except ChronikError as failure:
        error = str(failure)
    return pa.RecordBatch.from_pydict(
        {"item": [item_index], "result": [result], "error": [error]}, schema=OUTCOME_SCHEMA
    )


def _extract_exception_line(text: str) -> str:
    """Return the last exception line of a Python or JVM stack trace."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    exception_lines = [line for line in lines if _EXCEPTION_LINE.match(line)]
    return (exception_lines or lines or ["a task failed"])[-1 if exception_lines else 0]

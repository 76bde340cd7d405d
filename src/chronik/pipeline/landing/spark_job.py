"""The tasks of a round as one Spark job, by `chronik.pipeline.spark.tasks`, and what a driver wants to know besides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from chronik.pipeline.landing.errors import SparkGone
from chronik.pipeline.landing.task import Outcome, Task, run_task
from chronik.pipeline.spark.tasks import TaskFailed, on_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARALLELISM_PROBE_ROWS = 10_000
"""More than any cluster has cores."""


class SparkJobs:
    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._run = on_spark(spark)
        self._parallelism: int | None = None

    def parallelism(self) -> int:
        """Tasks that run at the same time. Raises SparkGone."""
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

    def run(self, tasks: Sequence[Task]) -> list[Outcome]:
        """In the order of the tasks. Raises TaskFailed when Spark gave up on one of them, SparkGone."""
        try:
            return self._run(run_task, tasks)
        except (TaskFailed, OSError) as error:
            self._parallelism = None
            self.parallelism()  # is anybody there?
            raise TaskFailed(str(error)) from error


def _context(spark: SparkSession) -> Any:
    """None over Spark Connect, where there is no such thing."""
    from pyspark.errors import PySparkException

    try:
        return spark.sparkContext
    except PySparkException:
        return None

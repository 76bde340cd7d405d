"""Landing without Spark where that is faster: small rounds run in the driver's process."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from chronik.client.cluster import ClusterClient
from chronik.limits import MIB
from chronik.pipeline import CLIENT_ID
from chronik.pipeline.landing.landing_task import LandingTask, LandingTaskResult, run_landing_task, run_landing_tasks
from chronik.pipeline.landing.round_plan import group_tasks
from chronik.pipeline.spark.jvm import stop_session
from chronik.pipeline.spark.tasks import SparkTaskRunner

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL_RECORDS_MAX: Final = 40_000
LOCAL_BYTES_MAX: Final = 32 * MIB
"""Maximum records and bytes of a landing round that runs in the driver's process. Spark starts for larger rounds."""


def run_grouped(spark: SparkTaskRunner, tasks: Sequence[LandingTask]) -> list[LandingTaskResult]:
    """Run landing tasks as one Spark job, small ones together in one Spark task, because each takes longer to start.

    Raises:
        TaskFailedError: A task failed in all of Spark's attempts.
        SparkUnavailableError: Spark does not respond.
    """
    groups = group_tasks([task.offset_count for task in tasks], spark.parallelism())
    results = spark.run(run_landing_tasks, [[tasks[index] for index in group] for group in groups])
    return [result for group in results for result in group]


class LandingTaskRunner:
    """A runner of landing tasks on a Spark session."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark_session = spark
        self._spark = SparkTaskRunner(spark)

    def parallelism(self) -> int:
        """Return the number of tasks that run concurrently.

        Raises:
            SparkUnavailableError: Spark does not respond.
        """
        return self._spark.parallelism()

    def run(self, tasks: Sequence[LandingTask]) -> list[LandingTaskResult]:
        """Run landing tasks on Spark, and return their results in the order of the tasks.

        Raises:
            TaskFailedError: A task failed in all of Spark's attempts.
            SparkUnavailableError: Spark does not respond.
        """
        return run_grouped(self._spark, tasks)

    def open_concurrent_runner(self) -> SparkTaskRunner | None:
        """Return a runner for tasks that another thread runs on the same session, or None if there is no session."""
        return SparkTaskRunner(self._spark_session)

    def close(self) -> None:
        """Stop the Spark session, if this runner has started one."""


LOCAL_TASKS_MAX: Final = 200
"""Maximum tasks of a landing round that runs in the driver's process. More tasks run concurrently on Spark."""


class LocalFirstTaskRunner(LandingTaskRunner):
    """A task runner that runs small rounds in this process, and starts Spark for the first round that is too large."""

    def __init__(
        self,
        start_session: Callable[[], SparkSession],
        *,
        records_max: int = LOCAL_RECORDS_MAX,
        bytes_max: int = LOCAL_BYTES_MAX,
    ) -> None:
        self._start_session = start_session
        self._records_max = records_max
        self._bytes_max = bytes_max
        self._session: SparkSession | None = None
        self._runner: SparkTaskRunner | None = None

    def parallelism(self) -> int:
        return self._runner.parallelism() if self._runner is not None else os.cpu_count() or 1

    def run(self, tasks: Sequence[LandingTask]) -> list[LandingTaskResult]:
        results: list[LandingTaskResult] = []
        if 0 < len(tasks) <= LOCAL_TASKS_MAX and sum(task.offset_count for task in tasks) <= self._records_max:
            results = self._run_tasks_in_driver(tasks)
        remaining = tasks[len(results) :]
        return results + (run_grouped(self.start(), remaining) if remaining else [])

    def _run_tasks_in_driver(self, tasks: Sequence[LandingTask]) -> list[LandingTaskResult]:
        """Run tasks in this process until one exceeds the size limit; return the results of those before it."""
        results: list[LandingTaskResult] = []
        remaining_bytes = self._bytes_max
        with ClusterClient(tasks[0].read.bootstrap, client_id=CLIENT_ID) as client:
            for task in tasks:
                result = run_landing_task(replace(task, bytes_max=remaining_bytes), client)
                if result.is_too_large:
                    break
                remaining_bytes -= result.read_bytes
                results.append(replace(result, ran_in_driver=True))
        return results

    def start(self) -> SparkTaskRunner:
        """Start a Spark session if none is running, and return its task runner.

        Raises:
            JavaNotFoundError, PySparkNotFoundError: Spark cannot be started.
        """
        if self._runner is None:
            with _preserve_interrupt_handler():
                self._session = self._start_session()
            self._runner = SparkTaskRunner(self._session)
        return self._runner

    def open_concurrent_runner(self) -> SparkTaskRunner | None:
        session = self._session
        return None if session is None else SparkTaskRunner(session)

    def close(self) -> None:
        if self._session is not None:
            stop_session(self._session)
            self._session = self._runner = None


@contextmanager
def _preserve_interrupt_handler() -> Iterator[None]:
    """Restore the SIGINT handler, which PySpark replaces when a session starts in the main thread."""
    handler = signal.getsignal(signal.SIGINT)
    yield
    if threading.current_thread() is threading.main_thread() and handler is not None:
        signal.signal(signal.SIGINT, handler)

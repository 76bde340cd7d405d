"""Detection of a Spark JVM that has ended, which PySpark reports as refused connections and Py4J stack traces.

PySpark starts the JVM as a child process. If the operating system kills it, usually for lack of memory, every later
call fails with an error that does not name the reason. A Spark Connect server or a gateway of another process has no
child process here, so nothing is detected.
"""

from __future__ import annotations

import logging
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from chronik.errors import ChronikError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

END_SECONDS_MAX: Final = 5.0
"""Maximum time in seconds that a JVM's process takes to end after its connection was closed."""

PY4J_MESSAGE: Final = "Exception while sending command."
"""Format of Py4J's log message with the stack trace of an exception, which Py4J raises as well."""


class SparkUnavailableError(ChronikError):
    """A Spark application that has ended or cannot be reached."""


def get_spark_context(spark: SparkSession) -> Any:
    """Return the Spark context, or None over Spark Connect."""
    from pyspark.errors import PySparkException

    try:
        return spark.sparkContext
    except PySparkException:
        return None


def describe_ended_jvm(spark: SparkSession, seconds_max: float = 0.0) -> str | None:
    """Return a message if the JVM of a session has ended or ends within `seconds_max`; otherwise, None."""
    context = get_spark_context(spark)
    process: subprocess.Popen[bytes] | None = getattr(getattr(context, "_gateway", None), "proc", None)
    if process is None:
        return None
    try:
        code = process.wait(seconds_max)
    except subprocess.TimeoutExpired:
        return None
    return f"the Spark JVM has ended: {_describe_exit_code(code)}; start Spark again"


def _describe_exit_code(code: int) -> str:
    if code >= 0:
        return f"it exited with code {code}"
    name = signal.Signals(-code).name
    reason = " (the machine may have run out of memory)" if name == "SIGKILL" else ""
    return f"it was killed by {name}{reason}"


@contextmanager
def raise_if_jvm_ended(spark: SparkSession, seconds_max: float = END_SECONDS_MAX) -> Iterator[None]:
    """If an error occurs because the session's JVM has ended, raise SparkUnavailableError instead.

    Raises:
        SparkUnavailableError: The JVM has ended; the message says how.
    """
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    silence_py4j()
    try:
        yield
    except (Py4JError, PySparkException, ConnectionError, EOFError) as error:
        is_answer = isinstance(error, PySparkException)  # the JVM was running when it answered
        message = describe_ended_jvm(spark, 0.0 if is_answer else seconds_max)
        if message is None:
            raise
        raise SparkUnavailableError(message) from error


def silence_py4j() -> None:
    """Suppress the stack trace that Py4J logs for an exception that it also raises.

    The filter stays: a JVM may end during any call, and Py4J logs to the root logger from any thread.
    """
    logging.getLogger().addFilter(_is_not_logged_by_py4j)


def _is_not_logged_by_py4j(record: logging.LogRecord) -> bool:
    return record.msg != PY4J_MESSAGE


@contextmanager
def stopping(spark: SparkSession) -> Iterator[SparkSession]:
    """Stop the session on exit. If its JVM has ended, detach PySpark so that the next session starts a new one."""
    try:
        yield spark
    finally:
        stop_session(spark)


def stop_session(spark: SparkSession) -> None:
    """Stop a Spark session. If its JVM has ended, only detach PySpark, which would otherwise raise another error."""
    if describe_ended_jvm(spark) is None:
        spark.stop()
    else:
        forget_jvm(spark)


def forget_jvm(spark: SparkSession) -> None:
    """Detach PySpark from a JVM that has ended, so that the next session starts a new one."""
    from pyspark import SparkContext

    context = get_spark_context(spark)
    server = getattr(context, "_accumulatorServer", None)
    if server is not None:
        server.shutdown()
        context._accumulatorServer = None
    context._jsc = None
    if SparkContext._gateway is context._gateway:
        SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None


def silence_accumulator_server(spark: SparkSession) -> None:
    """Suppress the stack trace that PySpark's accumulator server prints when the JVM ends and closes its connection."""
    server = getattr(get_spark_context(spark), "_accumulatorServer", None)
    if server is None:
        return
    print_error = server.handle_error

    def handle_error(request: Any, client_address: Any) -> None:
        if not isinstance(sys.exc_info()[1], (EOFError, ConnectionError)):
            print_error(request, client_address)

    server.handle_error = handle_error

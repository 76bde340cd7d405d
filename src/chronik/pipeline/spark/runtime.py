"""Spark sessions with the right Java and Python, in local mode by default and without log noise."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from chronik.pipeline.spark.installation import (
    find_java,
    private_spark_home,
    pyspark_directory,
    spark_java_home,
    worker_python,
)
from chronik.pipeline.spark.masters import LOCAL_MASTER, LOOPBACK, is_connect, is_local, resolve_master

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

APPLICATION_NAME = "chronik"

COMMON_SETTINGS = {
    "spark.ui.showConsoleProgress": "false",
    # Tables are partitioned by the UTC date: another session time zone would compute other dates.
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # On a busy machine, a forked worker may need more than Spark's default of 15 s to authenticate.
    "spark.python.authenticate.socketTimeout": "120s",
}


def spark_environment(master: str = LOCAL_MASTER, given: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the environment variables for starting Spark. On a cluster, the user's PYSPARK_PYTHON is preserved.

    Raises:
        JavaNotFoundError, PySparkNotFoundError: Spark cannot be started.
    """
    variables = {"JAVA_HOME": str(spark_java_home(find_java(given)))}
    if not given.get("SPARK_HOME"):
        variables["SPARK_HOME"] = str(private_spark_home(pyspark_directory()))
    # By default workers run the `python3` on PATH. In local mode they must run this Python; on a cluster only the user
    # knows its path. The launcher exists only on this machine.
    launcher = worker_python()
    if is_local(master):
        variables["PYSPARK_PYTHON"] = variables["PYSPARK_DRIVER_PYTHON"] = launcher
    else:
        if given.get("PYSPARK_PYTHON") in (None, "", launcher):  # the launcher: set by an earlier local session
            variables["PYSPARK_PYTHON"] = sys.executable
        variables["PYSPARK_DRIVER_PYTHON"] = sys.executable
    # Spark's scripts require bash and some twenty other programs.
    path = given.get("PATH", os.defpath)
    variables["PATH"] = path if shutil.which("bash", path=path) else os.pathsep.join([path, os.defpath])
    return variables


def default_settings(master: str = LOCAL_MASTER) -> dict[str, str]:
    """Return the default configuration of a session."""
    if not is_local(master):
        return dict(COMMON_SETTINGS)
    cores = os.cpu_count() or 1
    return COMMON_SETTINGS | {
        "spark.ui.enabled": "false",
        # The machine's own host name may not resolve.
        "spark.driver.host": LOOPBACK,
        "spark.driver.bindAddress": LOOPBACK,
        # With Spark's default of 200, scheduling the tasks would cost more than processing the rows.
        "spark.sql.shuffle.partitions": str(2 * cores),
    }


def session(master: str | None = None, **conf: str) -> SparkSession:
    """Return a Spark session: in this process, on a cluster (`spark://…`), or on a Connect server (`sc://…`).

        spark = session()
        spark = session("spark://head:7077", **{"spark.executor.memory": "4g"})

    Raises:
        JavaNotFoundError, PySparkNotFoundError: Spark cannot be started.
    """
    if master is not None and is_connect(master):
        return _remote_session(master, conf)
    master = resolve_master(master) or LOCAL_MASTER
    os.environ.update(spark_environment(master))
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(master).appName(APPLICATION_NAME)
    for name, value in (default_settings(master) | conf).items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def _remote_session(url: str, conf: Mapping[str, str]) -> SparkSession:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.remote(url)
    # PySpark reuses an active session without opening a channel.
    if url.startswith(f"sc://{LOOPBACK}:") and SparkSession.getActiveSession() is None:
        from pyspark.sql.connect.session import SparkSession as RemoteSession

        from chronik.pipeline.spark.loopback_channel import LoopbackChannelBuilder

        os.environ["SPARK_CONNECT_MODE_ENABLED"] = "1"  # select Connect's functions and types
        builder = RemoteSession.builder.channelBuilder(LoopbackChannelBuilder(url))
    for name, value in conf.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()

"""A Spark session that just works: the right Java, the right Python, local unless told otherwise, and quiet."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from chronik.pipeline.spark.home import private_spark_home, pyspark_folder
from chronik.pipeline.spark.java import find_java, spark_java_home
from chronik.pipeline.spark.masters import LOCAL_MASTER, LOOPBACK, chosen_master, is_connect, is_local
from chronik.pipeline.spark.python import worker_python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

APPLICATION = "chronik"

COMMON = {
    "spark.ui.showConsoleProgress": "false",
    # Tables are partitioned by the day in UTC: a session in another zone would cut days elsewhere.
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # A worker that is forked on a busy machine may take more than the 15 s that Spark gives it to authenticate.
    "spark.python.authenticate.socketTimeout": "120s",
}


def environment(master: str = LOCAL_MASTER, given: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Returns the variables that Spark is to be started with; what the user has set for a cluster stays.

    Raises JavaMissing, PySparkMissing.
    """
    variables = {"JAVA_HOME": str(spark_java_home(find_java(given)))}
    if not given.get("SPARK_HOME"):
        variables["SPARK_HOME"] = str(private_spark_home(pyspark_folder()))
    # Without it workers run whatever `python3` is on PATH. On this machine only ours is right; a cluster's own may be
    # elsewhere, and only the user knows. The launcher is on this machine alone.
    launcher = worker_python()
    if is_local(master):
        variables["PYSPARK_PYTHON"] = variables["PYSPARK_DRIVER_PYTHON"] = launcher
    else:
        if given.get("PYSPARK_PYTHON") in (None, "", launcher):  # the launcher: of an earlier, local session
            variables["PYSPARK_PYTHON"] = sys.executable
        variables["PYSPARK_DRIVER_PYTHON"] = sys.executable
    # Spark's own scripts are for bash, and call some twenty small programs.
    path = given.get("PATH", os.defpath)
    variables["PATH"] = path if shutil.which("bash", path=path) else os.pathsep.join([path, os.defpath])
    return variables


def settings(master: str = LOCAL_MASTER) -> dict[str, str]:
    """Returns what a session starts with, unless the caller says otherwise."""
    if not is_local(master):
        return dict(COMMON)
    cores = os.cpu_count() or 1
    return COMMON | {
        "spark.ui.enabled": "false",
        # A machine whose own name does not resolve is still a machine to run on.
        "spark.driver.host": LOOPBACK,
        "spark.driver.bindAddress": LOOPBACK,
        # 200 tasks, the default, cost two cores more than the rows do.
        "spark.sql.shuffle.partitions": str(2 * cores),
    }


def session(master: str | None = None, **conf: str) -> SparkSession:
    """Makes a session: in this process, on a cluster with `spark://…`, through a Connect server with `sc://…`.

        spark = session()
        spark = session("spark://head:7077", **{"spark.executor.memory": "4g"})

    Raises JavaMissing, PySparkMissing.
    """
    if master is not None and is_connect(master):
        return _remote_session(master, conf)
    master = chosen_master(master) or LOCAL_MASTER
    os.environ.update(environment(master))
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(master).appName(APPLICATION)
    for name, value in (settings(master) | conf).items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def _remote_session(url: str, conf: Mapping[str, str]) -> SparkSession:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.remote(url)
    # With a session that is there already PySpark knows what to do, and dials nobody.
    if url.startswith(f"sc://{LOOPBACK}:") and SparkSession.getActiveSession() is None:
        from pyspark.sql.connect.session import SparkSession as RemoteSession

        from chronik.pipeline.spark.loopback_channel import LoopbackChannelBuilder

        os.environ["SPARK_CONNECT_MODE_ENABLED"] = "1"  # functions and types are Connect's from here on
        builder = RemoteSession.builder.channelBuilder(LoopbackChannelBuilder(url))
    for name, value in conf.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()

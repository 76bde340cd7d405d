"""Spark sessions with the right Java and Python, in local mode by default and without log noise."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

from chronik.errors import ConfigError
from chronik.pipeline.spark.installation import (
    find_java,
    find_pyspark_directory,
    prepare_private_spark_home,
    prepare_spark_java_home,
    worker_python,
)
from chronik.pipeline.spark.jvm import describe_ended_jvm, forget_jvm, silence_accumulator_server, silence_py4j
from chronik.pipeline.spark.masters import LOCAL_MASTER, LOOPBACK, is_connect_master, is_local_master, resolve_master

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

UI_VARIABLE = "CHRONIK_SPARK_UI"
"""Environment variable that enables Spark's web UI."""

ADDRESS_VARIABLE = "SPARK_LOCAL_IP"
"""Environment variable with the address to which the JVM binds Spark's web UI."""

UI_SETTING = "spark.ui.enabled"

UI_SETTINGS = {UI_SETTING: "true", "spark.ui.killEnabled": "false"}
"""Settings of a read-only web UI."""


def build_spark_environment(master: str = LOCAL_MASTER, given: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the environment variables for starting Spark. On a cluster, the user's PYSPARK_PYTHON is preserved.

    Raises:
        JavaNotFoundError, PySparkNotFoundError: Spark cannot be started.
    """
    variables = {"JAVA_HOME": str(prepare_spark_java_home(find_java(given)))}
    if not given.get("SPARK_HOME"):
        variables["SPARK_HOME"] = str(prepare_private_spark_home(find_pyspark_directory()))
    # By default workers run the `python3` on PATH. In local mode they must run this Python; on a cluster only the user
    # knows its path. The launcher exists only on this machine.
    launcher = worker_python()
    if is_local_master(master):
        variables["PYSPARK_PYTHON"] = variables["PYSPARK_DRIVER_PYTHON"] = launcher
    else:
        if given.get("PYSPARK_PYTHON") in (None, "", launcher):  # the launcher: set by an earlier local session
            variables["PYSPARK_PYTHON"] = sys.executable
        variables["PYSPARK_DRIVER_PYTHON"] = sys.executable
    # Spark's scripts require bash and some twenty other programs.
    path = given.get("PATH", os.defpath)
    variables["PATH"] = path if shutil.which("bash", path=path) else os.pathsep.join([path, os.defpath])
    return variables


def build_default_settings(master: str = LOCAL_MASTER) -> dict[str, str]:
    """Return the default configuration of a session."""
    if not is_local_master(master):
        return dict(COMMON_SETTINGS)
    cores = os.cpu_count() or 1
    return COMMON_SETTINGS | {
        UI_SETTING: "false",
        # The machine's own host name may not resolve.
        "spark.driver.host": LOOPBACK,
        "spark.driver.bindAddress": LOOPBACK,
        # With Spark's default of 200, scheduling the tasks would cost more than processing the rows.
        "spark.sql.shuffle.partitions": str(2 * cores),
    }


def is_ui_enabled(conf: Mapping[str, str], environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether to start Spark's web UI: the value of `spark.ui.enabled`, or else of CHRONIK_SPARK_UI, or else no.

    Raises:
        ConfigError: The environment variable is neither 1 nor 0.
    """
    if UI_SETTING in conf:
        return conf[UI_SETTING].lower() == "true"
    value = environment.get(UI_VARIABLE, "").lower()
    if value not in ("", "0", "1", "false", "true"):
        raise ConfigError(f"{UI_VARIABLE} = {value!r}: expected 1 or 0")
    return value in ("1", "true")


def session(master: str | None = None, **conf: str) -> SparkSession:
    """Return a Spark session: in this process, on a cluster (`spark://…`), or on a Connect server (`sc://…`).

        spark = session()
        spark = session("spark://head:7077", **{"spark.executor.memory": "4g"})

    With the setting `spark.ui.enabled=true` or the environment variable CHRONIK_SPARK_UI=1, Spark's web UI is started,
    and its address is printed to stderr. In local mode, it is off by default and listens on the loopback address.

    Raises:
        JavaNotFoundError, PySparkNotFoundError: Spark cannot be started.
        ConfigError: CHRONIK_SPARK_UI is invalid.
    """
    if master is not None and is_connect_master(master):
        return _create_remote_session(master, conf)
    master = resolve_master(master) or LOCAL_MASTER
    os.environ.update(build_spark_environment(master))
    from pyspark.sql import SparkSession

    with_ui = is_ui_enabled(conf)
    _forget_ended_jvm()
    builder = SparkSession.builder.master(master).appName(APPLICATION_NAME)
    for name, value in (build_default_settings(master) | (UI_SETTINGS if with_ui else {}) | conf).items():
        builder = builder.config(name, value)
    with _bind_ui_to_loopback() if with_ui and is_local_master(master) else nullcontext():
        spark = builder.getOrCreate()
    silence_accumulator_server(spark)
    silence_py4j()
    if with_ui:
        print(_describe_ui_address(spark), file=sys.stderr)
    return spark


@contextmanager
def _bind_ui_to_loopback() -> Iterator[None]:
    """Bind the web UI of a JVM started in this context to the loopback address, since the UI has no authentication."""
    earlier = os.environ.get(ADDRESS_VARIABLE)
    os.environ.setdefault(ADDRESS_VARIABLE, LOOPBACK)
    try:
        yield
    finally:
        if earlier is None:
            del os.environ[ADDRESS_VARIABLE]


def _describe_ui_address(spark: SparkSession) -> str:
    context = spark.sparkContext
    if context.uiWebUrl is None:
        return "Spark UI: not available, because the current session was started without it; stop that session first"
    is_restricted = context._jvm.System.getenv(ADDRESS_VARIABLE) is not None
    return f"Spark UI: {context.uiWebUrl}{'' if is_restricted else ' (listens on all network interfaces)'}"


def _forget_ended_jvm() -> None:
    """Detach PySpark from the JVM of an earlier session if that JVM has ended."""
    from pyspark.sql import SparkSession

    earlier = SparkSession._instantiatedSession
    if earlier is not None and describe_ended_jvm(earlier) is not None:
        forget_jvm(earlier)


def _create_remote_session(url: str, conf: Mapping[str, str]) -> SparkSession:
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

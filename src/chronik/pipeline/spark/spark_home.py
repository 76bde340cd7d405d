"""A SPARK_HOME around the pyspark package that logs only errors and uses compiled Python files.

Workers import pyspark from `python/lib/pyspark.zip`, which Python compiles again in every process. Here that name is a
link to the installed package with its compiled files, which makes a cold job a quarter faster.
"""

from __future__ import annotations

import hashlib
import importlib.util
from pathlib import Path

from chronik.errors import ChronikError
from chronik.pipeline.spark.cache import cache_directory, create_once
from chronik.wording import install_hint

LINKED_DIRECTORIES = ("bin", "jars", "sbin")

LOG4J_PROPERTIES = """# Errors only: the warnings that Spark logs at every start do not concern users who query a topic.
rootLogger.level = ${env:CHRONIK_SPARK_LOG:-error}
rootLogger.appenderRef.stderr.ref = stderr
# A Python driver sets the root logger to the level of this logger. Spark logs nothing about it if they are equal.
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = ${env:CHRONIK_SPARK_LOG:-error}
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex
"""


class PySparkNotFoundError(ChronikError):
    """PySpark is not installed, or only as pyspark-client, which does not contain Spark."""


def pyspark_directory() -> Path:
    """Return the directory of the pyspark package, without importing it.

    Raises:
        PySparkNotFoundError: PySpark is not installed with Spark's jars.
    """
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise PySparkNotFoundError(f"PySpark is not installed: {install_hint('spark')}")
    directory = Path(spec.origin).parent
    if not (directory / "jars").is_dir():
        raise PySparkNotFoundError(
            f"{directory} has no jars (pyspark-client?): {install_hint('spark')}, or set SPARK_HOME"
        )
    return directory


def private_spark_home(pyspark: Path, cache: Path | None = None) -> Path:
    """Return a SPARK_HOME for the pyspark package, created in the cache if necessary."""
    key = hashlib.sha256(f"{pyspark}\n{LOG4J_PROPERTIES}".encode()).hexdigest()[:12]

    def make(directory: Path) -> None:
        for name in LINKED_DIRECTORIES:
            (directory / name).symlink_to(pyspark / name)
        libraries = directory / "python" / "lib"
        libraries.mkdir(parents=True)
        (libraries / "pyspark.zip").symlink_to(pyspark.parent)
        for archive in (pyspark / "python" / "lib").glob("py4j-*.zip"):
            (libraries / archive.name).symlink_to(archive)
        (directory / "conf").mkdir()
        (directory / "conf" / "log4j2.properties").write_text(LOG4J_PROPERTIES, encoding="utf-8")

    return create_once((cache or cache_directory()) / f"spark-{key}", make)

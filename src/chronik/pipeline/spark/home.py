"""A SPARK_HOME of ours around the pyspark package: quiet, and with Python files that are compiled already.

Workers import pyspark from `python/lib/pyspark.zip`, which Python compiles anew in every process. Here that name is a
link to where the package is installed, compiled files included, which takes a quarter off a cold job.
"""

from __future__ import annotations

import hashlib
import importlib.util
from pathlib import Path

from chronik.errors import ChronikError
from chronik.pipeline.spark.cache import cache_folder, made_once
from chronik.wording import install_hint

LINKED = ("bin", "jars", "sbin")

LOGGING = """# Errors alone: what Spark warns of at every start is no news to who queries a topic.
rootLogger.level = ${env:CHRONIK_SPARK_LOG:-error}
rootLogger.appenderRef.stderr.ref = stderr
# The level of this one is what a Python driver sets the root to; where they are equal, Spark says nothing of it.
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = ${env:CHRONIK_SPARK_LOG:-error}
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex
"""


class PySparkMissing(ChronikError):
    """PySpark is not installed, or not as the package that brings Spark along."""


def pyspark_folder() -> Path:
    """Finds the package, without importing it. Raises PySparkMissing."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise PySparkMissing(f"PySpark is not installed: {install_hint('spark')}")
    folder = Path(spec.origin).parent
    if not (folder / "jars").is_dir():
        raise PySparkMissing(f"{folder} has no jars (pyspark-client?): {install_hint('spark')}, or set SPARK_HOME")
    return folder


def private_spark_home(pyspark: Path, cache: Path | None = None) -> Path:
    key = hashlib.sha256(f"{pyspark}\n{LOGGING}".encode()).hexdigest()[:12]

    def make(folder: Path) -> None:
        for name in LINKED:
            (folder / name).symlink_to(pyspark / name)
        libraries = folder / "python" / "lib"
        libraries.mkdir(parents=True)
        (libraries / "pyspark.zip").symlink_to(pyspark.parent)
        for archive in (pyspark / "python" / "lib").glob("py4j-*.zip"):
            (libraries / archive.name).symlink_to(archive)
        (folder / "conf").mkdir()
        (folder / "conf" / "log4j2.properties").write_text(LOGGING, encoding="utf-8")

    return made_once((cache or cache_folder()) / f"spark-{key}", make)

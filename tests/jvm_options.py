"""JVM options for tests, whose JVMs usually live for seconds: a fast start matters more than throughput."""

from __future__ import annotations

import os

from tests.archives import NO_CONF, archive_options, spark_archive, spark_logging

QUICK_TO_START = (
    "-XX:+UseSerialGC",  # a single GC thread
    "-XX:TieredStopAtLevel=1",  # only the fast compiler: the optimizing one pays off after minutes
)

SHORT_LIVED = (
    *QUICK_TO_START,
    *("-XX:+UnlockDiagnosticVMOptions", "-XX:-BytecodeVerificationRemote"),  # the classes are known to be valid
)
"""Options with which Spark starts and runs its first query in half of the CPU time."""

SPARK_LAUNCHER = "SPARK_LAUNCHER_OPTS"
SPARK_JVMS = ("SPARK_SUBMIT_OPTS", "SPARK_DAEMON_JAVA_OPTS")
"""Environment variables of Spark's scripts: for the JVM that builds a command line, for drivers, and for masters and
workers. Executors get their options from the driver's configuration."""


def spark_options() -> tuple[str, ...]:
    """Return the JVM options of Spark, with the class archive if there is one and SPARK_CONF_DIR is set for it."""
    archived = archive_options(spark_archive()) if os.environ.get("SPARK_CONF_DIR") == str(NO_CONF) else ()
    return (*SHORT_LIVED, *archived, spark_logging()) if archived else SHORT_LIVED


def make_spark_short_lived() -> None:
    """Set the JVM options of all Spark processes that this process starts, unless the user has set them."""
    if archive_options(spark_archive()):
        os.environ.setdefault("SPARK_CONF_DIR", str(NO_CONF))
    os.environ.setdefault(SPARK_LAUNCHER, " ".join(SHORT_LIVED))
    for name in SPARK_JVMS:
        os.environ.setdefault(name, " ".join(spark_options()))

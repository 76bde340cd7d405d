"""JVMs that tests start live for seconds, as a rule: quick to start is better than fast later."""

from __future__ import annotations

import os

from tests.archives import NO_CONF, spark_archive, spark_logging, using

QUICK_TO_START = (
    "-XX:+UseSerialGC",  # one thread that collects
    "-XX:TieredStopAtLevel=1",  # one compiler of the two: what the other does pays off after minutes
)

SHORT_LIVED = (
    *QUICK_TO_START,
    *("-XX:+UnlockDiagnosticVMOptions", "-XX:-BytecodeVerificationRemote"),  # ten thousand classes are as they were
)
"""Spark is up, and has answered its first query, for half of the processor's time that it takes otherwise."""

SPARK_LAUNCHER = "SPARK_LAUNCHER_OPTS"
SPARK_JVMS = ("SPARK_SUBMIT_OPTS", "SPARK_DAEMON_JAVA_OPTS")
"""What Spark's scripts look into: for the JVM that works out a command line, for drivers, and for masters and workers.
Executors are told by the driver's configuration."""


def spark_options() -> tuple[str, ...]:
    """With the archive, where there is one, and Spark has been given the empty folder that goes with it."""
    archived = using(spark_archive()) if os.environ.get("SPARK_CONF_DIR") == str(NO_CONF) else ()
    return (*SHORT_LIVED, *archived, spark_logging()) if archived else SHORT_LIVED


def make_spark_short_lived() -> None:
    """For every Spark that this process starts, and whom it starts; what the user has set stays."""
    if using(spark_archive()):
        os.environ.setdefault("SPARK_CONF_DIR", str(NO_CONF))
    os.environ.setdefault(SPARK_LAUNCHER, " ".join(SHORT_LIVED))
    for name in SPARK_JVMS:
        os.environ.setdefault(name, " ".join(spark_options()))

"""JVMs that tests start live for seconds, as a rule: quick to start is better than fast later."""

from __future__ import annotations

import os

SHORT_LIVED = (
    "-XX:+UseSerialGC",  # one thread that collects
    "-XX:TieredStopAtLevel=1",  # one compiler of the two: what the other does pays off after minutes
    *("-XX:+UnlockDiagnosticVMOptions", "-XX:-BytecodeVerificationRemote"),  # ten thousand classes are as they were
)
"""Spark is up, and has answered its first query, for half of the processor's time that it takes otherwise."""

SPARK_VARIABLES = ("SPARK_LAUNCHER_OPTS", "SPARK_SUBMIT_OPTS", "SPARK_DAEMON_JAVA_OPTS")
"""What Spark's scripts look into: for the JVM that works out a command line, for drivers, and for masters and workers.
Executors are told by the driver's configuration."""


def make_spark_short_lived() -> None:
    """For every Spark that this process starts, and whom it starts; what the user has set stays."""
    for name in SPARK_VARIABLES:
        os.environ.setdefault(name, " ".join(SHORT_LIVED))

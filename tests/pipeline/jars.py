"""Jars that `tools/clients/setup` has fetched from Maven Central, and the reason if any are missing."""

from __future__ import annotations

from pathlib import Path

import pytest

TOOLS = Path(__file__).parents[2] / ".tools"

SPARK_KAFKA = "spark-kafka"
"""Spark's Kafka connector."""

APACHE_KAFKA = "apache-kafka"
"""The Apache Kafka broker."""

SPARK_4_1 = "spark-4.1"
"""Delta Lake, Iceberg's runtime and SQLite's driver, for the Spark in the environment `.tools/spark-4.1`."""


def list_jars(name: str) -> list[Path]:
    """Return the jars of a component, or an empty list if they are not installed."""
    return sorted((TOOLS / "jars" / name).glob("*.jar"))


def skip_without_jars(name: str) -> None:
    """Skip the test, with the reason, if the jars are not installed."""
    if list_jars(name):
        return
    reason = TOOLS / "missing" / name
    pytest.skip(f"{name}: {reason.read_text().strip() if reason.exists() else 'not set up; run tools/clients/setup'}")


def spark_conf() -> dict[str, str]:
    """Return the configuration of a session with Spark's Kafka connector, if it is installed."""
    jars = ",".join(map(str, list_jars(SPARK_KAFKA)))
    return {"spark.jars": jars} if jars else {}

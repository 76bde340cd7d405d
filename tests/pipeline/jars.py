"""What `tools/clients/setup` has fetched from Maven Central, and why something may not be there."""

from __future__ import annotations

from pathlib import Path

import pytest

TOOLS = Path(__file__).parents[2] / ".tools"

SPARK_KAFKA = "spark-kafka"
"""Spark's own Kafka connector."""

APACHE_KAFKA = "apache-kafka"
"""Apache Kafka's broker."""


def jars_of(name: str) -> list[Path]:
    """Empty when they are not there."""
    return sorted((TOOLS / "jars" / name).glob("*.jar"))


def skip_without(name: str) -> None:
    """Skips the test, with the reason, when the jars are not there."""
    if jars_of(name):
        return
    told = TOOLS / "missing" / name
    pytest.skip(f"{name}: {told.read_text().strip() if told.exists() else 'not set up; run tools/clients/setup'}")


def spark_conf() -> dict[str, str]:
    """For a session that has Spark's own connector beside ours, where it is there."""
    jars = ",".join(map(str, jars_of(SPARK_KAFKA)))
    return {"spark.jars": jars} if jars else {}

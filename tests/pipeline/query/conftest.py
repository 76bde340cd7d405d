"""Fixtures of statements over a topic."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from chronik.client.cluster import ClusterClient
from chronik.testing import Broker
from tests.pipeline.query.topic_sql import Sql

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def cluster(chronik_broker: Broker) -> Iterator[ClusterClient]:
    with chronik_broker.cluster() as cluster:
        yield cluster


@pytest.fixture
def sql(spark: SparkSession, chronik_broker: Broker, cluster: ClusterClient, chronik_topic: str, tmp_path: Path) -> Sql:
    return Sql(spark, chronik_broker, cluster, chronik_topic, tmp_path / "tables [1] {of} mine")

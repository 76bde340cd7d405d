"""A Spark session shared by all tests of an xdist worker, because it takes seconds to start and half a gigabyte.

Likewise an S3 server.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.pipeline.seaweedfs import S3Server


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    from chronik.pipeline.spark.runtime import session
    from tests.pipeline.jars import spark_conf

    with session("local[2]", **{"spark.sql.shuffle.partitions": "2"}, **spark_conf()) as spark:
        spark.sparkContext.setLogLevel("FATAL")  # tests make queries fail, and Spark logs each failure three times
        yield spark


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """A SeaweedFS server, shared by all tests of an xdist worker.

    With CHRONIK_S3_SERVER=versitygw, it is Versity's gateway, another implementation of S3.
    """
    if os.environ.get("CHRONIK_S3_SERVER") == "versitygw":
        from tests.pipeline.versitygw import run_versity_gateway as run_server
    else:
        from tests.pipeline.seaweedfs import run_seaweedfs as run_server
    with run_server(tmp_path_factory.mktemp("s3") / "server") as server:
        yield server


@pytest.fixture
def without_aws_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Remove the AWS settings of the user who runs the tests."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "aws-config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "aws-credentials"))


@pytest.fixture
def s3_root(s3_server: S3Server, without_aws_settings: None) -> str:
    """A table root of its own in the bucket."""
    return f"s3://lake/{uuid.uuid4().hex}"

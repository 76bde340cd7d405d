"""A Spark session shared by all tests of an xdist worker, because it takes seconds to start and half a gigabyte."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    from chronik.pipeline.spark.runtime import session
    from tests.pipeline.jars import spark_conf

    with session("local[2]", **{"spark.sql.shuffle.partitions": "2"}, **spark_conf()) as spark:
        spark.sparkContext.setLogLevel("FATAL")  # tests make queries fail, and Spark logs each failure three times
        yield spark

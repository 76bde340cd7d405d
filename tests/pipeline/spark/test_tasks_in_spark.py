"""Functions over items in Spark's tasks: results in order, and errors that say what went wrong and nothing else."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING

import pytest

from chronik.client.cluster import parse_bootstrap
from chronik.pipeline.spark.tasks import TaskFailed, on_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_results_come_in_the_order_of_the_items(spark: SparkSession) -> None:
    tasks = on_spark(spark)
    assert tasks(operator.neg, range(10)) == [-item for item in range(10)]
    assert tasks(operator.neg, []) == []


def test_an_error_of_ours_is_told_in_its_own_words(spark: SparkSession) -> None:
    with pytest.raises(TaskFailed) as failed:
        on_spark(spark)(parse_bootstrap, ["127.0.0.1:9092", "nonsense"])
    assert str(failed.value) == "bootstrap server 'nonsense': expected HOST:PORT, such as 127.0.0.1:9092"


def test_any_other_error_is_told_without_its_traces(spark: SparkSession) -> None:
    with pytest.raises(TaskFailed) as failed:
        on_spark(spark)(int, ["1", "x"])
    assert str(failed.value) == "ValueError: invalid literal for int() with base 10: 'x'"

"""Tests of Spark tasks: results in order, and concise errors."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING

import pytest

from chronik.client.cluster import parse_bootstrap
from chronik.pipeline.spark.tasks import TaskFailedError, spark_task_runner

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_task_results_are_in_item_order(spark: SparkSession) -> None:
    tasks = spark_task_runner(spark)
    assert tasks(operator.neg, range(10)) == [-item for item in range(10)]
    assert tasks(operator.neg, []) == []


def test_chronik_error_in_task_keeps_its_message(spark: SparkSession) -> None:
    with pytest.raises(TaskFailedError) as failed:
        spark_task_runner(spark)(parse_bootstrap, ["127.0.0.1:9092", "nonsense"])
    assert str(failed.value) == "bootstrap server 'nonsense': expected HOST:PORT, such as 127.0.0.1:9092"


def test_other_error_in_task_is_reported_without_stack_trace(spark: SparkSession) -> None:
    with pytest.raises(TaskFailedError) as failed:
        spark_task_runner(spark)(int, ["1", "x"])
    assert str(failed.value) == "ValueError: invalid literal for int() with base 10: 'x'"

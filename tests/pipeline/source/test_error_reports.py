"""Tests that the report of an error starts with its message when PySpark formats it in a worker."""

from __future__ import annotations

import io
from collections.abc import Iterator

import pytest
from pyspark.sql.types import BinaryType, StructField, StructType
from pyspark.util import handle_worker_exception

from chronik.client.errors import ClientError
from chronik.pipeline.errors import OptionError
from chronik.pipeline.source.error_reports import DataSourceError, MessageFirst
from pyspark_chronik import DefaultSource


def format_in_worker(error: BaseException) -> str:
    """Return the text that a Python worker sends to the JVM, without its marker and its length."""
    report = io.BytesIO()
    try:
        raise error
    except BaseException as raised:
        handle_worker_exception(raised, report)
    return report.getvalue()[8:].decode()


@MessageFirst()
def fail(error: Exception) -> None:
    raise error


@pytest.fixture(params=["", "1"], ids=["full", "simplified"])
def traceback_style(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_HIDE_TRACEBACK", raising=False)
    monkeypatch.setenv("SPARK_SIMPLIFIED_TRACEBACK", request.param)


@pytest.mark.usefixtures("traceback_style")
def test_report_starts_with_message_and_contains_traceback() -> None:
    with pytest.raises(DataSourceError) as raised:
        fail(OptionError("unknown option 'a'"))
    lines = format_in_worker(raised.value).splitlines()
    assert lines[0] == "chronik.pipeline.errors.OptionError: unknown option 'a'"
    assert "Traceback (most recent call last):" in lines
    assert any("raise error" in line for line in lines), "the traceback reaches the origin of the error"
    assert lines[-1].endswith("DataSourceError: unknown option 'a'")


@pytest.mark.usefixtures("traceback_style")
def test_report_keeps_cause_of_error_after_message() -> None:
    error = ClientError("no broker responds")
    error.__cause__ = ConnectionRefusedError("refused")
    with pytest.raises(DataSourceError) as raised:
        fail(error)
    report = format_in_worker(raised.value)
    assert report.startswith("chronik.client.errors.ClientError: no broker responds\n")
    assert "ConnectionRefusedError: refused" in report


@pytest.mark.usefixtures("traceback_style")
def test_error_in_iterator_starts_with_message() -> None:
    def produce() -> Iterator[int]:
        with MessageFirst():
            yield 1
            raise OptionError("late")

    items = produce()
    assert next(items) == 1
    with pytest.raises(DataSourceError) as raised:
        next(items)
    assert format_in_worker(raised.value).startswith("chronik.pipeline.errors.OptionError: late\n")


def test_error_is_wrapped_once() -> None:
    with pytest.raises(DataSourceError) as raised:
        fail(DataSourceError(OptionError("a")))
    assert str(raised.value) == "a"
    assert format_in_worker(raised.value).count("direct cause") == 1


def test_programming_error_is_not_wrapped() -> None:
    with pytest.raises(ZeroDivisionError):
        fail(ZeroDivisionError())


def test_data_source_reports_options_with_message_first() -> None:
    with pytest.raises(DataSourceError, match="did you mean 'startingOffsets'"):
        DefaultSource({"startingoffset": "latest"}).schema()
    with pytest.raises(DataSourceError, match=r"bootstrap\.servers is missing"):
        DefaultSource({"subscribe": "a", "columns": "value"}).reader(create_schema("value"))
    with pytest.raises(DataSourceError, match=r'use \.mode\("append"\)'):
        DefaultSource({"topic": "a", "bootstrap.servers": "b:1"}).writer(create_schema("value"), overwrite=True)


def create_schema(name: str) -> StructType:
    return StructType([StructField(name, BinaryType())])

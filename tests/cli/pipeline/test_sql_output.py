"""Query results as tables, JSON and CSV, and Spark errors in one line."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from io import StringIO
from types import SimpleNamespace
from typing import Any

import pytest

from chronik.cli.row_formats import CELL_CHARACTERS_MAX, write_csv, write_json, write_table
from chronik.pipeline.query.error_summary import SUMMARY_CHARACTERS_MAX, summarize_error

NAMES = ["n", "text", "bytes", "time", "more"]
ROW: list[Any] = [1, "a\nb", b"key", datetime(2024, 5, 1, 12, 0, 0, 5000), [{"x": b"\xff"}, None]]


def test_write_json_writes_one_line_per_row() -> None:
    out = StringIO()
    write_json(NAMES, [ROW, [None] * 5], out)
    first, second = map(json.loads, out.getvalue().splitlines())
    assert first == {
        "n": 1,
        "text": "a\nb",
        "bytes": "key",
        "time": "2024-05-01T12:00:00.005000Z",
        "more": [{"x": "/w=="}, None],
    }
    assert second == dict.fromkeys(NAMES)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (float("nan"), '"nan"'),
        (float("-inf"), '"-inf"'),
        (Decimal("1.50"), '"1.50"'),
        (date(2024, 5, 1), '"2024-05-01"'),
        (datetime(2024, 5, 1, tzinfo=UTC), '"2024-05-01T00:00:00+00:00"'),
        ({b"k": 1}, '{"k": 1}'),
        (True, "true"),
    ],
)
def test_values_without_json_type_are_strings(value: Any, text: str) -> None:
    out = StringIO()
    write_json(["v"], [[value]], out)
    assert out.getvalue() == f'{{"v": {text}}}\n'


def test_csv_quotes_special_characters_and_leaves_nulls_empty() -> None:
    out = StringIO()
    write_csv(NAMES, [ROW, [None, True, b"", None, {"a": 1.5}]], out)
    assert out.getvalue() == (
        "n,text,bytes,time,more\n"
        '1,"a\nb",key,2024-05-01T12:00:00.005000Z,"[{""x"": ""/w==""}, null]"\n'
        ',true,,,"{""a"": 1.5}"\n'
    )


def test_table_limits_rows_and_cell_length() -> None:
    out = StringIO()
    assert not write_table(["n", "text"], [[number, "x" * 200] for number in range(5)], out, 2)
    lines = out.getvalue().splitlines()
    assert len(lines) == 3
    assert lines[2] == "1  " + "x" * (CELL_CHARACTERS_MAX - 1) + "…"
    assert write_table(["n"], [[1], [2]], StringIO(), 2)


def test_spark_error_is_shortened_to_one_line() -> None:
    message = (
        "[TABLE_OR_VIEW_NOT_FOUND] The table or view `nope` cannot be found. Verify the spelling and correctness of the"
        " schema and catalog.\nIf you did not qualify the name with a schema, verify it.\n"
        "To tolerate the error on drop use DROP VIEW IF EXISTS. SQLSTATE: 42P01; line 1 pos 14;\n'Project [*]\n+- 'X\n"
    )
    assert (
        summarize_error(message) == "[TABLE_OR_VIEW_NOT_FOUND] The table or view `nope` cannot be found; line 1 pos 14"
    )
    message = "\n[PARSE_SYNTAX_ERROR] Syntax error at or near 'selec'. SQLSTATE: 42601 (line 1, pos 0)\n\n== SQL ==\nx"
    assert summarize_error(message) == "[PARSE_SYNTAX_ERROR] Syntax error at or near 'selec'. (line 1, pos 0)"


def test_task_error_is_printed_without_traceback() -> None:
    message = (
        "An exception was thrown from the Python worker: Traceback (most recent call last):\n"
        '  File "reading.py", line 1, in read\n'
        "chronik.pipeline.errors.DataLossError: orders-0: offsets 2 to 5 cannot be read\n"
    )
    assert summarize_error(message) == "orders-0: offsets 2 to 5 cannot be read"
    message = "Job aborted:\nTraceback (most recent call last):\nZeroDivisionError: division by zero\n\n\tat org.apache"
    assert summarize_error(message) == "ZeroDivisionError: division by zero"
    assert summarize_error("") == "Spark gave no reason"
    assert len(summarize_error("x" * 10_000)) == SUMMARY_CHARACTERS_MAX


def test_completed_tasks_advance_progress_bar() -> None:
    from chronik.cli.pipeline.sql import _create_progress_handler
    from chronik.pipeline.journal.progress_bar import ProgressBar

    bar = ProgressBar("query", unit="tasks", stream=StringIO())
    report_progress = _create_progress_handler(bar)
    report_progress(None, 0, None, False)
    assert (bar.done, bar.total) == (0, None)
    stages = [SimpleNamespace(num_tasks=8, num_completed_tasks=8), SimpleNamespace(num_tasks=4, num_completed_tasks=1)]
    report_progress(stages, 2, "an operation", False)
    assert (bar.done, bar.total) == (9, 12)

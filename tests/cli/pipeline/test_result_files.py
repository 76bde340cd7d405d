"""Files of results: formats, values of all types, errors, and atomic replacement."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from chronik.cli.arguments import InvalidInput
from chronik.cli.main import main
from chronik.cli.pipeline import result_files
from chronik.cli.pipeline.result_files import (
    ResultFileError,
    ResultFormat,
    check_output_path,
    choose_format,
    write_result,
)

NOON = datetime(2026, 11, 19, 12, tzinfo=UTC)

SCHEMA = pa.schema(
    [
        ("n", pa.int64()),
        ("name", pa.string()),
        ("key", pa.binary()),
        ("at", pa.timestamp("us", "UTC")),
        ("local", pa.timestamp("us")),
        ("day", pa.date32()),
        ("price", pa.decimal128(10, 2)),
        ("ratio", pa.float64()),
        ("is_new", pa.bool_()),
        ("items", pa.list_(pa.struct([("x", pa.int64()), ("local", pa.timestamp("us"))]))),
        ("tags", pa.map_(pa.string(), pa.int64())),
    ]
)

ROWS = [
    {
        "n": 1, "name": "a,\"ü\"\n", "key": b"\xff", "at": NOON, "local": NOON.replace(tzinfo=None), "day": NOON.date(),
        "price": Decimal("12.25"), "ratio": 0.5, "is_new": True, "items": [{"x": 1, "local": datetime(2026, 1, 1)}],
        "tags": [("a", 1)],
    },
    dict.fromkeys(SCHEMA.names),
]  # fmt: skip

EXPECTED_JSON = {
    "n": 1, "name": "a,\"ü\"\n", "key": "/w==", "at": "2026-11-19T12:00:00Z", "local": "2026-11-19T12:00:00",
    "day": "2026-11-19", "price": "12.25", "ratio": 0.5, "is_new": True,
    "items": [{"x": 1, "local": "2026-01-01T00:00:00"}], "tags": {"a": 1},
}  # fmt: skip


def build_reader(schema: pa.Schema = SCHEMA, batches: int = 1) -> pa.RecordBatchReader:
    rows = pa.RecordBatch.from_pylist(ROWS, schema)
    return pa.RecordBatchReader.from_batches(schema, [rows] * batches)


def test_arrow_and_parquet_files_have_equal_rows_and_types(tmp_path: Path) -> None:
    expected = build_reader(batches=3).read_all()
    for format in (ResultFormat.ARROW, ResultFormat.PARQUET):
        path = tmp_path / f"rows.{format}"
        counts: list[int] = []
        assert write_result(path, format, build_reader(batches=3), counts.append) == 6
        assert counts == [2, 4, 6]
        found = pa.ipc.open_file(path).read_all() if format is ResultFormat.ARROW else pq.read_table(path)
        assert found.cast(SCHEMA) == expected


def test_json_lines_and_csv_files_have_all_values(tmp_path: Path) -> None:
    write_result(tmp_path / "rows.jsonl", ResultFormat.JSON_LINES, build_reader())
    write_result(tmp_path / "rows.csv", ResultFormat.CSV, build_reader())
    first, second = map(json.loads, (tmp_path / "rows.jsonl").read_text(encoding="utf-8").splitlines())
    assert first == EXPECTED_JSON
    assert second == dict.fromkeys(SCHEMA.names)
    with (tmp_path / "rows.csv").open(encoding="utf-8", newline="") as file:
        header, *rows = csv.reader(file)
    assert header == SCHEMA.names
    values = dict(zip(header, rows[0], strict=True))
    assert json.loads(values["items"]) == EXPECTED_JSON["items"]
    assert json.loads(values["tags"]) == EXPECTED_JSON["tags"]
    assert (values["name"], values["is_new"], values["price"]) == (ROWS[0]["name"], "true", "12.25")
    assert rows[1] == [""] * len(header)


@pytest.mark.parametrize("format", ResultFormat)
def test_result_without_rows_has_its_columns(tmp_path: Path, format: ResultFormat) -> None:
    path = tmp_path / "rows"
    assert write_result(path, format, pa.RecordBatchReader.from_batches(SCHEMA, [])) == 0
    if format is ResultFormat.PARQUET:
        assert pq.read_schema(path).names == SCHEMA.names
    elif format is ResultFormat.ARROW:
        assert pa.ipc.open_file(path).schema == SCHEMA
    else:
        assert path.read_text().split(",") == ([*SCHEMA.names[:-1], "tags\n"] if format is ResultFormat.CSV else [""])


@pytest.mark.parametrize("format", ResultFormat)
def test_failed_query_keeps_the_earlier_file(tmp_path: Path, format: ResultFormat) -> None:
    path = tmp_path / "rows"
    path.write_text("earlier")

    def fail_after_two() -> Iterator[pa.RecordBatch]:
        yield from build_reader(batches=2)
        assert path.read_text() == "earlier"
        raise RuntimeError("the query failed")

    with pytest.raises(RuntimeError, match="the query failed"):
        write_result(path, format, pa.RecordBatchReader.from_batches(SCHEMA, fail_after_two()))
    assert path.read_text() == "earlier"
    assert [each.name for each in tmp_path.iterdir()] == ["rows"], "the temporary file was not deleted"


def test_full_disk_is_an_error_that_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(ResultFileError, match=r"rows\.csv: No space left on device$"):
        write_result(tmp_path / "rows.csv", ResultFormat.CSV, build_reader())
    assert list(tmp_path.iterdir()) == []


def test_parquet_files_are_written_in_row_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(result_files, "ROW_GROUP_BYTES", 2 * pa.RecordBatch.from_pylist(ROWS, SCHEMA).nbytes)
    write_result(tmp_path / "rows.parquet", ResultFormat.PARQUET, build_reader(batches=5))
    metadata = pq.read_metadata(tmp_path / "rows.parquet")
    assert [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)] == [4, 4, 2]


def test_duplicate_columns_are_rejected_where_formats_cannot_store_them(tmp_path: Path) -> None:
    schema = pa.schema([("n", pa.int64()), ("n", pa.int64())])
    batch = pa.RecordBatch.from_arrays([pa.array([1]), pa.array([2])], schema=schema)
    for format in (ResultFormat.PARQUET, ResultFormat.JSON_LINES):
        with pytest.raises(ResultFileError, match="the result has several columns n: name them with AS"):
            write_result(tmp_path / "rows", format, pa.RecordBatchReader.from_batches(schema, [batch]))
    write_result(tmp_path / "rows", ResultFormat.CSV, pa.RecordBatchReader.from_batches(schema, [batch]))
    assert (tmp_path / "rows").read_text() == "n,n\n1,2\n"


def test_format_is_chosen_by_name_or_suffix() -> None:
    assert choose_format(Path("rows.CSV"), None) is ResultFormat.CSV
    assert choose_format(Path("rows.txt"), "parquet") is ResultFormat.PARQUET
    assert choose_format(Path("rows.csv"), "json") is ResultFormat.JSON_LINES
    with pytest.raises(InvalidInput, match=r"--output rows\.txt: no format has the suffix \.txt; use \.csv, \.jsonl"):
        choose_format(Path("rows.txt"), None)
    with pytest.raises(InvalidInput, match="--format table: not a format of files; use csv, jsonl, arrow, parquet"):
        choose_format(Path("rows.csv"), "table")


def test_path_that_cannot_be_written_is_rejected_before_the_query(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"is a directory$"):
        check_output_path(tmp_path)
    with pytest.raises(InvalidInput, match=r"the directory .*/missing does not exist$"):
        check_output_path(tmp_path / "missing" / "rows.csv")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["SELECT 1", "--format", "arrow"], "--format arrow: needs --output FILE"),
        (["SELECT 1; SELECT 2", "--output", "rows.csv"], "--output: expected exactly one statement"),
        (["SELECT 1", "--output", "missing/rows.csv"], "--output missing/rows.csv: the directory missing does not"),
    ],
)
def test_invalid_options_are_rejected(capsys: pytest.CaptureFixture[str], words: list[str], message: str) -> None:
    assert main(["pipeline", "sql", *words]) == 1
    assert capsys.readouterr().err.startswith(f"chronik: {message}")

"""Tests of column types, cell values and sample rows as text, with size limits."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest

from chronik.limits import SAMPLE_BYTES_MAX
from chronik.pipeline.tables.commit_plan import PartitionRange
from chronik.pipeline.tables.formatting import (
    CELL_CHARACTERS_MAX,
    ROWS_MAX,
    describe_columns,
    encode_sample,
    encode_sample_error,
    format_cell,
    read_sample_rows_as_json,
)
from chronik.pipeline.tables.layout import TableKind, initial_schema
from chronik.pipeline_journal import TableSample
from tests.pipeline.table_fixtures import open_test_table, write_task_output


def test_columns_have_spark_sql_type_names() -> None:
    assert [(each.name, each.type) for each in describe_columns(initial_schema(TableKind.RAW))] == [
        ("_partition", "int"),
        ("_offset", "bigint"),
        ("_timestamp", "timestamp"),
        ("_timestamp_ms", "bigint"),
        ("_key", "binary"),
        ("_headers", "array<struct<key: string, value: binary>>"),
        ("_value_crc32c", "bigint"),
        ("_date", "date"),
        ("_value", "binary"),
    ]


def test_nested_types_are_named() -> None:
    inner = pa.struct([pa.field("a", pa.list_(pa.float64())), pa.field("b", pa.map_(pa.string(), pa.decimal128(9, 2)))])
    fields = [pa.field("x", inner), pa.field("t", pa.timestamp("us")), pa.field("u", pa.uint8())]
    assert [each.type for each in describe_columns(pa.schema(fields))] == [
        "struct<a: array<double>, b: map<string, decimal(9,2)>>",
        "timestamp_ntz",
        "uint8",
    ]


def test_long_column_names_and_types_are_shortened() -> None:
    long = pa.struct([pa.field(f"field-{number:04d}", pa.int64()) for number in range(1000)])
    (column,) = describe_columns(pa.schema([pa.field("n" * 1000, long)]))
    assert column.name.startswith("n" * 256 + "…")
    assert len(column.type) < 1100


# Rows


def test_cell_values_are_formatted_as_text() -> None:
    moment = datetime(2024, 5, 1, 12, 0, 0, 250_000, tzinfo=UTC)
    shown = {
        "plain": format_cell("plain"),
        "text": format_cell("äö".encode()),
        "bytes": format_cell(b"\xff\x00\x01"),
        "none": format_cell(None),
        "true": format_cell(True),
        "number": format_cell(17),
        "float": format_cell(0.5),
        "time": format_cell(moment),
        "day": format_cell(date(2024, 5, 1)),
        "inside": format_cell([{"key": "k", "value": b"v", "n": None, "at": moment}]),
    }
    assert shown == {
        "plain": "plain",
        "text": "äö",
        "bytes": "0xff0001",
        "none": None,
        "true": "true",
        "number": "17",
        "float": "0.5",
        "time": "2024-05-01T12:00:00.250000+00:00",
        "day": "2024-05-01",
        "inside": '[{"key": "k", "value": "v", "n": null, "at": "2024-05-01T12:00:00.250000+00:00"}]',
    }


@pytest.mark.parametrize("text", ["x", "ä", "€", "𝄞"])
@pytest.mark.parametrize("before", ["", "a", "ab", "abc"])
def test_bytes_are_truncated_between_characters(text: str, before: str) -> None:
    whole = before + text * CELL_CHARACTERS_MAX
    whole = whole[:CELL_CHARACTERS_MAX]
    assert format_cell(whole) == format_cell(whole.encode()) == whole
    longer = before + text * 5000
    shown = format_cell(longer.encode())
    assert shown == format_cell(longer) == longer[: CELL_CHARACTERS_MAX - 1] + "…"


def test_bytes_that_are_not_utf8_are_shown_as_hex() -> None:
    assert format_cell(b"text \xff") == "0x7465787420ff"
    assert (
        format_cell(b"text" * 200 + b"\xff" + b"text" * 200)
        == "0x" + (b"text" * 64).hex()[: CELL_CHARACTERS_MAX - 3] + "…"
    )
    assert format_cell(b"\xe2\x82") == "0xe282"


@pytest.mark.parametrize("columns", [1, 3, 50, 100, 101, 500])
@pytest.mark.parametrize("character", ["x", "\x01", "𝄞"])
@pytest.mark.parametrize("length", [1, 300])
def test_encoded_rows_never_exceed_size_limit(columns: int, character: str, length: int) -> None:
    names = [f"{number:03d}{character * 250}"[: length + 3] for number in range(columns)]
    rows = [dict.fromkeys(names, character * length) for _ in range(ROWS_MAX)]
    told = encode_sample(names, rows)
    assert len(told) <= SAMPLE_BYTES_MAX
    found = msgspec.json.decode(told, type=TableSample)
    assert found.columns
    assert len(found.columns) + found.columns_left_out == columns
    assert len(found.rows) == ROWS_MAX
    assert all(len(row) == len(found.columns) for row in found.rows)
    if length == 1 and columns <= 50:
        assert found.columns_left_out == 0


def test_encoded_error_is_shortened() -> None:
    assert msgspec.json.decode(encode_sample_error("no\u2028table " * 5000), type=TableSample).rows == []
    assert len(encode_sample_error("no table " * 5000)) < 1100


def read_sample(directory: Path, topic: str = "orders", rows: int = ROWS_MAX) -> TableSample:
    return msgspec.json.decode(read_sample_rows_as_json(str(directory), topic, rows), type=TableSample)


def test_sample_shows_newest_file_with_all_columns(tmp_path: Path) -> None:
    directory = tmp_path / "orders"
    table = open_test_table(directory)
    for start in (0, 30):
        table.commit([write_task_output(directory, PartitionRange(0, start, start + 30))])
    found = read_sample(tmp_path)
    assert found.columns == [column.name for column in describe_columns(table.descriptor().schema)]
    by_name = [dict(zip(found.columns, row, strict=True)) for row in found.rows]
    assert [row["_offset"] for row in by_name] == [str(offset) for offset in range(30, 30 + ROWS_MAX)]
    assert by_name[0]["_value"] == "value 0/30"
    assert by_name[0]["_date"] == "2024-05-01", "partition columns are not in the files"
    assert [row["_headers"] for row in by_name[:2]] == [None, None]
    assert len(read_sample(tmp_path, rows=3).rows) == 3
    assert len(read_sample(tmp_path, rows=10_000).rows) == ROWS_MAX


def test_sample_collects_rows_from_several_files(tmp_path: Path) -> None:
    directory = tmp_path / "orders"
    table = open_test_table(directory)
    for start in range(7):
        table.commit([write_task_output(directory, PartitionRange(0, start, start + 1))])
    found = read_sample(tmp_path)
    at = found.columns.index("_offset")
    assert [row[at] for row in found.rows] == ["6", "5", "4", "3", "2"], "rows of the maximum number of files"


def test_sample_of_empty_table_has_columns_and_no_rows(tmp_path: Path) -> None:
    open_test_table(tmp_path / "orders")
    found = read_sample(tmp_path)
    assert found.error is None
    assert "_offset" in found.columns
    assert found.rows == []


def test_sample_rejects_tables_of_other_topics(tmp_path: Path) -> None:
    inside = tmp_path / "root"
    open_test_table(tmp_path / "secret")
    open_test_table(inside / "renamed")
    for topic, why in [
        ("never", "no table at"),
        ("renamed", "is not the table of topic renamed"),
        ("../secret", "is not the table of topic ../secret"),
    ]:
        found = read_sample(inside, topic)
        assert why in (found.error or ""), topic
        assert not found.rows


def test_sample_reports_deleted_file_in_one_line(tmp_path: Path) -> None:
    directory = tmp_path / "orders"
    open_test_table(directory).commit([write_task_output(directory, PartitionRange(0, 0, 3))])
    for path in directory.rglob("*.parquet"):
        path.unlink()
    error = read_sample(tmp_path).error
    assert error
    assert "\n" not in error

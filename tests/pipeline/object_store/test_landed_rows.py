"""Tests of reading a table's landed rows from S3 with Python tasks: columns, partition values and filters."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pytest

from chronik.pipeline.query.landed_rows import (
    LandedScan,
    build_filter,
    decode_scan,
    encode_scan,
    find_matching_files,
    plan_landed_tasks,
    read_landed_rows,
)
from chronik.pipeline.tables.catalog import open_or_create_table
from chronik.pipeline.tables.commit_plan import PartitionRange, TaskOutput
from chronik.pipeline.tables.table_files import LiveFile
from chronik.pipeline.tables.topic_table import TableSnapshot
from chronik.pipeline.tables.values.row_decoder import infer_statistics
from tests.pipeline.seaweedfs import S3Server
from tests.pipeline.table_fixtures import NOON_2024_05_01_MS, SPEC, build_batch

pytestmark = pytest.mark.xdist_group("spark")

MS_PER_DAY = 24 * 3600 * 1000


@dataclass(frozen=True)
class EqualTo:
    """A filter with the name and attributes of PySpark's, which is not imported here."""

    attribute: tuple[str, ...]
    value: Any


class GreaterThan(EqualTo): ...


class LessThanOrEqual(EqualTo): ...


class In(EqualTo): ...


class StringContains(EqualTo): ...


@dataclass(frozen=True)
class IsNull:
    attribute: tuple[str, ...]


def write_table(uri: str, options: dict[str, str]) -> TableSnapshot:
    """Create a table with three files: two days in partition 0, and a record without a valid timestamp."""
    table = open_or_create_table(uri, SPEC, options)
    for span, timestamp_ms in (
        (PartitionRange(0, 0, 10), NOON_2024_05_01_MS),
        (PartitionRange(0, 10, 20), NOON_2024_05_01_MS + MS_PER_DAY),
        (PartitionRange(1, 0, 1), -1),
    ):
        descriptor = table.descriptor()
        with descriptor.writer() as writer:
            times = [timestamp_ms] * (span.end - span.start)
            writer.write(build_batch(span, descriptor.schema, timestamps_ms=times))
        table.commit([TaskOutput((span,), writer.files)])
    return table.snapshot()


def read_rows(scan: LandedScan, where: Any = None) -> list[dict[str, Any]]:
    files = tuple(range(len(scan.table.files)))
    return [row for batch in read_landed_rows(scan, files, where) for row in batch.to_pylist()]


@pytest.fixture
def snapshot(s3_server: S3Server, s3_root: str) -> TableSnapshot:
    return write_table(f"{s3_root}/orders", s3_server.options)


def test_rows_have_requested_columns_and_partition_values(snapshot: TableSnapshot) -> None:
    files = snapshot.files
    text = encode_scan(LandedScan(files, ("_date", "_offset", "_partition")))
    scan = decode_scan(text, files.storage_options)
    rows = sorted((row["_partition"], row["_offset"], row["_date"]) for row in read_rows(scan))
    assert next(list(row) for row in read_rows(scan)) == ["_date", "_offset", "_partition"]
    expected: list[tuple[int, int, date | None]] = [
        (0, offset, date(2024, 5, 1 + offset // 10)) for offset in range(20)
    ]
    assert rows == [*expected, (1, 0, None)]


@pytest.mark.parametrize(
    ("filters", "files", "rows"),
    [
        ([EqualTo(("_date",), date(2024, 5, 2))], 1, 10),
        ([In(("_date",), [date(2024, 5, 1), date(2024, 5, 2)])], 2, 20),
        ([IsNull(("_date",))], 1, 1),
        ([EqualTo(("_partition",), 1)], 1, 1),
        ([GreaterThan(("_offset",), 14), LessThanOrEqual(("_offset",), 16)], 1, 2),
        ([GreaterThan(("_timestamp",), datetime(2024, 5, 2, tzinfo=UTC))], 3, 10),
        ([EqualTo(("_date",), date(2030, 1, 1))], 0, 0),
        ([], 3, 21),
    ],
)
def test_filters_skip_files_and_rows(snapshot: TableSnapshot, filters: list[Any], files: int, rows: int) -> None:
    where = build_filter(snapshot.schema, filters)
    assert len(find_matching_files(snapshot.files, where)) == files
    assert len(read_rows(LandedScan(snapshot.files, ("_offset",)), where)) == rows


def test_filters_that_arrow_evaluates_differently_are_ignored() -> None:
    schema = pa.schema([("price", pa.float64()), ("name", pa.string()), ("at", pa.timestamp("us", "UTC"))])
    for pushed in (
        EqualTo(("price",), float("nan")),
        GreaterThan(("price",), 1.0),
        StringContains(("name",), "x"),
        EqualTo(("name", "first"), "x"),
        EqualTo(("other",), 1),
        EqualTo(("name",), None),
        GreaterThan(("at",), datetime(2024, 5, 1)),
        In(("name",), ["x", None]),
    ):
        assert build_filter(schema, [pushed]) is None


def test_column_added_after_a_file_is_null(s3_server: S3Server, s3_root: str) -> None:
    write_table(f"{s3_root}/orders", s3_server.options)
    table = open_or_create_table(f"{s3_root}/orders", SPEC, s3_server.options)
    table.add_columns(infer_statistics([b'{"customer": "x"}']))
    rows = read_rows(LandedScan(table.snapshot().files, ("customer", "_offset")))
    assert {row["customer"] for row in rows} == {None}
    assert len(rows) == 21


def test_tasks_combine_small_files_and_separate_large_ones() -> None:
    files = [LiveFile(str(size), size, ()) for size in (10, 20, 90, 5, 200)]
    assert plan_landed_tasks(files, range(5), bytes_max=100) == ((0, 1), (2, 3), (4,))
    assert plan_landed_tasks(files, [], bytes_max=100) == ()

"""Tests of the Parquet writer: columns, directories, file sizes and statistics."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import crc32c
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from hypothesis import given, settings
from hypothesis import strategies as st

from chronik.errors import ConfigError
from chronik.pipeline.records.columns import HEADERS_TYPE, RecordColumns
from chronik.pipeline.table_maintenance.merges import vacuum_table
from chronik.pipeline.tables.catalog import open_or_create_table, open_table
from chronik.pipeline.tables.commit_plan import PartitionRange, TaskOutput
from chronik.pipeline.tables.layout import (
    MS_OF_YEAR_10000,
    TableKind,
    build_table_batch,
    compute_value_checksums,
    initial_schema,
    restore_timestamps_ms,
    system_columns,
)
from chronik.pipeline.tables.parquet import (
    NULL_PARTITION_DIRECTORY,
    PARTITION_DIRECTORY_BYTES_MAX,
    PartitionedParquetWriter,
    directories_contain_values,
)
from chronik.pipeline.tables.partitioning import TIME_PARTITIONINGS, Partitioning, parse_partitioning
from chronik.pipeline.tables.storage import TableStorage, build_dead_letters_uri, local_directory, table_uri
from chronik.pipeline.tables.table_files import scan
from chronik.pipeline.tables.topic_table import TableSpec, TopicTable
from chronik.pipeline.tables.values.table_schema import parse_schema_document, parse_schema_text
from tests.pipeline.table_fixtures import (
    NOON_2024_05_01_MS,
    SPEC,
    build_batch,
    build_record_columns,
    commit_rows,
    compact_table,
    expected_offsets,
    open_test_table,
    read_offsets,
    read_rows,
    write_task_output,
)

INT64 = st.integers(-(2**63), 2**63 - 1)
RAW = initial_schema(TableKind.RAW)
DAY_MS = 86_400_000


@settings(deadline=None)
@given(st.lists(INT64, min_size=1, max_size=20))
def test_any_timestamp_is_restored_exactly(timestamps_ms: list[int]) -> None:
    found = build_batch(PartitionRange(0, 0, len(timestamps_ms)), timestamps_ms=timestamps_ms)
    assert restore_timestamps_ms(pa.Table.from_batches([found])).to_pylist() == timestamps_ms


@pytest.mark.parametrize(
    ("timestamp_ms", "day"),
    [
        (0, date(1970, 1, 1)),
        (DAY_MS - 1, date(1970, 1, 1)),
        (DAY_MS, date(1970, 1, 2)),
        (MS_OF_YEAR_10000 - 1, date(9999, 12, 31)),
        (MS_OF_YEAR_10000, None),
        (-1, None),
        (-(2**63), None),
        (2**63 - 1, None),
    ],
)
def test_date_column_is_null_outside_1970_to_9999(timestamp_ms: int, day: date | None) -> None:
    found = build_batch(PartitionRange(0, 0, 1), timestamps_ms=[timestamp_ms]).to_pylist()[0]
    assert found["_date"] == day
    assert (found["_timestamp"] is None) == (day is None)
    assert found["_timestamp_ms"] == (timestamp_ms if day is None else None)


@settings(deadline=None)
@given(st.lists(st.none() | st.binary(max_size=20), max_size=20), st.integers(0, 5))
def test_value_checksums_match_values_and_are_null_for_null(values: list[bytes | None], start: int) -> None:
    for kind in (pa.binary(), pa.large_binary()):
        found = compute_value_checksums(pa.array(values, kind).slice(start)).to_pylist()
        assert found == [None if value is None else crc32c.crc32c(value) for value in values[start:]]


def test_keys_values_and_headers_are_written_unchanged(tmp_path: Path) -> None:
    headers = [[{"key": "k", "value": b"\xff"}, {"key": "k", "value": None}], None, []]
    records = RecordColumns(
        offset=pa.array([7, 8, 9], pa.int64()),
        timestamp_ms=pa.array([NOON_2024_05_01_MS] * 3, pa.int64()),
        timestamp_type=pa.array([0] * 3, pa.int32()),
        key=pa.array([None, b"", b"\x00\xff"], pa.binary()),
        value=pa.array([b"", None, b"\xfe"], pa.binary()),
        headers=pa.array(headers, HEADERS_TYPE),
    )
    committer = open_test_table(tmp_path)
    with PartitionedParquetWriter(TableStorage(str(tmp_path)), RAW, ("_date",)) as writer:
        writer.write(build_table_batch(system_columns(3, records), RAW))
    committer.commit([TaskOutput((PartitionRange(3, 7, 10),), writer.files)])
    found = read_rows(committer.snapshot()).sort_by("_offset").to_pylist()
    assert [row["_key"] for row in found] == [None, b"", b"\x00\xff"]
    assert [row["_value"] for row in found] == [b"", None, b"\xfe"]
    assert [row["_value_crc32c"] for row in found] == [0, None, crc32c.crc32c(b"\xfe")]
    assert [row["_headers"] for row in found] == headers
    assert {row["_date"] for row in found} == {date(2024, 5, 1)}
    assert {row["_timestamp"] for row in found} == {datetime(2024, 5, 1, 12, tzinfo=UTC)}


def test_each_date_has_its_partition_directory(tmp_path: Path) -> None:
    committer = open_test_table(tmp_path)
    span = PartitionRange(0, 0, 6)
    with PartitionedParquetWriter(TableStorage(str(tmp_path)), RAW, ("_date",)) as writer:
        writer.write(build_batch(span, timestamps_ms=[DAY_MS, 0, -1, DAY_MS + 1, 1, 2**62]))
    committer.commit([TaskOutput((span,), writer.files)])
    folders = {file.path.split("/")[0]: file.rows for file in writer.files}
    assert folders == {"_date=1970-01-01": 2, "_date=1970-01-02": 2, "_date=__HIVE_DEFAULT_PARTITION__": 2}
    snapshot = committer.snapshot()
    assert read_offsets(snapshot) == expected_offsets(span)
    found = sorted((row["_offset"], row["_date"]) for row in read_rows(snapshot).to_pylist())
    first, second = date(1970, 1, 1), date(1970, 1, 2)
    assert found == [(0, second), (1, first), (2, None), (3, second), (4, first), (5, None)]


@pytest.mark.parametrize("partitioning", TIME_PARTITIONINGS)
def test_every_partitioning_returns_same_rows(tmp_path: Path, partitioning: Partitioning) -> None:
    committer = open_test_table(tmp_path, TableSpec(SPEC.topic, SPEC.topic_id, partitioning=partitioning))
    span = PartitionRange(0, 0, 5)
    schema = initial_schema(TableKind.RAW, partitioning)
    with PartitionedParquetWriter(TableStorage(str(tmp_path)), schema, partitioning.columns) as writer:
        writer.write(build_batch(span, schema, timestamps_ms=[0, 3_600_000, -1, 0, DAY_MS + 23 * 3_600_000]))
    committer.commit([TaskOutput((span,), writer.files)])
    found = read_rows(committer.snapshot()).sort_by("_offset").to_pylist()
    assert [row["_date"] for row in found] == [date(1970, 1, 1)] * 2 + [None, date(1970, 1, 1), date(1970, 1, 2)]
    if partitioning.by_hour:
        assert [row["_hour"] for row in found] == [0, 1, None, 0, 23]
    assert len(writer.files) == {"date": 3, "hour": 4, "none": 1}[partitioning.value]


def test_file_statistics_contain_offset_bounds(tmp_path: Path) -> None:
    committer = open_test_table(tmp_path)
    unit = write_task_output(tmp_path, PartitionRange(1, 100, 110), PartitionRange(2, 5, 8))
    committer.commit([unit])
    stats = json.loads(unit.files[0].stats)
    assert stats["numRecords"] == 13
    assert (stats["minValues"]["_offset"], stats["maxValues"]["_offset"]) == (5, 109)
    assert (stats["minValues"]["_partition"], stats["maxValues"]["_partition"]) == (1, 2)
    assert stats["minValues"]["_timestamp"] == "2024-05-01T12:00:00.005000Z"
    assert stats["nullCount"]["_timestamp_ms"] == 13
    assert "_timestamp_ms" not in stats["minValues"]
    assert "_value_crc32c" not in stats["minValues"]
    actions = pa.table(DeltaTable(str(tmp_path)).get_add_actions()).to_pylist()
    assert (actions[0]["min"]["_offset"], actions[0]["max"]["_offset"]) == (5, 109)


def test_file_statistics_cover_all_row_groups(tmp_path: Path) -> None:
    with PartitionedParquetWriter(TableStorage(str(tmp_path)), RAW, ("_date",), buffered_bytes_max=1) as writer:
        for start in (20, 0, 10):
            writer.write(build_batch(PartitionRange(0, start, start + 5)))
    assert len(writer.files) == 1
    assert pq.read_metadata(tmp_path / writer.files[0].path).num_row_groups == 3
    stats = json.loads(writer.files[0].stats)
    assert (stats["numRecords"], stats["minValues"]["_offset"], stats["maxValues"]["_offset"]) == (15, 0, 24)


@pytest.fixture
def tokyo_time(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patched:
        patched.setenv("TZ", "Asia/Tokyo")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("tokyo_time")
@pytest.mark.parametrize("year", [1, 500, 1969, 2026, 9999])
def test_readers_find_files_by_any_time(tmp_path: Path, year: int) -> None:
    schema = parse_schema_text("at timestamp, local timestamp_ntz, day date")
    table = open_or_create_table(str(tmp_path), build_spec("none"), schema=schema)
    time_text = f"{year:04}-12-31T23:59:59.999999"
    value = f'{{"at":"{time_text}Z","local":"{time_text}","day":"{time_text[:10]}"}}'
    commit_rows(table, 0, build_record_columns([0], [value.encode()]))
    (file,) = (json.loads(line)["add"] for line in read_log(tmp_path) if "add" in json.loads(line))
    bounds = {"at": f"{time_text}Z", "local": time_text, "day": time_text[:10]}
    for bound in ("minValues", "maxValues"):
        found = json.loads(file["stats"])[bound]
        assert {name: found[name] for name in bounds} == bounds
    local = datetime(year, 12, 31, 23, 59, 59, 999_999)
    for name, exact in {"at": local.replace(tzinfo=UTC), "local": local, "day": local.date()}.items():
        for operator, rows in {"=": 1, ">=": 1, "<=": 1, ">": 0, "<": 0}.items():
            assert count_rows(tmp_path, (name, operator, exact)) == rows


def read_log(directory: Path) -> list[str]:
    entries = sorted((directory / "_delta_log").glob("*.json"))
    return [line for entry in entries for line in entry.read_text().splitlines()]


def count_rows(directory: Path, condition: tuple[str, str, Any]) -> int:
    return int(DeltaTable(str(directory)).to_pyarrow_table(filters=[condition]).num_rows)


def build_spec(partitioning: str) -> TableSpec:
    return TableSpec(SPEC.topic, SPEC.topic_id, TableKind.DECODED, parse_partitioning(partitioning))


LONG_NAME = "日" * 255
LONG_VALUES = ["日" * 29, "日" * 30, "x" * 5000, "/" * 100, NULL_PARTITION_DIRECTORY]


@pytest.mark.parametrize("sql_type", ["string", "json"])
def test_partition_values_of_any_length_are_written_read_and_compacted(tmp_path: Path, sql_type: str) -> None:
    schema = parse_schema_document({"columns": {"c": sql_type, LONG_NAME: "string"}})
    table = open_or_create_table(str(tmp_path), build_spec(f"c, {LONG_NAME}"), schema=schema)
    records = [json.dumps({"c": value}).encode() for value in (*LONG_VALUES, "DE")]
    for start in (0, 100):
        commit_rows(table, 0, build_record_columns(range(start, start + len(records)), records), end=start + 100)
    expected = sorted([*LONG_VALUES, "DE"] * 2)
    assert read_column(table, "c", sql_type) == expected
    assert {path.name for path in tmp_path.iterdir()} >= {f"c={'DE' if sql_type == 'string' else '%22DE%22'}"}
    names = {part for file in table.files().files for part in file.path.split("/")[:-1]}
    assert all(len(name.encode()) <= PARTITION_DIRECTORY_BYTES_MAX for name in names)
    assert compact_table(str(tmp_path)).files_removed == 2 * len(records)
    assert read_column(table, "c", sql_type) == expected
    assert len(vacuum_table(table, keep_hours=0, pipeline_stopped=True)) == 2 * len(records)
    assert read_column(table, "c", sql_type) == expected
    delta = DeltaTable(str(tmp_path)).to_pyarrow_table(columns=["c"])["c"].to_pylist()
    assert sorted(delta if sql_type == "string" else map(json.loads, delta)) == expected


def read_column(table: TopicTable, name: str, sql_type: str) -> list[Any]:
    found = [value for batch in scan(table.files(), [name]) for value in batch.column(0).to_pylist()]
    return sorted(found if sql_type == "string" else map(json.loads, found))


@pytest.mark.parametrize(
    ("values", "is_restored"),
    [
        (["DE", "a b", "x=y"], True),
        (["DE", "ü"], False),
        (["DE", "x" * 200], False),
        ([NULL_PARTITION_DIRECTORY], False),
    ],
)
def test_snapshot_has_partition_values_for_any_directory_name(
    tmp_path: Path, values: list[str], is_restored: bool
) -> None:
    table = open_or_create_table(str(tmp_path), build_spec("date, c"), schema=parse_schema_text("c string"))
    records = [json.dumps({"c": value}).encode() for value in values]
    commit_rows(table, 0, build_record_columns(range(len(records)), records))
    snapshot = table.snapshot()
    assert directories_contain_values(snapshot.file_uris, 2) == is_restored
    found = [file.partition_values[1] for file in snapshot.live_files]
    assert sorted(found) == sorted(values)
    assert directories_contain_values(["/lake/t/part-1.parquet"], 0)


def test_full_file_is_followed_by_another(tmp_path: Path) -> None:
    with PartitionedParquetWriter(
        TableStorage(str(tmp_path)), RAW, ("_date",), file_bytes=1, buffered_bytes_max=1
    ) as writer:
        for start in range(0, 15, 5):
            writer.write(build_batch(PartitionRange(0, start, start + 5)))
    assert [file.rows for file in writer.files] == [5, 5, 5]
    assert all((tmp_path / file.path).stat().st_size == file.size_bytes for file in writer.files)


def test_more_dates_than_open_files_are_all_written(tmp_path: Path) -> None:
    committer = open_test_table(tmp_path)
    span = PartitionRange(0, 0, 12)
    with PartitionedParquetWriter(TableStorage(str(tmp_path)), RAW, ("_date",), open_files_max=2) as writer:
        writer.write(build_batch(PartitionRange(0, 0, 6), timestamps_ms=[day * DAY_MS for day in range(6)]))
        writer.write(build_batch(PartitionRange(0, 6, 12), timestamps_ms=[day * DAY_MS for day in range(6)]))
    committer.commit([TaskOutput((span,), writer.files)])
    assert len(writer.files) > 6
    assert read_offsets(committer.snapshot()) == expected_offsets(span)


def test_failed_task_deletes_its_files(tmp_path: Path) -> None:
    writer = PartitionedParquetWriter(TableStorage(str(tmp_path)), RAW, ("_date",), file_bytes=1, buffered_bytes_max=1)

    def fail() -> None:
        with writer:
            writer.write(build_batch(PartitionRange(0, 0, 5)))
            assert list(tmp_path.glob("*/*.parquet"))
            writer.write(build_batch(PartitionRange(0, 5, 6)))
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert not list(tmp_path.glob("*/*.parquet"))
    assert writer.files == ()


def test_writer_without_rows_creates_no_file(tmp_path: Path) -> None:
    with PartitionedParquetWriter(TableStorage(str(tmp_path)), RAW, ("_date",)) as writer:
        writer.write(build_batch(PartitionRange(0, 0, 1)).slice(1))
    assert writer.files == ()


def test_dead_letter_table_name_is_not_a_valid_topic_name() -> None:
    assert table_uri("s3://lake/events/", "orders") == "s3://lake/events/orders"
    assert build_dead_letters_uri("/lake", "orders") == "/lake/orders~dead_letters"


def test_table_uri_without_scheme_is_local() -> None:
    assert local_directory("/lake/orders") == Path("/lake/orders")
    assert local_directory("file:///lake/a%20b") == Path("/lake/a b")
    assert local_directory("s3://lake/orders") is None


@pytest.mark.parametrize("name", ["100%", "a b", "%4", "\u00fc#?"])
def test_table_directory_may_have_unusual_names(tmp_path: Path, name: str) -> None:
    directory = tmp_path / name
    for uri in (str(directory), directory.as_uri()):
        committer = open_or_create_table(uri, SPEC)
        landed_from = committer.next_offsets().get(0, 0)
        committer.commit([write_task_output(directory, PartitionRange(0, landed_from, landed_from + 3))])
        assert sum(each.num_rows for each in scan(open_table(uri).files())) == landed_from + 3
    assert [each.name for each in tmp_path.iterdir()] == [name]


def test_percent_encoded_directory_name_is_rejected(tmp_path: Path) -> None:
    """Delta decodes directory names twice: for `%41` it would read the table `A`."""
    open_test_table(tmp_path / "A")
    (tmp_path / "link").symlink_to("%41")
    encoded = tmp_path / "%41"
    for uri in (str(encoded), encoded.as_uri(), str(encoded / "orders"), str(tmp_path / "link")):
        with pytest.raises(ConfigError, match=r"%41 in a directory name as 'A'"):
            open_or_create_table(uri, SPEC)
    with pytest.raises(ConfigError, match=r"write %3F for \?"):
        open_or_create_table(f"file://{tmp_path}/why?", SPEC)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["A", "link"], "no directory must be created"
    assert open_table(f"file://{tmp_path}/%41").next_offsets() == {}, "a URL is decoded once only"


def test_file_uri_writes_to_directory_that_delta_reads(tmp_path: Path) -> None:
    uri = tmp_path.as_uri()
    committer = open_or_create_table(uri, SPEC)
    with PartitionedParquetWriter(TableStorage(uri), RAW, ("_date",)) as writer:
        writer.write(build_batch(PartitionRange(0, 0, 3)))
    committer.commit([TaskOutput((PartitionRange(0, 0, 3),), writer.files)])
    assert pa.table(DeltaTable(uri).get_add_actions()).num_rows == 1
    assert all((tmp_path / file.path).exists() for file in writer.files)

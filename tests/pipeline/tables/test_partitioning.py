"""Tests of partitioning tables by columns and their transforms."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from chronik.errors import ConfigError
from chronik.pipeline.landing.settings import TableSettings
from chronik.pipeline.maintenance.rebuild import RebuildSource, rebuild_table
from chronik.pipeline.tables.catalog import open_or_create_table
from chronik.pipeline.tables.layout import TableKind
from chronik.pipeline.tables.murmur3 import compute_murmur3_hashes
from chronik.pipeline.tables.partitioning import (
    BUCKETS_MAX,
    TIME_PARTITIONINGS,
    PartitionField,
    Partitioning,
    PartitionTransform,
    parse_partitioning,
)
from chronik.pipeline.tables.table_files import scan
from chronik.pipeline.tables.topic_table import TableSpec
from chronik.pipeline.tables.values.table_schema import TableSchema, parse_schema_document, parse_schema_text
from chronik.testing import Broker
from tests.pipeline.landing.landed_topic import LandedTopic
from tests.pipeline.table_fixtures import JournalledTopic, compact_table


@pytest.mark.parametrize("partitioning", TIME_PARTITIONINGS)
def test_time_partitioning_is_restored_from_its_text(partitioning: Partitioning) -> None:
    assert parse_partitioning(partitioning.value) == partitioning


def test_partitioning_by_columns_and_transforms_is_parsed() -> None:
    text = "date, country, day(at), hour(at), bucket(16, user id)"
    found = parse_partitioning(text)
    assert found.value == text
    assert found.columns == ("_date", "country", "_at_day", "_at_hour", "_user id_bucket")
    assert found.fields[-1] == PartitionField(PartitionTransform.BUCKET, "user id", 16)
    assert parse_partitioning(" Hour ,country").value == "hour, country"


@pytest.mark.parametrize(
    "text", ["", "day()", "year(at)", "bucket(at)", "bucket(0, at)", f"bucket({BUCKETS_MAX + 1}, at)", "a, a", "a(b"]
)
def test_invalid_partitioning_is_rejected(text: str) -> None:
    with pytest.raises(ConfigError, match="invalid partitioning"):
        parse_partitioning(text)


def test_hashes_are_those_of_icebergs_specification() -> None:
    def hashes(values: list[object], data_type: pa.DataType) -> list[int]:
        return [int(value) for value in compute_murmur3_hashes(pa.array(values, data_type)).astype("int32")]

    assert hashes([34, -1], pa.int64())[0] == 2017239379
    assert hashes([34], pa.int32()) == [2017239379]
    assert hashes([date(2017, 11, 16)], pa.date32()) == [-653330422]
    assert hashes([datetime(2017, 11, 16, 22, 31, 8)], pa.timestamp("us")) == [-2047944441]
    assert hashes(["", "iceberg", "ü"], pa.string())[1] == 1210000089
    assert hashes([b"\x00\x01\x02\x03"], pa.binary()) == [-188683207]
    sliced = pa.array(["x", "iceberg"]).slice(1)
    assert int(compute_murmur3_hashes(sliced).astype("int32")[0]) == 1210000089


@pytest.mark.parametrize("zone", [None, "UTC"])
@pytest.mark.parametrize(
    ("value", "hour"),
    [
        (datetime(1969, 12, 31, 23, 59, 59, 999_999), "1969-12-31-23"),
        (datetime(1969, 12, 31, 22, 0, 0, 1), "1969-12-31-22"),
        (datetime(1970, 1, 1), "1970-01-01-00"),
        (datetime(500, 1, 1, 5, 59, 59, 500_000), "0500-01-01-05"),
        (datetime(2026, 11, 18, 9, 59, 59, 999_999), "2026-11-18-09"),
    ],
)
def test_hour_and_day_of_any_year_are_rounded_down(value: datetime, hour: str, zone: str | None) -> None:
    values = pa.array([value if zone is None else value.replace(tzinfo=UTC), None], pa.timestamp("us", zone))
    assert PartitionField(PartitionTransform.HOUR, "at").compute(values).to_pylist() == [hour, None]
    assert PartitionField(PartitionTransform.DAY, "at").compute(values).to_pylist() == [value.date(), None]


def build_declared(partitioning: str, **column: object) -> tuple[TableSpec, TableSchema]:
    spec = TableSpec("orders", "AAAAAAAAAAAAAAAAAAAAAQ", TableKind.DECODED, parse_partitioning(partitioning))
    return spec, parse_schema_document({"columns": {"c": column}})


def test_empty_default_of_partition_column_is_rejected_when_table_is_created(tmp_path: Path) -> None:
    spec, schema = build_declared("c", type="string", default="")
    with pytest.raises(ConfigError, match="column 'c': invalid default '': a partition column cannot have an empty"):
        open_or_create_table(str(tmp_path / "t"), spec, schema=schema)
    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize(
    ("partitioning", "column"),
    [
        ("c", {"type": "string", "default": "x"}),
        ("c", {"type": "json", "default": ""}),
        ("bucket(2, c)", {"type": "string", "default": ""}),
        ("none", {"type": "string", "default": ""}),
    ],
)
def test_other_default_of_source_column_is_accepted(
    tmp_path: Path, partitioning: str, column: dict[str, object]
) -> None:
    spec, schema = build_declared(partitioning, **column)
    table = open_or_create_table(str(tmp_path), spec, schema=schema)
    assert table.descriptor().row_decoder()


@pytest.fixture
def landed(chronik_broker: Broker, chronik_topic: str, tmp_path: Path) -> Iterator[LandedTopic]:
    with chronik_broker.cluster() as cluster:
        yield LandedTopic(JournalledTopic(chronik_broker, chronik_topic), cluster, tmp_path)


COUNTRIES = ["DE", "a b", "ü", "a%20b", "a/b", "x=y", "", "a:b"]
SCHEMA = parse_schema_text("id bigint, country string, at timestamp, vip boolean")
CLASHING_SCHEMA = parse_schema_text("id bigint, country string, at timestamp, _ID_bucket int")


def land(landed: LandedTopic, partitioning: str) -> None:
    settings = TableSettings(TableKind.DECODED, parse_partitioning(partitioning))
    for start in (0, 100):
        landed.send(
            *(
                b'{"id": %d, "country": "%s", "at": "2026-11-18T%02d:00:00Z", "vip": %s}'
                % (start + number, country.encode(), number, b"true" if number % 2 else b"false")
                for number, country in enumerate(COUNTRIES)
            ),
            b"{}",
        )
        landed.land(schema=SCHEMA, table_settings=settings)


@pytest.mark.parametrize(
    "partitioning", ["country", "date, vip, country", "id", "day(at), hour(at)", "bucket(3, country)"]
)
def test_rows_of_partitioned_table_are_read_compacted_and_rebuilt(landed: LandedTopic, partitioning: str) -> None:
    land(landed, partitioning)

    def read() -> list[tuple[object, ...]]:
        names = ["id", "country", "at", "vip", "_rescued"]
        rows = pa.Table.from_batches(list(scan(landed.open().files(), names)))
        return sorted((tuple(row[name] for name in names) for row in rows.to_pylist()), key=str)

    before = read()
    is_key = "country" in parse_partitioning(partitioning).columns
    assert {row[1] for row in before} == {*COUNTRIES, None} - ({""} if is_key else set())
    if is_key:
        assert [row[4] for row in before if row[4] is not None] == ['{"country":""}'] * 2, "Delta reads it as null"
    assert DeltaTable(landed.uri).metadata().partition_columns == list(parse_partitioning(partitioning).columns)
    compact_table(landed.uri)
    assert read() == before
    result = rebuild_table(landed.root, landed.topic.name, SCHEMA, source=RebuildSource.ROWS)
    assert (result.rows, read()) == (18, before)


def test_transforms_are_columns_of_the_table(landed: LandedTopic) -> None:
    land(landed, "day(at), hour(at), bucket(4, id)")
    rows = pa.Table.from_batches(list(scan(landed.open().files(), ["id", "_at_day", "_at_hour", "_id_bucket"])))
    by_id = {row["id"]: row for row in rows.to_pylist()}
    assert by_id[3]["_at_day"] == date(2026, 11, 18)
    assert by_id[3]["_at_hour"] == "2026-11-18-03"
    assert by_id[None]["_at_hour"] is None
    assert {row["_id_bucket"] for row in by_id.values()} == {None, 0, 1, 2, 3}


def test_partitioning_needs_a_declared_column_of_a_suitable_type(landed: LandedTopic) -> None:
    landed.send(b'{"id": 1}')
    for partitioning, message in [
        ("countries", "no column 'countries'; did you mean 'country'"),
        ("day(country)", "column country has type string"),
        ("hour(id)", "column id has type int64"),
        ("bucket(2, id)", "column '_id_bucket' exists already"),
    ]:
        settings = TableSettings(TableKind.DECODED, parse_partitioning(partitioning))
        with pytest.raises(ConfigError, match=message):
            landed.land(schema=CLASHING_SCHEMA, table_settings=settings)
    with pytest.raises(ConfigError, match="no column 'id'; declare it in a schema"):
        landed.land(table_settings=TableSettings(TableKind.DECODED, parse_partitioning("id")))

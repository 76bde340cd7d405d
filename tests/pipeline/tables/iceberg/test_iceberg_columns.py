"""Columns of Iceberg tables: hidden partitioning, evolution by field id, and types."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from chronik.errors import ConfigError
from chronik.pipeline.tables.catalog import open_or_create_table
from chronik.pipeline.tables.commit_plan import PartitionRange, SchemaChangedError, TaskOutput
from chronik.pipeline.tables.iceberg.table import IcebergTopicTable
from chronik.pipeline.tables.layout import TableKind, build_table_batch, system_columns
from chronik.pipeline.tables.partitioning import parse_partitioning
from chronik.pipeline.tables.table_files import scan
from chronik.pipeline.tables.topic_table import SchemaConflictError
from chronik.pipeline.tables.values.table_schema import (
    TableSchema,
    is_declared,
    parse_schema_document,
    parse_schema_text,
)
from tests.pipeline.table_fixtures import build_record_columns
from tests.pipeline.tables.iceberg.iceberg_tables import ICEBERG_SPEC, load_iceberg

DECODED = replace(ICEBERG_SPEC, kind=TableKind.DECODED)
AT = [f"2026-11-{day:02}T13:30:00Z" for day in (18, 19)]


def open_decoded_table(root: Path, partition_by: str = "date", schema: TableSchema | None = None) -> IcebergTopicTable:
    spec = replace(DECODED, partitioning=parse_partitioning(partition_by))
    table = open_or_create_table(f"{root}/orders", spec, schema=schema)
    assert isinstance(table, IcebergTopicTable)
    return table


def land(table: IcebergTopicTable, values: Sequence[Any], start: int = 0) -> pa.Schema:
    """Land values as JSON records, with new columns for their fields; return the schema of the written files."""
    records = build_record_columns(range(start, start + len(values)), [json.dumps(value).encode() for value in values])
    own = system_columns(0, records)
    decoded = table.descriptor().row_decoder().decode_rows(own)
    from chronik.pipeline.tables.values.row_decoder import collect_statistics

    table.add_columns(collect_statistics(decoded.unknown_fields))
    descriptor = table.descriptor()
    rows = descriptor.row_decoder().decode_rows(own)
    assert rows.dead_letters is None
    with descriptor.writer() as writer:
        writer.write(build_table_batch(dict(rows.rows), descriptor.schema))
    span = PartitionRange(0, start, start + len(values))
    table.commit([TaskOutput((span,), writer.files)], descriptor.schema)
    return descriptor.schema


def read_column(table: IcebergTopicTable, name: str) -> list[Any]:
    """Return a column by offset as Chronik reads it, after PyIceberg has read the same."""
    own = pa.Table.from_batches(list(scan(table.files(), ["_offset", name]))).sort_by("_offset")
    other = load_iceberg(table).scan(selected_fields=("_offset", name)).to_arrow().sort_by("_offset")
    assert own[name].to_pylist() == other[name].to_pylist()
    return list(own[name].to_pylist())


def test_new_fields_become_columns_that_older_files_do_not_have(tmp_path: Path) -> None:
    table = open_decoded_table(tmp_path)
    land(table, [{"id": 1}])
    land(table, [{"id": 2, "customer": {"name": "Ada", "tags": ["a", "b"]}}], 1)
    land(table, [{"id": 3, "customer": {"name": "Bob", "age": 7}}], 2)
    assert read_column(table, "id") == [1, 2, 3]
    customer = [None, {"name": "Ada", "tags": ["a", "b"], "age": None}, {"name": "Bob", "tags": None, "age": 7}]
    assert read_column(table, "customer") == customer


def test_field_ids_are_in_data_files_and_never_reused(tmp_path: Path) -> None:
    table = open_decoded_table(tmp_path)
    first = land(table, [{"id": 1, "nested": {"a": 1}}])
    second = land(table, [{"id": 1, "nested": {"a": 1, "b": 2}, "more": True}], 1)
    ids = {name: second.field(name).metadata[b"PARQUET:field_id"] for name in ("id", "nested", "more")}
    assert {name: first.field(name).metadata[b"PARQUET:field_id"] for name in ("id", "nested")}.items() <= ids.items()
    assert len(set(ids.values())) == 3
    metadata = load_iceberg(table).metadata
    assert metadata.last_column_id == metadata.schema().highest_field_id


def test_paths_and_settings_of_columns_are_restored(tmp_path: Path) -> None:
    document = {
        "columns": {
            "customer_id": {"type": "bigint", "path": "$.customer.id", "comment": "of the shop"},
            "at": {"type": "timestamp", "format": "epoch_ms"},
            "amount": {"type": "decimal(10,2)", "required": True},
        }
    }
    schema = parse_schema_document(document)
    table = open_decoded_table(tmp_path, schema=schema)
    assert table.descriptor().value_schema == schema
    land(table, [{"customer": {"id": 5}, "at": 1_000, "amount": 1.25}])
    assert read_column(table, "customer_id") == [5]
    assert str(read_column(table, "amount")[0]) == "1.25"
    assert load_iceberg(table).schema().find_field("customer_id").doc == "of the shop"


def test_declared_schema_gets_a_new_version(tmp_path: Path) -> None:
    table = open_decoded_table(tmp_path, schema=parse_schema_text("id bigint"))
    longer = parse_schema_text("id bigint, name string")
    assert table.set_schema(longer) == 2
    assert table.set_schema(longer) == 2
    assert table.descriptor().value_schema == longer
    assert sorted(table.schema_versions()) == [1, 2]
    with pytest.raises(SchemaConflictError, match="has type bigint"):
        table.set_schema(parse_schema_text("id string"))


def test_column_that_a_new_schema_omits_loses_its_settings(tmp_path: Path) -> None:
    table = open_decoded_table(tmp_path, schema=parse_schema_text("id bigint, name string"))
    table.set_schema(parse_schema_text("id bigint"))
    schema = table.descriptor().schema
    assert not is_declared(schema.field("name"))
    assert is_declared(schema.field("id"))


def test_files_written_before_a_column_was_dropped_are_rejected(tmp_path: Path) -> None:
    table = open_decoded_table(tmp_path)
    schema = land(table, [{"id": 1, "name": "a"}])
    with load_iceberg(table).update_schema(allow_incompatible_changes=True) as update:
        update.delete_column("name")
    with pytest.raises(SchemaChangedError):
        table.commit([TaskOutput((PartitionRange(0, 1, 2),))], schema)


@pytest.mark.parametrize("name", ["tinyint", "smallint"])
def test_type_that_iceberg_does_not_have_is_rejected(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match=r"column 'n': Iceberg tables have no type int\d+: declare another"):
        open_decoded_table(tmp_path, schema=parse_schema_text(f"n {name}"))


VALUES = [
    {"at": at, "id": number, "country": country}
    for number, (at, country) in enumerate(zip(AT, ("DE", "FR"), strict=True))
]
SCHEMA = "at timestamp, id bigint, country string"


@pytest.mark.parametrize(
    ("partition_by", "hidden", "condition"),
    [
        ("date", ["_date"], "_timestamp < '2024-05-01T12:00:00.001+00:00'"),
        ("hour", ["_date", "_hour"], "_timestamp < '2024-05-01T12:00:00.001+00:00'"),
        ("day(at)", ["_at_day"], "at < '2026-11-19T00:00:00+00:00'"),
        ("hour(at)", ["_at_hour"], "at < '2026-11-19T00:00:00+00:00'"),
        ("bucket(16, id)", ["_id_bucket"], "id = 0"),
        ("bucket(16, country), day(at)", ["_country_bucket", "_at_day"], "country = 'DE'"),
        ("country", [], "country = 'DE'"),
    ],
)
def test_partitions_are_hidden_and_skip_files(
    tmp_path: Path, partition_by: str, hidden: list[str], condition: str
) -> None:
    table = open_decoded_table(tmp_path, partition_by, parse_schema_text(SCHEMA))
    land(table, VALUES)
    assert read_column(table, "country") == ["DE", "FR"]
    plain = load_iceberg(table)
    assert plain.scan(row_filter=condition).to_arrow()["id"].to_pylist() == [0]
    assert not set(hidden) & set(plain.schema().column_names)
    assert set(hidden) <= set(table.descriptor().schema.names)
    if partition_by not in ("date", "hour"):  # the records have the same timestamp
        assert len(list(plain.scan().plan_files())) == 2
        assert len(list(plain.scan(row_filter=condition).plan_files())) == 1
    rows = pa.Table.from_batches(list(scan(table.files(), ["id", *hidden])))
    assert rows.num_rows == 2
    assert all(rows[name].null_count == 0 for name in hidden)


TRANSFORMED = "hour, country, day(at), hour(at), bucket(16, id)"


def test_partition_values_agree_with_the_transforms_of_iceberg(tmp_path: Path) -> None:
    table = open_decoded_table(tmp_path, TRANSFORMED, parse_schema_text(SCHEMA))
    land(table, VALUES)
    metadata = load_iceberg(table).metadata
    schema, spec = metadata.schema(), metadata.spec()
    rows = pa.Table.from_batches(list(scan(table.files()))).sort_by("id").to_pylist()
    expected = []
    for row in rows:
        values = []
        for field in spec.fields:
            source = schema.find_field(field.source_id)
            value = row[source.name]
            stored = int(value.timestamp() * 1_000_000) if isinstance(value, datetime) else value
            values.append(field.transform.transform(source.field_type)(stored))
        expected.append(values)
    found = {
        tuple(task.file.partition[index] for index in range(len(spec.fields)))
        for task in load_iceberg(table).scan().plan_files()
    }
    assert found == set(map(tuple, expected))
    assert len(found) == 2

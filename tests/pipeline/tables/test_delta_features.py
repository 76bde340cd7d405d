"""Tests of tables with reader features of the Delta protocol: which of them Chronik reads, and which it rejects."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from chronik.pipeline.maintenance.rebuild import RebuildSource, rebuild_table
from chronik.pipeline.tables.catalog import open_or_create_table
from chronik.pipeline.tables.layout import TableKind
from chronik.pipeline.tables.partitioning import Partitioning
from chronik.pipeline.tables.storage import table_uri
from chronik.pipeline.tables.table_files import scan
from chronik.pipeline.tables.topic_table import TableMismatchError, TableSpec, TopicTable
from chronik.pipeline.tables.values.record_rebuild import encode_json_values
from chronik.pipeline.tables.values.table_schema import TableSchema, parse_schema_text
from tests.pipeline.table_fixtures import TOPIC, TOPIC_ID, build_record_columns, commit_rows, compact_table

SPEC = TableSpec(TOPIC, TOPIC_ID, TableKind.DECODED, Partitioning.NONE)


def create_table(root: Path, schema: TableSchema) -> TopicTable:
    return open_or_create_table(table_uri(str(root), TOPIC), SPEC, schema=schema)


def read_table(table: TopicTable) -> pa.Table:
    files = table.files()
    return pa.Table.from_batches(list(scan(files)), files.schema).sort_by("_offset")


def edit_log(table: TopicTable, name: str, edit: Callable[[dict[str, Any]], object]) -> None:
    """Edit an action of the table's first log entry, as if another tool had created the table."""
    entry = Path(table.uri) / "_delta_log" / f"{0:020}.json"
    actions = [json.loads(line) for line in entry.read_text().splitlines()]
    for action in actions:
        if name in action:
            edit(action[name])
    entry.write_text("\n".join(map(json.dumps, actions)) + "\n")


def add_feature(table: TopicTable, feature: str) -> None:
    def add(protocol: dict[str, Any]) -> None:
        protocol["readerFeatures"].append(feature)
        protocol["writerFeatures"].append(feature)

    edit_log(table, "protocol", add)


def map_columns(metadata: dict[str, Any], mode: str) -> None:
    metadata["configuration"]["delta.columnMapping.mode"] = mode
    schema = json.loads(metadata["schemaString"])
    fields = [
        *schema["fields"],
        *(next(each for each in schema["fields"] if each["name"] == "_headers"))["type"]["elementType"]["fields"],
    ]
    for number, field in enumerate(fields):
        names = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": f"col-{number}"}
        field["metadata"] = names
    metadata["schemaString"] = json.dumps(schema)


def read_protocol(table: TopicTable) -> set[str]:
    return set(DeltaTable(table.uri).protocol().reader_features or ())


@pytest.mark.parametrize(
    ("sql_type", "texts", "values"),
    [
        (
            "timestamp_ntz",
            ['"0500-01-01T00:00:00"', '"2026-11-18T09:00:00.5"'],
            [datetime(500, 1, 1), datetime(2026, 11, 18, 9, 0, 0, 500_000)],
        ),
        (
            "struct<a: array<timestamp_ntz>>",
            ['{"a":["2026-11-18T09:00:00"]}', '{"a":[]}'],
            [{"a": [datetime(2026, 11, 18, 9)]}, {"a": []}],
        ),
        (
            "map<string, timestamp_ntz>",
            ['{"a":"2026-11-18T09:00:00"}', "{}"],
            [[("a", datetime(2026, 11, 18, 9))], []],
        ),
    ],
)
@pytest.mark.parametrize("is_added_later", [False, True])
def test_timestamps_without_zone_are_landed_compacted_and_restored(
    tmp_path: Path, sql_type: str, texts: list[str], values: list[object], is_added_later: bool
) -> None:
    schema = parse_schema_text(f"id bigint, at {sql_type}")
    table = create_table(tmp_path, parse_schema_text("id bigint") if is_added_later else schema)
    table.set_schema(schema)
    records = [b'{"id":%d,"at":%b}' % (number, text.encode()) for number, text in enumerate(texts)]
    for offset, record in enumerate(records):
        commit_rows(table, 0, build_record_columns([offset], [record]))
    assert "timestampNtz" in read_protocol(table)
    assert read_table(table)["at"].to_pylist() == values
    assert compact_table(table.uri).files_removed == 2
    assert read_table(table)["at"].to_pylist() == values
    restored = encode_json_values(read_table(table), table.descriptor().value_schema).to_pylist()
    assert [json.loads(value) for value in restored] == [json.loads(record) for record in records]
    assert rebuild_table(str(tmp_path), TOPIC, schema, source=RebuildSource.ROWS).rows == 2
    assert read_table(table)["at"].to_pylist() == values


@pytest.mark.parametrize("feature", ["deletionVectors", "columnMapping", "typeWidening"])
def test_feature_that_changes_rows_or_files_is_rejected(tmp_path: Path, feature: str) -> None:
    table = create_table(tmp_path, parse_schema_text("id bigint, at timestamp_ntz"))
    add_feature(table, feature)
    with pytest.raises(TableMismatchError, match=f"unsupported Delta features: {feature}"):
        table.files()


def test_variant_column_of_another_tool_is_rejected(tmp_path: Path) -> None:
    table = create_table(tmp_path, parse_schema_text("id bigint, at timestamp_ntz, items array<string>"))
    add_feature(table, "variantType")
    assert table.files().files == (), "the feature alone does not change how files are read"
    edit_log(
        table,
        "metaData",
        lambda metadata: metadata.update(
            schemaString=metadata["schemaString"].replace('"elementType":"string"', '"elementType":"variant"')
        ),
    )
    with pytest.raises(TableMismatchError, match="unsupported Delta features: variantType"):
        table.files()


@pytest.mark.parametrize("mode", ["name", "id"])
def test_column_mapping_without_feature_list_is_rejected(tmp_path: Path, mode: str) -> None:
    table = create_table(tmp_path, parse_schema_text("id bigint"))
    edit_log(table, "protocol", lambda protocol: protocol.update(minReaderVersion=2, minWriterVersion=5))
    assert table.files().files == ()
    edit_log(table, "metaData", lambda metadata: map_columns(metadata, mode))
    with pytest.raises(TableMismatchError, match="unsupported Delta features: columnMapping"):
        table.files()

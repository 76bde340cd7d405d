"""Tests of a table's name, comment and properties: how they follow the declared schema into Delta's metadata."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from chronik.pipeline.maintenance.schemas import compare_schemas
from chronik.pipeline.tables.catalog import open_or_create_table, open_table
from chronik.pipeline.tables.delta import table as delta
from chronik.pipeline.tables.layout import TableKind
from chronik.pipeline.tables.topic_table import TableSpec, TopicTable
from chronik.pipeline.tables.values.table_schema import INFERRED, TableSchema, parse_schema_document

SPEC = TableSpec("eu.orders", "AAAAAAAAAAAAAAAAAAAAAQ", TableKind.DECODED)


def declare(**document: Any) -> TableSchema:
    return parse_schema_document({"columns": {"id": {"type": "bigint", "comment": "number"}}, **document})


def create_table(directory: Path, schema: TableSchema | None) -> TopicTable:
    return open_or_create_table(str(directory), SPEC, schema=schema)


def read_metadata(directory: Path) -> tuple[str | None, str | None]:
    """Return the table's name and description as other Delta readers see them."""
    metadata = DeltaTable(directory).metadata()
    return metadata.name, metadata.description or None


def test_new_table_has_name_comment_and_properties_of_its_schema(tmp_path: Path) -> None:
    create_table(tmp_path, declare(name="orders", comment="Orders", properties={"owner": "sales"}))
    assert read_metadata(tmp_path) == ("orders", "Orders")
    assert DeltaTable(tmp_path).metadata().configuration["owner"] == "sales"
    (column,) = [field for field in DeltaTable(tmp_path).schema().fields if field.name == "id"]
    assert column.metadata["comment"] == "number"


@pytest.mark.parametrize("schema", [None, declare()])
def test_new_table_is_named_after_its_topic_by_default(tmp_path: Path, schema: TableSchema | None) -> None:
    create_table(tmp_path, schema)
    assert read_metadata(tmp_path) == ("eu.orders", None)


def test_another_schema_changes_name_and_comment(tmp_path: Path) -> None:
    table = create_table(tmp_path, declare(comment="Orders"))
    table.set_schema(declare(name="orders", comment="All orders", properties={"owner": "sales"}))
    assert read_metadata(tmp_path) == ("orders", "All orders")
    assert DeltaTable(tmp_path).metadata().configuration["owner"] == "sales"
    table.set_schema(declare())
    assert read_metadata(tmp_path) == ("eu.orders", None)


def test_setting_the_same_schema_again_does_not_commit(tmp_path: Path) -> None:
    schema = declare(name="orders", comment="Orders")
    table = create_table(tmp_path, schema)
    assert table.set_schema(schema) == 1
    assert DeltaTable(tmp_path).version() == 0


def test_schema_set_after_a_crash_completes_the_metadata(tmp_path: Path) -> None:
    schema = declare(comment="Orders")
    table = create_table(tmp_path, schema)
    DeltaTable(tmp_path).alter.set_table_description("half done")
    assert table.set_schema(schema) == 1
    assert read_metadata(tmp_path) == ("eu.orders", "Orders")


def test_comment_of_another_tool_stays_until_the_schema_has_one(tmp_path: Path) -> None:
    table = create_table(tmp_path, declare())
    DeltaTable(tmp_path).alter.set_table_description("from a catalog")
    table.set_schema(declare(unknown_fields="drop"))
    assert read_metadata(tmp_path) == ("eu.orders", "from a catalog")
    table.set_schema(declare(comment="Orders"))
    assert read_metadata(tmp_path) == ("eu.orders", "Orders")


def test_rebuild_without_schema_resets_name_and_comment(tmp_path: Path) -> None:
    table = create_table(tmp_path, declare(name="orders", comment="Orders"))
    target = open_table(str(tmp_path)).descriptor()
    target = type(target)(target.uri, target.schema, target.partition_by, target.storage_options, INFERRED)
    table.replace_rows(table.snapshot(), [], target)
    assert read_metadata(tmp_path) == ("eu.orders", None)


def test_every_commit_of_a_schema_change_is_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = create_table(tmp_path, declare())
    synced: set[int] = set()
    monkeypatch.setattr(delta, "sync_log_entry", lambda uri, version: synced.add(version))
    table.set_schema(declare(name="orders", comment="Orders", unknown_fields="drop"))
    assert synced >= set(range(1, DeltaTable(tmp_path).version() + 1))


def test_comparison_of_schemas_lists_names_and_properties() -> None:
    before, after = declare(properties={"owner": "sales"}), declare(name="orders", properties={"owner": "it"})
    found = [(each.subject, each.before, each.after) for each in compare_schemas(before, after)]
    assert found == [("name", "None", "orders"), ("property owner", "sales", "it")]

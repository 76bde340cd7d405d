"""Names that Spark and Iceberg reserve are not in the schemas of Iceberg tables, except those of earlier versions."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow.dataset as ds
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.types import IntegerType

from chronik.pipeline.maintenance.compaction import compact_tables
from chronik.pipeline.maintenance.rebuild import rebuild_table
from chronik.pipeline.maintenance.replay_tasks import list_row_groups
from chronik.pipeline.query.landed_rows import LandedScan, read_landed_rows
from chronik.pipeline.tables.as_of import AsOfVersion
from chronik.pipeline.tables.catalog import LOCAL_CATALOG, open_table
from chronik.pipeline.tables.commit_plan import PartitionRange
from chronik.pipeline.tables.iceberg.catalogs import NAMESPACE
from chronik.pipeline.tables.iceberg.foreign_changes import FIELD_IDS_PROPERTY
from chronik.pipeline.tables.iceberg.table import IcebergTopicTable
from chronik.pipeline.tables.layout import ENGINE_NAMES, ICEBERG_PARTITION, PARTITION, TableKind
from chronik.pipeline.tables.partitioning import Partitioning
from chronik.pipeline.tables.table_files import scan
from tests.pipeline.tables.iceberg.iceberg_tables import (
    ICEBERG_SPEC,
    append,
    load_iceberg,
    open_iceberg_table,
    read_positions,
)
from tests.pipeline.tables.iceberg.test_iceberg_columns import land, open_decoded_table, read_column

UNPARTITIONED = replace(ICEBERG_SPEC, partitioning=Partitioning.NONE)
FIRST, SECOND, THIRD = PartitionRange(3, 0, 10), PartitionRange(3, 10, 15), PartitionRange(4, 0, 7)


def list_names(table: IcebergTopicTable) -> list[str]:
    return [field.name for field in load_iceberg(table).schema().fields]


def list_expected(*spans: PartitionRange) -> list[tuple[int, int]]:
    return sorted((span.partition, offset) for span in spans for offset in range(span.start, span.end))


def restore_old_names(table: IcebergTopicTable) -> None:
    """Turn a table into one of an earlier version."""
    with load_iceberg(table).update_schema() as update:
        update.rename_column(ICEBERG_PARTITION, PARTITION)


def rewrite_files(table: IcebergTopicTable) -> None:
    """Rewrite all data files as another tool does, with the column names of the Iceberg schema."""
    root, _, name = table.uri.rpartition("/")
    plain = load_catalog("chronik", uri=f"sqlite:///{root}/{LOCAL_CATALOG}").load_table(f"{NAMESPACE}.{name}")
    plain.overwrite(plain.scan().to_arrow())


@pytest.mark.parametrize("kind", list(TableKind))
def test_new_table_has_no_reserved_names(tmp_path: Path, kind: TableKind) -> None:
    if kind is TableKind.DECODED:
        table = open_decoded_table(tmp_path)
        land(table, [{"id": 1, **dict.fromkeys(sorted(ENGINE_NAMES), 5)}])
        assert read_column(table, f"{ICEBERG_PARTITION}_2") == [5]
    else:
        table = open_iceberg_table(tmp_path, replace(ICEBERG_SPEC, kind=kind))
    assert set(list_names(table)) & {PARTITION, *ENGINE_NAMES} == {ICEBERG_PARTITION}


def test_pyiceberg_reads_partitions_under_the_new_name(tmp_path: Path) -> None:
    table = open_iceberg_table(tmp_path)
    append(table, FIRST, THIRD)
    found = load_iceberg(table).scan(row_filter=f"{ICEBERG_PARTITION} = 4").to_arrow()
    assert found[ICEBERG_PARTITION].to_pylist() == [4] * 7
    assert {file.partitions for file in table.files().files} == {(3, 4)}


# Tables of earlier versions


def test_column_of_an_old_table_is_renamed_when_landing_starts(tmp_path: Path) -> None:
    table = open_iceberg_table(tmp_path)
    restore_old_names(table)
    old = open_table(f"{tmp_path}/orders")
    append(old, FIRST)
    version = old.snapshot().version
    assert list_names(table)[0] == PARTITION
    table = open_iceberg_table(tmp_path)
    assert list_names(table)[0] == ICEBERG_PARTITION
    append(old, SECOND)  # a driver that has opened the table before
    append(table, THIRD)
    assert read_positions(table.files()) == list_expected(FIRST, SECOND, THIRD)
    assert read_positions(table.snapshot(AsOfVersion(version)).files) == list_expected(FIRST)
    assert set(load_iceberg(table).scan().to_arrow()[ICEBERG_PARTITION].to_pylist()) == {3, 4}
    assert FIELD_IDS_PROPERTY in load_iceberg(table).properties


def test_new_column_of_an_old_table_renames_the_partition_too(tmp_path: Path) -> None:
    table = open_decoded_table(tmp_path)
    restore_old_names(table)
    land(table, [{"id": 1}])
    assert list_names(table)[0] == ICEBERG_PARTITION
    assert read_column(table, "id") == [1]


def test_rebuild_does_not_restore_an_old_name(tmp_path: Path) -> None:
    table = open_decoded_table(tmp_path)
    restore_old_names(table)
    table = open_decoded_table(tmp_path)
    land(table, [{"id": 1}])
    with load_iceberg(table).update_schema() as update:
        update.delete_column("id")
    rebuild_table(str(tmp_path), "orders")
    assert list_names(table)[0] == ICEBERG_PARTITION
    land(table, [{"id": 2}], 1)
    assert read_column(table, "id") == [None, 2]


def test_field_with_the_new_name_keeps_the_old_name_of_the_partition(tmp_path: Path) -> None:
    table = open_decoded_table(tmp_path)
    restore_old_names(table)
    with load_iceberg(table).update_schema() as update:
        update.add_column(ICEBERG_PARTITION, IntegerType())
    table = open_decoded_table(tmp_path)
    land(table, [{"id": 1}])
    assert {PARTITION, ICEBERG_PARTITION} <= set(list_names(table))
    assert read_column(table, PARTITION) == [0]
    assert read_column(table, ICEBERG_PARTITION) == [None]


# Files of other tools


def test_rows_that_another_tool_has_rewritten_keep_their_partitions(tmp_path: Path) -> None:
    table = open_iceberg_table(tmp_path, UNPARTITIONED)
    append(table, FIRST, THIRD)
    rewrite_files(table)
    assert any(file.may_have_iceberg_names for file in table.files().files)
    append(table, SECOND)
    files, wanted = table.files(), list_expected(FIRST, SECOND, THIRD)
    assert read_positions(files) == wanted
    is_third = ds.field(PARTITION) == 4
    assert sum(len(batch) for batch in scan(files, ["_offset"], is_third)) == 7
    landed = LandedScan(files, (PARTITION, "_offset"))
    batches = list(read_landed_rows(landed, tuple(range(len(files.files)))))
    assert sorted((row[PARTITION], row["_offset"]) for batch in batches for row in batch.to_pylist()) == wanted
    assert list_row_groups(files, 4)
    assert not list_row_groups(files, 5)


def test_compaction_includes_files_that_another_tool_has_rewritten(tmp_path: Path) -> None:
    table = open_iceberg_table(tmp_path, UNPARTITIONED)
    append(table, FIRST, THIRD)
    rewrite_files(table)
    append(table, SECOND)
    compact_tables(str(tmp_path), ["orders"])
    (file,) = table.files().files
    assert not file.may_have_iceberg_names
    assert read_positions(table.files()) == list_expected(FIRST, SECOND, THIRD)


def test_files_that_another_tool_wrote_under_the_old_name_are_read(tmp_path: Path) -> None:
    table = open_iceberg_table(tmp_path, UNPARTITIONED)
    restore_old_names(table)
    append(table, FIRST)
    rewrite_files(table)
    table = open_iceberg_table(tmp_path, UNPARTITIONED)
    assert all(file.may_have_iceberg_names for file in table.files().files)
    assert read_positions(table.files()) == list_expected(FIRST)

"""Compaction, expiry, manifest merging and vacuum of Iceberg tables, which keep rows and offsets."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from chronik.pipeline.maintenance.compaction import compact_tables
from chronik.pipeline.table_maintenance.merges import (
    commit_merged_file,
    merge_table_files,
    plan_merges,
    vacuum_table,
)
from chronik.pipeline.tables.commit_plan import PartitionRange
from chronik.pipeline.tables.iceberg import snapshot_writer
from chronik.pipeline.tables.iceberg.table import IcebergTopicTable
from chronik.pipeline.tables.table_statistics import MaintenanceKind, MaintenanceRecord
from tests.pipeline.table_fixtures import expected_offsets
from tests.pipeline.tables.iceberg.iceberg_tables import (
    append,
    load_iceberg,
    open_iceberg_table,
    read_positions,
    write_output,
)

SPANS = [PartitionRange(0, start, start + 5) for start in range(0, 20, 5)]


def land(root: Path) -> IcebergTopicTable:
    table = open_iceberg_table(root)
    for span in SPANS:
        append(table, span)
    return table


def age_files(root: Path, hours: int) -> None:
    """Make all files of the table look older."""
    before = time.time() - hours * 3600
    for path in (root / "orders").rglob("*"):
        if path.is_file():
            os.utime(path, (before, before))


def test_compaction_keeps_rows_offsets_and_earlier_snapshots(tmp_path: Path) -> None:
    table = land(tmp_path)
    before = table.snapshot().version
    (compacted,) = compact_tables(str(tmp_path), ["orders"])
    assert (compacted.compacted.files_removed, compacted.compacted.files_added) == (4, 1)
    snapshot = table.snapshot()
    assert len(snapshot.file_uris) == 1
    assert read_positions(snapshot.files) == expected_offsets(*SPANS)
    assert snapshot.next_offsets == {0: 20}
    current = load_iceberg(table).metadata.current_snapshot()
    assert current.summary.operation.value == "replace"
    assert json.loads(current.summary["chronik.next-offsets"]) == {"0": 20}
    assert current.parent_snapshot_id == before
    assert sorted(load_iceberg(table).scan().to_arrow()["_offset"].to_pylist()) == list(range(20))


def test_compaction_of_replaced_files_is_refused(tmp_path: Path) -> None:
    table = land(tmp_path)
    (merge,) = plan_merges(table)
    first, second = merge_table_files(merge), merge_table_files(merge)
    assert commit_merged_file(table, merge, first).files_added == 1
    assert commit_merged_file(table, merge, second).files_added == 0
    assert read_positions(table.files()) == expected_offsets(*SPANS)
    assert not table.storage.get_modification_times([file.path for file in second])


def test_landing_between_a_merge_and_its_commit_keeps_both(tmp_path: Path) -> None:
    table = land(tmp_path)
    (merge,) = plan_merges(table)
    written = merge_table_files(merge)
    after = PartitionRange(0, 20, 22)
    append(table, after)
    assert commit_merged_file(table, merge, written).files_added == 1
    assert read_positions(table.files()) == expected_offsets(*SPANS, after)
    assert table.next_offsets() == {0: 22}


def test_manifests_are_merged(tmp_path: Path) -> None:
    table = land(tmp_path)
    assert table.statistics().metadata_files == 4
    table.compact_metadata()
    assert table.statistics().metadata_files == 1
    assert read_positions(table.files()) == expected_offsets(*SPANS)
    append(table, PartitionRange(0, 20, 21))
    assert table.statistics().metadata_files == 2


def test_commit_merges_many_manifests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot_writer, "MANIFESTS_MAX", 3)
    table = land(tmp_path)
    assert table.statistics().metadata_files < 4
    assert read_positions(table.files()) == expected_offsets(*SPANS)
    assert sorted(load_iceberg(table).scan().to_arrow()["_offset"].to_pylist()) == list(range(20))


def test_expiry_keeps_the_current_snapshot_and_its_offsets(tmp_path: Path) -> None:
    table = land(tmp_path)
    assert table.expire_versions(1) == 0
    time_of_last = load_iceberg(table).metadata.current_snapshot().timestamp_ms
    assert table._expire(time_of_last + 1) == 3
    assert table.statistics().versions_kept == 1
    assert table.next_offsets() == {0: 20}
    assert read_positions(table.files()) == expected_offsets(*SPANS)


def test_vacuum_deletes_replaced_files_and_metadata_of_expired_snapshots(tmp_path: Path) -> None:
    table = land(tmp_path)
    replaced = [file.path for file in table.files().files]
    compact_tables(str(tmp_path), ["orders"])
    assert vacuum_table(table, keep_hours=1) == []
    listed = vacuum_table(table, keep_hours=0, pipeline_stopped=True, dry_run=True)
    assert {f"data/{path}" for path in replaced} <= set(listed)
    assert table.storage.get_modification_times(replaced)
    removed = vacuum_table(table, keep_hours=0, pipeline_stopped=True)
    assert {f"data/{path}" for path in replaced} <= set(removed)
    assert not table.storage.get_modification_times(replaced)
    assert read_positions(table.files()) == expected_offsets(*SPANS)
    append(table, PartitionRange(0, 20, 21))
    assert sorted(load_iceberg(table).scan().to_arrow()["_offset"].to_pylist()) == list(range(21))


def test_vacuum_deletes_old_orphans_only(tmp_path: Path) -> None:
    table = land(tmp_path)
    old = write_output(table, PartitionRange(1, 0, 2)).files[0]
    age_files(tmp_path, 25)
    fresh = write_output(table, PartitionRange(1, 0, 2)).files[0]
    removed = vacuum_table(table, keep_hours=1)
    assert f"data/{old.path}" in removed
    assert f"data/{fresh.path}" not in removed
    assert all(path == f"data/{old.path}" or path.startswith("metadata/") for path in removed)
    assert read_positions(open_iceberg_table(tmp_path).files()) == expected_offsets(*SPANS)
    append(table, PartitionRange(0, 20, 21))


def test_maintenance_records_are_stored_with_and_without_files(tmp_path: Path) -> None:
    table = land(tmp_path)
    vacuum = MaintenanceRecord(MaintenanceKind.VACUUM, 5, "test", files_deleted=3)
    table.record_maintenance(vacuum)
    (merge,) = plan_merges(table)
    compaction = MaintenanceRecord(MaintenanceKind.COMPACTION, 7, "test", files_removed=4)
    assert table.replace_files(merge.table.files, merge_table_files(merge), data_change=False, record=compaction)
    found = table.statistics()
    assert (found.last_vacuum, found.last_compaction, found.last_rebuild) == (vacuum, compaction, None)
    assert (found.format, found.rows, found.table_partitions) == ("iceberg", 20, 1)
    assert found.oldest_data_ms == 1_714_564_800_000


def test_statistics_of_files_have_bounds_of_columns(tmp_path: Path) -> None:
    snapshot = land(tmp_path).snapshot()
    statistics: Any = snapshot.statistics
    assert sorted(statistics.lower["_offset"].to_pylist()) == [0, 5, 10, 15]
    assert sorted(statistics.upper["_offset"].to_pylist()) == [4, 9, 14, 19]
    assert statistics.rows.to_pylist() == [5] * 4
    assert statistics.lower["_timestamp"].type == snapshot.schema.field("_timestamp").type
    assert statistics.lower["_date"].to_pylist() == statistics.upper["_date"].to_pylist()
    assert statistics.null_counts["_timestamp_ms"].to_pylist() == [5] * 4
